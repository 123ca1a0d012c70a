// Replaces files whole or not at all.

#include "msamp/Target/StepPlan/StepPlan.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <fcntl.h>
#include <unistd.h>

using namespace mlir;
namespace fs = llvm::sys::fs;

/// Makes a rename in `folder` durable; where the system cannot, it need not.
static void syncFolder(StringRef folder) {
  int descriptor = ::open(folder.empty() ? "." : folder.str().c_str(),
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;
  ::fsync(descriptor);
  ::close(descriptor);
}

llvm::Error mlir::msamp::writeFileAtomically(StringRef path, StringRef bytes) {
  auto fail = [&](llvm::Error error) {
    return llvm::createStringError("cannot write " + path + ": " +
                                   llvm::toString(std::move(error)));
  };
  // What a link points to is replaced, not the link; a device or pipe is not a
  // place for a file.
  llvm::SmallString<256> target(path);
  unsigned mode = fs::all_read | fs::all_write;
  fs::file_status status;
  if (!fs::status(path, status)) {
    if (!fs::is_regular_file(status))
      return llvm::createStringError("cannot write " + path +
                                     ": not a regular file");
    mode = status.permissions();
    if (std::error_code error = fs::real_path(path, target))
      return fail(llvm::errorCodeToError(error));
  }
  llvm::Expected<fs::TempFile> temporary =
      fs::TempFile::create(target + ".tmp-%%%%%%%%", mode);
  if (!temporary)
    return fail(temporary.takeError());
  llvm::raw_fd_ostream stream(temporary->FD, /*shouldClose=*/false);
  stream << bytes;
  stream.flush();
  std::error_code error = stream.error();
  stream.clear_error();
  if (!error && ::fsync(temporary->FD) != 0)
    error = std::error_code(errno, std::generic_category());
  if (error) {
    llvm::consumeError(temporary->discard());
    return fail(llvm::errorCodeToError(error));
  }
  if (llvm::Error failure = temporary->keep(target))
    return fail(std::move(failure));
  syncFolder(llvm::sys::path::parent_path(target));
  return llvm::Error::success();
}
