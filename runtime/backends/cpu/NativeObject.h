// Loads a plan's native code, a shared object without dependencies, from
// memory.

#ifndef MSAMP_RT_BACKENDS_CPU_NATIVEOBJECT_H
#define MSAMP_RT_BACKENDS_CPU_NATIVEOBJECT_H

#include "core/Status.h"

#include <cstddef>
#include <string>
#include <vector>

namespace msamp::rt {

class NativeObject {
public:
  NativeObject() = default;
  ~NativeObject();
  NativeObject(const NativeObject &) = delete;
  NativeObject &operator=(const NativeObject &) = delete;

  /// Maps `bytes` by way of an anonymous file; nothing is left on disk.
  Status load(const std::vector<std::byte> &bytes);

  /// The function called `symbol`, or null.
  void *find(const std::string &symbol) const;

private:
  void *handle = nullptr;
  /// Open as long as the object is loaded: the loader knows objects by path,
  /// and the path is the descriptor's number.
  int file = -1;
};

} // namespace msamp::rt

#endif // MSAMP_RT_BACKENDS_CPU_NATIVEOBJECT_H
