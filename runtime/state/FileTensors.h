// Tensors of safetensors files as the runtime expects them.

#ifndef MSAMP_RT_STATE_FILETENSORS_H
#define MSAMP_RT_STATE_FILETENSORS_H

#include "core/Status.h"
#include "safetensors/Safetensors.h"

#include <set>
#include <string>
#include <vector>

namespace msamp::rt {

/// Checks a file's tensor against what is expected of it.
Status checkView(const SafetensorsFile &file, const SafetensorsView &view,
                 const std::string &dtype, const std::vector<int64_t> &shape);

/// Fails if `file` holds a tensor that is not in `expected`.
Status checkNoOthers(const SafetensorsFile &file,
                     const std::set<std::string> &expected);

/// The error of a file without tensor `name`.
Status missing(const SafetensorsFile &file, const std::string &name);

/// The elements of an F32, F16 or BF16 `view` as f32: in place where the file
/// aligns them, else in `copy`.
const float *toFloats(const SafetensorsView &view, std::vector<float> &copy);

} // namespace msamp::rt

#endif // MSAMP_RT_STATE_FILETENSORS_H
