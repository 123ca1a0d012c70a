// Named pipelines in order; the only code that knows every pass.

#include "msamp/Pipelines/Pipelines.h"
#include "msamp/Conversion/Passes.h"
#include "msamp/Dialect/MSAMP/Transforms/Passes.h"
#include "msamp/Target/StepPlan/StepPlan.h"

#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::msamp;

/// What is computed, and in which phases.
template <typename Options>
static void addStepPasses(OpPassManager &pm, bool forGPU,
                          const Options &options) {
  pm.addPass(createConvertShardToMSAMP());
  pm.addPass(createResolveOptimizers());
  pm.addPass(createLiftCollectives());
  pm.addPass(createPackUpdates());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createInferStorage());
  pm.addPass(createShardStep({options.shard, options.ranks, options.gradWire,
                              options.gradReduction, options.collectives}));
  pm.addPass(createExpandWrapper());
  // Before anything is derived from the optimizer: its text is also what the
  // reference backend runs.
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createFuseStep());
  pm.addPass(createSplitPhases({/*inspect=*/forGPU, options.schedule}));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

/// To the LLVM dialect.
static void addCodePasses(OpPassManager &code) {
  code.addPass(createExpandCasts());
  code.addPass(createCanonicalizerPass());
  code.addPass(createCSEPass());
  code.addPass(createSCFToControlFlowPass());
  code.addPass(createConvertVectorToLLVMPass());
  code.addPass(createConvertMathToLLVMPass());
  code.addPass(createArithToLLVMConversionPass());
  // As upstream's pass for it, but for any op, not only modules.
  ConvertToLLVMPassOptions controlFlow;
  controlFlow.filterDialects = {"cf"};
  code.addPass(createConvertToLLVMPass(controlFlow));
  code.addPass(createReconcileUnrealizedCastsPass());
}

static void addCPUPasses(OpPassManager &pm) {
  pm.addPass(createConvertMSAMPToCPU());
  addCodePasses(pm.nest<ModuleOp>());
}

static void addCUDAPasses(OpPassManager &pm, const StepToCUDAOptions &options) {
  ConvertMSAMPToGPUOptions conversion;
  conversion.arch.assign(options.arch.begin(), options.arch.end());
  conversion.accessBytes = options.accessBytes;
  conversion.threads = options.threads;
  conversion.blocksPerSM = options.blocksPerSM;
  conversion.chunkElements = options.chunkElements;
  conversion.stages = options.stages;
  conversion.fastMath = options.fastMath;
  pm.addPass(createConvertMSAMPToGPU(conversion));
  addCodePasses(pm.nest<gpu::GPUModuleOp>());
}

void mlir::msamp::buildStepToCPUPipeline(OpPassManager &pm,
                                         const StepToCPUOptions &options) {
  addStepPasses(pm, /*forGPU=*/false, options);
  addCPUPasses(pm);
}

void mlir::msamp::buildStepToCUDAPipeline(OpPassManager &pm,
                                          const StepToCUDAOptions &options) {
  addStepPasses(pm, /*forGPU=*/true, options);
  if (options.withCPU)
    addCPUPasses(pm);
  addCUDAPasses(pm, options);
}

void mlir::msamp::registerMSAMPDialects(DialectRegistry &registry) {
  registry.insert<MSAMPDialect, arith::ArithDialect, cf::ControlFlowDialect,
                  func::FuncDialect, gpu::GPUDialect, LLVM::LLVMDialect,
                  math::MathDialect, NVVM::NVVMDialect, scf::SCFDialect,
                  shard::ShardDialect, vector::VectorDialect>();
  cf::registerConvertControlFlowToLLVMInterface(registry);
}

void mlir::msamp::registerMSAMPPasses() {
  registerMSAMPTransformsPasses();
  registerMSAMPConversionPasses();
  registerMSAMPStepPlanPasses();
  PassPipelineRegistration<StepToCPUOptions>(
      "msamp-step-to-cpu",
      "Lower optimizer steps to a launch and its vectorized CPU code",
      buildStepToCPUPipeline);
  PassPipelineRegistration<StepToCUDAOptions>(
      "msamp-step-to-cuda",
      "Lower optimizer steps to a launch and its GPU code for each "
      "architecture",
      buildStepToCUDAPipeline);
}
