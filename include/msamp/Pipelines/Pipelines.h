// The named pipelines, and registration of everything that msamp brings.

#ifndef MSAMP_PIPELINES_PIPELINES_H
#define MSAMP_PIPELINES_PIPELINES_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"

namespace mlir::msamp {

/// How a step is sharded; see msamp-shard-step. Empty: as a graph with
/// collectives says, or not at all.
template <typename Derived>
struct ShardingOptions : PassPipelineOptions<Derived> {
  template <typename T>
  using Opt = typename PassPipelineOptions<Derived>::template Option<T>;
  Opt<std::string> shard{*this, "shard",
                         llvm::cl::desc("none, fsdp2, flat or tensor"),
                         llvm::cl::init("")};
  Opt<unsigned> ranks{*this, "ranks", llvm::cl::init(1)};
  Opt<std::string> gradWire{*this, "grad-wire", llvm::cl::init("")};
  Opt<std::string> gradReduction{*this, "grad-reduction", llvm::cl::init("")};
  Opt<std::string> collectives{*this, "collectives", llvm::cl::init("auto")};
};

struct StepToCPUOptions : ShardingOptions<StepToCPUOptions> {
  Option<std::string> schedule{*this, "schedule",
                               llvm::cl::desc("auto, one-pass or two-phase"),
                               llvm::cl::init("auto")};
};

/// --msamp-step-to-cpu: from a function with wrapped updates to a launch and
/// its CPU code in the LLVM dialect, ready for msamp-emit-step-plan.
void buildStepToCPUPipeline(OpPassManager &pm, const StepToCPUOptions &options);

struct StepToCUDAOptions : ShardingOptions<StepToCUDAOptions> {
  ListOption<std::string> arch{
      *this, "arch", llvm::cl::desc("Architectures, as sm_90a,sm_80")};
  Option<std::string> schedule{*this, "schedule",
                               llvm::cl::desc("auto, one-pass or two-phase"),
                               llvm::cl::init("auto")};
  Option<bool> withCPU{*this, "with-cpu", llvm::cl::desc("Make CPU code too"),
                       llvm::cl::init(false)};
  Option<bool> fastMath{*this, "fast-math",
                        llvm::cl::desc("Approximate division and square root"),
                        llvm::cl::init(false)};
  // See convert-msamp-to-gpu; 0 is the tuned value.
  Option<unsigned> accessBytes{*this, "access-bytes", llvm::cl::init(0)};
  Option<unsigned> threads{*this, "threads", llvm::cl::init(0)};
  Option<unsigned> blocksPerSM{*this, "blocks-per-sm", llvm::cl::init(0)};
  Option<unsigned> chunkElements{*this, "chunk-elements", llvm::cl::init(0)};
  Option<unsigned> stages{*this, "stages", llvm::cl::init(0)};
};

/// --msamp-step-to-cuda: the same to GPU code for each architecture.
void buildStepToCUDAPipeline(OpPassManager &pm,
                             const StepToCUDAOptions &options);

/// Registers the dialect and the dialects that its passes make.
void registerMSAMPDialects(DialectRegistry &registry);

/// Registers every msamp pass and named pipeline.
void registerMSAMPPasses();

} // namespace mlir::msamp

#endif // MSAMP_PIPELINES_PIPELINES_H
