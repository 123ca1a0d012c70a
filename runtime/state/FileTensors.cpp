// See FileTensors.h.

#include "state/FileTensors.h"
#include "core/Formats.h"

#include <cstring>
#include <nlohmann/json.hpp>

using namespace msamp;
using namespace msamp::rt;

static std::string shapeText(const std::vector<int64_t> &shape) {
  return nlohmann::json(shape).dump();
}

Status msamp::rt::checkView(const SafetensorsFile &file,
                            const SafetensorsView &view,
                            const std::string &dtype,
                            const std::vector<int64_t> &shape) {
  if (view.dtype != dtype)
    return invalidArgument("tensor '" + view.name + "' in " + file.path() +
                           " is " + view.dtype + ", expected " + dtype);
  if (view.shape != shape)
    return invalidArgument("tensor '" + view.name + "' in " + file.path() +
                           " has shape " + shapeText(view.shape) +
                           ", but the plan has " + shapeText(shape));
  return {};
}

Status msamp::rt::checkNoOthers(const SafetensorsFile &file,
                                const std::set<std::string> &expected) {
  for (const SafetensorsView &view : file.tensors())
    if (!expected.count(view.name))
      return invalidArgument("tensor '" + view.name + "' in " + file.path() +
                             " is not in the plan");
  return {};
}

Status msamp::rt::missing(const SafetensorsFile &file,
                          const std::string &name) {
  return notFound("tensor '" + name + "' is missing from " + file.path());
}

const float *msamp::rt::toFloats(const SafetensorsView &view,
                                 std::vector<float> &copy) {
  if (view.dtype != "F32") {
    plan::DType dtype =
        view.dtype == "F16" ? plan::DType::F16 : plan::DType::BF16;
    copy.resize(view.byteSize / dtypeSize(dtype));
    for (size_t i = 0; i < copy.size(); ++i)
      copy[i] = decode(dtype, loadCode(dtype, view.data, i));
    return copy.data();
  }
  if (reinterpret_cast<uintptr_t>(view.data) % alignof(float) == 0)
    return reinterpret_cast<const float *>(view.data);
  copy.resize(view.byteSize / sizeof(float));
  std::memcpy(copy.data(), view.data, view.byteSize);
  return copy.data();
}
