// Named pipelines in order; the only code that knows every pass.

#include "msamp/Pipelines/Pipelines.h"
#include "msamp/Conversion/Passes.h"
#include "msamp/Dialect/MSAMP/Transforms/Passes.h"
#include "msamp/Target/StepPlan/StepPlan.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void mlir::msamp::buildStepToCPUPipeline(OpPassManager &pm) {
  // What is computed.
  pm.addPass(createResolveOptimizers());
  pm.addPass(createPackUpdates());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createInferStorage());
  pm.addPass(createExpandWrapper());
  // How.
  pm.addPass(createFuseStep());
  pm.addPass(createSplitPhases());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  // Code.
  pm.addPass(createConvertMSAMPToCPU());
  OpPassManager &cpu = pm.nest<ModuleOp>();
  cpu.addPass(createExpandCasts());
  cpu.addPass(createCanonicalizerPass());
  cpu.addPass(createCSEPass());
  cpu.addPass(createSCFToControlFlowPass());
  cpu.addPass(createConvertVectorToLLVMPass());
  cpu.addPass(createConvertMathToLLVMPass());
  cpu.addPass(createArithToLLVMConversionPass());
  cpu.addPass(createConvertControlFlowToLLVMPass());
  cpu.addPass(createReconcileUnrealizedCastsPass());
}

void mlir::msamp::registerMSAMPDialects(DialectRegistry &registry) {
  registry.insert<MSAMPDialect, arith::ArithDialect, cf::ControlFlowDialect,
                  func::FuncDialect, LLVM::LLVMDialect, math::MathDialect,
                  scf::SCFDialect, vector::VectorDialect>();
}

void mlir::msamp::registerMSAMPPasses() {
  registerMSAMPTransformsPasses();
  registerMSAMPConversionPasses();
  registerMSAMPStepPlanPasses();
  PassPipelineRegistration<>(
      "msamp-step-to-cpu",
      "Lower optimizer steps to a launch and its vectorized CPU code",
      buildStepToCPUPipeline);
}
