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

inline Status unusableScalar(const Plan &plan, const PlanTensor &tensor,
                             size_t scalar, float value, int64_t step) {
  return invalidArgument(
      "the hyper-parameters of group '" + plan.groups[tensor.group].name +
      "' make scalar " + std::to_string(scalar) + " of optimizer '" +
      plan.optimizer + "' " + std::to_string(value) + " at step " +
      std::to_string(step) + " of tensor '" + tensor.name + "'");
}

inline Status unusableGradScale(double gradScale) {
  return invalidArgument("grad_scale is " + std::to_string(gradScale) +
                         ", expected a positive number");
}

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_STEPERRORS_H
