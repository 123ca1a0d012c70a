// memfd_create + dlopen: the dynamic loader wants a file, the plan has bytes.

#include "backends/cpu/NativeObject.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace msamp::rt;

NativeObject::~NativeObject() {
  if (handle)
    ::dlclose(handle);
  if (file >= 0)
    ::close(file);
}

Status NativeObject::load(const std::vector<std::byte> &bytes) {
  file = ::memfd_create("msamp-step", MFD_CLOEXEC);
  if (file < 0)
    return ioError(
        std::string("cannot create a memory file for native code: ") +
        std::strerror(errno));
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t count = ::write(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      break;
    done += static_cast<size_t>(count);
  }
  if (done == bytes.size())
    handle = ::dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(),
                      RTLD_NOW | RTLD_LOCAL);
  const char *reason = done != bytes.size() ? std::strerror(errno)
                       : handle             ? nullptr
                                            : ::dlerror();
  if (handle)
    return {};
  return {StatusCode::Unimplemented,
          std::string("cannot load the plan's native code: ") +
              (reason ? reason : "unknown reason")};
}

void *NativeObject::find(const std::string &symbol) const {
  return ::dlsym(handle, symbol.c_str());
}
