// Cubins without ptxas: NVIDIA's assembler as a library, declared here and
// loaded when a plan is compiled.

#include "Emitter.h"

#include "llvm/Support/DynamicLibrary.h"
#include "llvm/Support/FileSystem.h"

#include <cstdlib>

using namespace mlir;
using namespace mlir::msamp;

namespace {

// As in the ABI of libnvJitLink.
using Handle = void *;
constexpr int kInputPtx = 2;

/// Entry points by their names in libnvJitLink, without the leading
/// "nvJitLink".
struct JitLink {
  // NOLINTBEGIN(readability-identifier-naming)
  int (*Create)(Handle *handle, uint32_t count, const char **options);
  int (*Destroy)(Handle *handle);
  int (*AddData)(Handle handle, int kind, const void *data, size_t size,
                 const char *name);
  int (*Complete)(Handle handle);
  int (*GetLinkedCubinSize)(Handle handle, size_t *size);
  int (*GetLinkedCubin)(Handle handle, void *cubin);
  int (*GetErrorLogSize)(Handle handle, size_t *size);
  int (*GetErrorLog)(Handle handle, char *log);
  int (*GetInfoLogSize)(Handle handle, size_t *size);
  int (*GetInfoLog)(Handle handle, char *log);
  // NOLINTEND(readability-identifier-naming)
};

/// The library that is found first, or an invalid one.
llvm::sys::DynamicLibrary findLibrary() {
  SmallVector<std::string> paths{"libnvJitLink.so.13"};
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char *home = std::getenv(variable))
      paths.push_back(std::string(home) + "/lib64/libnvJitLink.so.13");
  paths.push_back("/usr/local/cuda/lib64/libnvJitLink.so.13");
  for (const std::string &path : paths) {
    std::string ignored;
    auto library =
        llvm::sys::DynamicLibrary::getLibrary(path.c_str(), &ignored);
    if (library.isValid())
      return library;
  }
  return llvm::sys::DynamicLibrary();
}

const JitLink *load() {
  static const std::optional<JitLink> loaded = []() -> std::optional<JitLink> {
    llvm::sys::DynamicLibrary library = findLibrary();
    if (!library.isValid())
      return std::nullopt;
    JitLink entries{};
    bool isComplete = true;
    auto find = [&](const char *name, auto &entry) {
      entry = reinterpret_cast<std::decay_t<decltype(entry)>>(
          library.getAddressOfSymbol(name));
      isComplete &= entry != nullptr;
    };
    find("nvJitLinkCreate", entries.Create);
    find("nvJitLinkDestroy", entries.Destroy);
    find("nvJitLinkAddData", entries.AddData);
    find("nvJitLinkComplete", entries.Complete);
    find("nvJitLinkGetLinkedCubinSize", entries.GetLinkedCubinSize);
    find("nvJitLinkGetLinkedCubin", entries.GetLinkedCubin);
    find("nvJitLinkGetErrorLogSize", entries.GetErrorLogSize);
    find("nvJitLinkGetErrorLog", entries.GetErrorLog);
    find("nvJitLinkGetInfoLogSize", entries.GetInfoLogSize);
    find("nvJitLinkGetInfoLog", entries.GetInfoLog);
    if (!isComplete)
      return std::nullopt;
    return entries;
  }();
  return loaded ? &*loaded : nullptr;
}

std::string getLog(Handle handle, int (*getSize)(Handle, size_t *),
                   int (*get)(Handle, char *)) {
  size_t size = 0;
  if (getSize(handle, &size) || size == 0)
    return "";
  std::string log(size, '\0');
  if (get(handle, log.data()))
    return "";
  return StringRef(log.c_str()).rtrim().str();
}

} // namespace

bool mlir::msamp::hasJitLink() { return load() != nullptr; }

FailureOr<std::string> mlir::msamp::runJitLink(Operation *op, StringRef chip,
                                               StringRef ptx,
                                               std::string &report) {
  const JitLink &linker = *load();
  std::string arch = ("-arch=" + chip).str();
  const char *options[] = {arch.c_str(), "-verbose"};
  Handle handle = nullptr;
  if (int result = linker.Create(&handle, std::size(options), options))
    return op->emitError() << "libnvJitLink cannot assemble for '" << chip
                           << "' (error " << result << ")";
  // With the zero at its end.
  std::string text = ptx.str();
  size_t size = 0;
  std::string cubin;
  int result =
      linker.AddData(handle, kInputPtx, text.c_str(), text.size() + 1, "step");
  if (result == 0)
    result = linker.Complete(handle);
  if (result == 0)
    result = linker.GetLinkedCubinSize(handle, &size);
  if (result == 0) {
    cubin.resize(size);
    result = linker.GetLinkedCubin(handle, cubin.data());
  }
  report = getLog(handle, linker.GetInfoLogSize, linker.GetInfoLog);
  std::string error =
      getLog(handle, linker.GetErrorLogSize, linker.GetErrorLog);
  linker.Destroy(&handle);
  if (result)
    return op->emitError() << "libnvJitLink failed: "
                           << (error.empty() ? "error " + std::to_string(result)
                                             : error);
  return cubin;
}
