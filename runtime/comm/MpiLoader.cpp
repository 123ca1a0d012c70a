// Loads the library that has MpiCommunicator: where there is no MPI, everything
// else works.

#include "comm/Communicator.h"

#include <dlfcn.h>
#include <filesystem>

using namespace msamp::rt;

Status msamp::rt::createMpiCommunicator(std::chrono::milliseconds deadline,
                                        std::unique_ptr<Communicator> &result) {
  using Create = Communicator *(*)(int64_t);
  std::error_code error;
  std::filesystem::path own =
      std::filesystem::read_symlink("/proc/self/exe", error);
  // Beside the program, as built and as installed; then where the loader looks.
  std::string beside =
      (own.parent_path().parent_path() / "lib" / "libmsamp_mpi.so").string();
  std::string tried;
  for (const std::string &path : {beside, std::string("libmsamp_mpi.so")}) {
    // MPI loads parts of its own that look for its symbols.
    void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      tried += (tried.empty() ? "" : "; ") + std::string(::dlerror());
      continue;
    }
    auto create = reinterpret_cast<Create>(
        ::dlsym(library, "msamp_create_mpi_communicator"));
    if (!create)
      return {StatusCode::Internal, path + " has no communicator"};
    result.reset(create(deadline.count()));
    if (!result)
      return {StatusCode::Unimplemented, "MPI does not start"};
    return {};
  }
  return {StatusCode::Unimplemented,
          "this build has no ranks over MPI: " + tried};
}
