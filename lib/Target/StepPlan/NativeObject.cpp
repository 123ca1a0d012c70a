// LLVM dialect -> LLVM IR -> machine code -> shared object.
// The vectors are chosen already, so LLVM's own vectorizers stay off; kernels
// call nothing, so the object links without a libc and loads anywhere.

#include "Emitter.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
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

static void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = false;
  tuning.LoopUnrolling = tuning.LoopInterleaving = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2)
      .run(module, modules);
}

std::error_code TemporaryFile::create(StringRef suffix) {
  std::error_code error =
      llvm::sys::fs::createTemporaryFile("msamp", suffix, path);
  if (!error)
    remover.setFile(path);
  return error;
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
  TemporaryFile input, output, log;
  if (std::error_code error = input.create("o"))
    return cpu.emitError() << "cannot create a temporary file: "
                           << error.message();
  if (output.create("so") || log.create("log"))
    return cpu.emitError("cannot create a temporary file");
  std::error_code error;
  llvm::raw_fd_ostream stream(input.path, error);
  stream << object;
  stream.close();
  if (stream.has_error())
    error = stream.error();
  stream.clear_error();
  if (error)
    return cpu.emitError() << "cannot write " << input.path << ": "
                           << error.message();
  std::string message;
  std::optional<StringRef> redirects[] = {StringRef(), StringRef(log.path),
                                          StringRef(log.path)};
  int code = llvm::sys::ExecuteAndWait(
      linker,
      {linker, "-shared", "-s", "--build-id=none", "-z", "defs", "-z",
       "noexecstack", "-o", output.path, input.path},
      std::nullopt, redirects, /*SecondsToWait=*/60, /*MemoryLimit=*/0,
      &message);
  if (code != 0) {
    if (auto text = llvm::MemoryBuffer::getFile(log.path))
      message += (*text)->getBuffer().str();
    return cpu.emitError() << linker << " failed: " << message;
  }
  auto linked = llvm::MemoryBuffer::getFile(output.path);
  if (!linked)
    return cpu.emitError() << "cannot read " << output.path << ": "
                           << linked.getError().message();
  return (*linked)->getBuffer().str();
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
  optimize(*module, *machine);

  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   llvm::CodeGenFileType::ObjectFile))
    return cpu.emitError() << "no object files for " << target.str();
  codegen.run(*module);
  return linkSharedObject(cpu, StringRef(object.data(), object.size()));
}
