// What the files of this folder share: the parts of a plan while it is built.

#ifndef MSAMP_LIB_TARGET_STEPPLAN_EMITTER_H
#define MSAMP_LIB_TARGET_STEPPLAN_EMITTER_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"
#include "msamp_rt/plan_format.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Passes/OptimizationLevel.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace mlir::msamp {

/// The Programs, Instructions and Operands sections.
struct ReferenceProgram {
  SmallVector<::msamp::plan::Program> programs;
  SmallVector<::msamp::plan::Instruction> instructions;
  SmallVector<uint32_t> operands;
};

/// The optimizer's regions as the program that the reference backend
/// interprets.
FailureOr<ReferenceProgram> buildReferenceProgram(OptimizerOp optimizer);

/// Compiles the LLVM-dialect module `cpu` to an ELF shared object without
/// dependencies. `triple` receives the target's.
FailureOr<std::string> compileNativeObject(ModuleOp cpu, std::string &triple);

/// Device code of one gpu.module: PTX, and a cubin where there is ptxas or
/// libnvJitLink.
struct DeviceCode {
  std::string ptx, cubin;
  /// Of a thread of the cubin.
  uint32_t registers = 0, spillBytes = 0;
};

/// Registers what compileDeviceCode needs to translate.
void registerDeviceTranslations(DialectRegistry &registry);

/// Links the device library to `module`, which must be lowered to the LLVM and
/// NVVM dialects, and compiles the two for the module's target; assembles if
/// the module says `msamp.wants_cubin` and an assembler is found.
FailureOr<DeviceCode> compileDeviceCode(gpu::GPUModuleOp module);

/// Whether libnvJitLink is found; and what it makes of `ptx`, its errors
/// reported at `op`.
bool hasJitLink();
FailureOr<std::string> runJitLink(Operation *op, StringRef chip, StringRef ptx,
                                  std::string &report);

/// LLVM's passes at `level`. Vectors are chosen already and loops are as wide
/// as they should be, so vectorizers, unrolling and interleaving stay off.
void optimize(llvm::Module &module, llvm::TargetMachine &machine,
              llvm::OptimizationLevel level);

/// What `tool`, called with `options`, `-o` and two paths, makes of `input`;
/// `report` receives what it prints. Errors, and a run of more than `seconds`,
/// are reported at `op`.
FailureOr<std::string> runTool(Operation *op, StringRef tool,
                               ArrayRef<StringRef> options, StringRef input,
                               unsigned seconds, std::string &report);

} // namespace mlir::msamp

#endif // MSAMP_LIB_TARGET_STEPPLAN_EMITTER_H
