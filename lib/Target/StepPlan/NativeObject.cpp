// LLVM dialect -> LLVM IR -> machine code -> shared object.
// The vectors are chosen already, so LLVM's own vectorizers stay off; kernels
// call nothing, so the object links without a libc and loads anywhere.

#include "Emitter.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"

using namespace mlir;
using namespace mlir::msamp;

static std::unique_ptr<llvm::TargetMachine>
createTargetMachine(const llvm::Triple &triple, std::string &error) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, "x86-64", "", options, llvm::Reloc::PIC_, std::nullopt,
      llvm::CodeGenOptLevel::Default));
}

/// Links relocatable `object` into a shared object.
static FailureOr<std::string> linkSharedObject(ModuleOp cpu, StringRef object) {
  // The linker that this build found, or one on the path.
  std::string linker = MSAMP_LLD_PATH;
  if (!llvm::sys::fs::can_execute(linker)) {
    llvm::ErrorOr<std::string> found =
        llvm::sys::findProgramByName("ld.lld-22");
    if (!found)
      found = llvm::sys::findProgramByName("ld.lld");
    if (!found)
      return cpu.emitError() << "cannot find the linker ld.lld, neither at "
                             << linker << " nor on PATH";
    linker = *found;
  }
  std::string report;
  return runTool(
      cpu, linker,
      {"-shared", "-s", "--build-id=none", "-z", "defs", "-z", "noexecstack"},
      object, /*seconds=*/60, report);
}

FailureOr<std::string> mlir::msamp::compileNativeObject(ModuleOp cpu,
                                                        std::string &triple) {
  WalkResult leftOver = cpu.walk([&](Operation *op) {
    if (op == cpu.getOperation() ||
        op->getName().getDialectNamespace() == "llvm")
      return WalkResult::advance();
    op->emitError() << "'" << op->getName()
                    << "' is left in @cpu, which must be lowered to the LLVM "
                       "dialect first";
    return WalkResult::interrupt();
  });
  if (leftOver.wasInterrupted())
    return failure();

  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  cpu.getContext()->appendDialectRegistry(registry);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module =
      translateModuleToLLVMIR(cpu, context, "msamp_step");
  if (!module)
    return cpu.emitError("cannot be translated to LLVM IR");

  std::string error;
  llvm::Triple target("x86_64-unknown-linux-gnu");
  std::unique_ptr<llvm::TargetMachine> machine =
      createTargetMachine(target, error);
  if (!machine)
    return cpu.emitError() << "no code generator for " << target.str() << ": "
                           << error;
  triple = target.str();
  module->setTargetTriple(target);
  module->setDataLayout(machine->createDataLayout());
  optimize(*module, *machine, llvm::OptimizationLevel::O2);

  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   llvm::CodeGenFileType::ObjectFile))
    return cpu.emitError() << "no object files for " << target.str();
  codegen.run(*module);
  return linkSharedObject(cpu, StringRef(object.data(), object.size()));
}
