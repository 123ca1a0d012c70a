// gpu.module -> LLVM IR, with the device library -> PTX -> cubin.
// PTX is always made. Cubins need ptxas, which is looked for on PATH, and in
// CUDA_HOME and CUDA_PATH, or else in /usr/local/cuda, when a plan is compiled;
// or libnvJitLink.

#include "Emitter.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"

#include <mutex>

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

// StepKernel.cu as bitcode, from the file that the build made of it.
asm(R"(.section .rodata
.balign 16
.global msamp_device_library
.global msamp_device_library_end
.hidden msamp_device_library
.hidden msamp_device_library_end
msamp_device_library:
.incbin ")" MSAMP_DEVICE_LIBRARY R"("
msamp_device_library_end:
.byte 0
.text
)");
extern "C" const char msamp_device_library[], msamp_device_library_end[];

static std::unique_ptr<llvm::TargetMachine>
createTargetMachine(NVVM::NVVMTargetAttr target, std::string &error) {
  // Modules are compiled in parallel, and LLVM's table of targets is one.
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple(target.getTriple());
  const llvm::Target *backend =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!backend)
    return nullptr;
  // LLVM would warn, go on with its least architecture and then crash.
  std::unique_ptr<llvm::MCSubtargetInfo> known(
      backend->createMCSubtargetInfo(triple, "", ""));
  if (!known->isCPUStringValid(target.getChip())) {
    error = ("there is no such architecture, or it is newer than LLVM " +
             llvm::Twine(LLVM_VERSION_MAJOR))
                .str();
    return nullptr;
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(backend->createTargetMachine(
      triple, target.getChip(), target.getFeatures(), options, std::nullopt,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

/// Links the device library and leaves nothing visible but the entry point.
static LogicalResult linkDeviceLibrary(gpu::GPUModuleOp op,
                                       llvm::Module &module) {
  // Two labels of one section. NOLINTBEGIN(clang-analyzer-security.PointerSub)
  llvm::StringRef bitcode(msamp_device_library,
                          msamp_device_library_end - msamp_device_library);
  // NOLINTEND(clang-analyzer-security.PointerSub)
  llvm::Expected<std::unique_ptr<llvm::Module>> library =
      llvm::parseBitcodeFile(
          llvm::MemoryBufferRef(bitcode, "msamp device library"),
          module.getContext());
  if (!library)
    return op.emitError() << "the device library cannot be read: "
                          << llvm::toString(library.takeError());
  module.setDataLayout((*library)->getDataLayout());
  if (llvm::Linker::linkModules(module, std::move(*library)))
    return op.emitError("cannot be linked to the device library");
  for (llvm::Function &function : module) {
    if (function.isDeclaration()) {
      if (function.isIntrinsic())
        continue;
      return op.emitError() << "calls '" << function.getName().str()
                            << "', which nothing defines";
    }
    // The library was compiled for the least architecture there is; what is
    // left of that would keep its functions from being inlined.
    for (llvm::StringRef attribute :
         {"target-cpu", "target-features", "frame-pointer"})
      function.removeFnAttr(attribute);
    if (function.getName() == plan::kDeviceEntry)
      continue;
    function.setLinkage(llvm::GlobalValue::InternalLinkage);
    function.removeFnAttr(llvm::Attribute::NoInline);
    function.addFnAttr(llvm::Attribute::AlwaysInline);
  }
  return success();
}

/// Path of ptxas, or empty.
static std::string findPtxas() {
  if (llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  bool isSaid = false;
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char *home = std::getenv(variable)) {
      isSaid = true;
      std::string path = std::string(home) + "/bin/ptxas";
      if (llvm::sys::fs::can_execute(path))
        return path;
    }
  std::string path = "/usr/local/cuda/bin/ptxas";
  return !isSaid && llvm::sys::fs::can_execute(path) ? path : "";
}

/// The number in front of `text` in the report of ptxas -v.
static uint32_t findNumber(StringRef report, StringRef text) {
  SmallVector<StringRef> matches;
  uint32_t number = 0;
  if (llvm::Regex(("([0-9]+) " + text).str()).match(report, &matches))
    matches[1].getAsInteger(10, number);
  return number;
}

static LogicalResult assemble(gpu::GPUModuleOp op, StringRef chip,
                              DeviceCode &code) {
  std::string ptxas = findPtxas();
  if (ptxas.empty() && !hasJitLink())
    return success();
  std::string report;
  FailureOr<std::string> cubin =
      ptxas.empty()
          ? runJitLink(op, chip, code.ptx, report)
          : runTool(op, ptxas, {("-arch=" + chip).str(), "-v"}, code.ptx,
                    /*seconds=*/120, report);
  if (failed(cubin))
    return failure();
  code.cubin = std::move(*cubin);
  code.registers = findNumber(report, "registers");
  code.spillBytes = findNumber(report, "bytes spill stores");
  return success();
}

void mlir::msamp::registerDeviceTranslations(DialectRegistry &registry) {
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

FailureOr<DeviceCode> mlir::msamp::compileDeviceCode(gpu::GPUModuleOp op) {
  WalkResult leftOver = op.walk([&](Operation *nested) {
    StringRef dialect = nested->getName().getDialectNamespace();
    if (nested == op.getOperation() || dialect == "llvm" || dialect == "nvvm")
      return WalkResult::advance();
    nested->emitError() << "'" << nested->getName() << "' is left in @"
                        << op.getName()
                        << ", which must be lowered to the LLVM and NVVM "
                           "dialects first";
    return WalkResult::interrupt();
  });
  if (leftOver.wasInterrupted())
    return failure();
  auto target = dyn_cast_or_null<NVVM::NVVMTargetAttr>(
      op.getTargetsAttr() ? op.getTargetsAttr()[0] : Attribute());
  if (!target)
    return op.emitError("has no nvvm target; convert-msamp-to-gpu sets one");

  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module =
      translateModuleToLLVMIR(op, context, "msamp_step");
  if (!module)
    return op.emitError("cannot be translated to LLVM IR");
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine =
      createTargetMachine(target, error);
  if (!machine)
    return op.emitError() << "no code generator for '" << target.getChip()
                          << "': " << error;
  module->setTargetTriple(llvm::Triple(target.getTriple()));
  if (failed(linkDeviceLibrary(op, *module)))
    return failure();
  module->setDataLayout(machine->createDataLayout());
  optimize(*module, *machine, llvm::OptimizationLevel::O3);

  DeviceCode code;
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   llvm::CodeGenFileType::AssemblyFile))
    return op.emitError() << "no PTX for " << target.getChip();
  codegen.run(*module);
  code.ptx.assign(text.begin(), text.end());
  if (op->hasAttr("msamp.wants_cubin") &&
      failed(assemble(op, target.getChip(), code)))
    return failure();
  return code;
}
