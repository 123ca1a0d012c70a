// What code for CPUs and for GPUs goes through alike: LLVM's passes, and a tool
// outside that makes one file of another.

#include "Emitter.h"

#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace mlir::msamp;

void mlir::msamp::optimize(llvm::Module &module, llvm::TargetMachine &machine,
                           llvm::OptimizationLevel level) {
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
  builder.buildPerModuleDefaultPipeline(level).run(module, modules);
}

namespace {
/// Removes a file at the end of a scope.
struct TemporaryFile {
  llvm::SmallString<128> path;
  llvm::FileRemover remover;

  std::error_code create(StringRef suffix) {
    std::error_code error =
        llvm::sys::fs::createTemporaryFile("msamp", suffix, path);
    if (!error)
      remover.setFile(path);
    return error;
  }
};
} // namespace

FailureOr<std::string> mlir::msamp::runTool(Operation *op, StringRef tool,
                                            ArrayRef<StringRef> options,
                                            StringRef input, unsigned seconds,
                                            std::string &report) {
  TemporaryFile in, out, log;
  std::error_code error = in.create("in");
  if (!error)
    error = out.create("out");
  if (!error)
    error = log.create("log");
  if (error)
    return op->emitError() << "cannot create a temporary file: "
                           << error.message();
  llvm::raw_fd_ostream stream(in.path, error);
  stream << input;
  stream.close();
  if (stream.has_error())
    error = stream.error();
  stream.clear_error();
  if (error)
    return op->emitError() << "cannot write " << in.path << ": "
                           << error.message();
  SmallVector<StringRef> arguments{tool};
  llvm::append_range(arguments, options);
  llvm::append_range(arguments, ArrayRef<StringRef>{"-o", out.path, in.path});
  std::string message;
  std::optional<StringRef> redirects[] = {StringRef(), StringRef(log.path),
                                          StringRef(log.path)};
  int status = llvm::sys::ExecuteAndWait(tool, arguments, std::nullopt,
                                         redirects, seconds,
                                         /*MemoryLimit=*/0, &message);
  if (auto text = llvm::MemoryBuffer::getFile(log.path))
    report = (*text)->getBuffer().str();
  if (status != 0)
    return op->emitError() << tool << " failed: " << message << report;
  auto result = llvm::MemoryBuffer::getFile(out.path);
  if (!result)
    return op->emitError() << "cannot read " << out.path << ": "
                           << result.getError().message();
  return (*result)->getBuffer().str();
}
