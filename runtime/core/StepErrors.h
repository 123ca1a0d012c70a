// Errors of a step that the host and a device find alike.

#ifndef MSAMP_RT_CORE_STEPERRORS_H
#define MSAMP_RT_CORE_STEPERRORS_H

#include "core/Plan.h"
#include "core/Status.h"

#include <string>

namespace msamp::rt {

inline Status corruptScale(const PlanTensor &tensor, const PlanBuffer &buffer,
                           float value) {
  return dataLoss("'" + buffer.key + "' of tensor '" + tensor.name + "' is " +
                  std::to_string(value) + ", expected a positive power of two");
}

inline Status corruptStep(const PlanTensor &tensor, int64_t value) {
  return dataLoss("'step' of tensor '" + tensor.name + "' is " +
                  std::to_string(value) + ", expected 0 or more");
}

inline Status unusableGradScale(double gradScale) {
  return invalidArgument("grad_scale is " + std::to_string(gradScale) +
                         ", expected a positive number");
}

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_STEPERRORS_H
