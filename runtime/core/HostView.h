// Where the host reads and writes a session's tensors, wherever they are.

#ifndef MSAMP_RT_CORE_HOSTVIEW_H
#define MSAMP_RT_CORE_HOSTVIEW_H

#include "core/Session.h"

#include <algorithm>

namespace msamp::rt {

/// The address that is bound for `buffer`, or null.
inline void *getAddress(const TensorBuffers &buffers,
                        const PlanBuffer &buffer) {
  switch (buffer.kind) {
  case PlanBuffer::Kind::Payload:
    return buffers.payload[buffer.role];
  case PlanBuffer::Kind::ScaleInv:
    return buffers.scaleInv[buffer.role];
  case PlanBuffer::Kind::AmaxHistory:
    return buffers.history[buffer.role];
  case PlanBuffer::Kind::GradAmax:
    return buffers.gradAmax;
  case PlanBuffer::Kind::Step:
    return buffers.step;
  }
  return nullptr;
}

inline void setAddress(TensorBuffers &buffers, const PlanBuffer &buffer,
                       void *data) {
  switch (buffer.kind) {
  case PlanBuffer::Kind::Payload:
    buffers.payload[buffer.role] = data;
    break;
  case PlanBuffer::Kind::ScaleInv:
    buffers.scaleInv[buffer.role] = static_cast<float *>(data);
    break;
  case PlanBuffer::Kind::AmaxHistory:
    buffers.history[buffer.role] = static_cast<float *>(data);
    break;
  case PlanBuffer::Kind::GradAmax:
    buffers.gradAmax = static_cast<float *>(data);
    break;
  case PlanBuffer::Kind::Step:
    buffers.step = static_cast<int64_t *>(data);
    break;
  }
}

class Session::HostView {
public:
  HostView(Session &session, size_t index)
      : session(session), tensor(session.plan->tensors[index]),
        bound(session.states[index].buffers), buffers(bound) {
    if (session.memory().isHost())
      return;
    copies.resize(tensor.buffers.size());
    for (size_t index = 0; index < copies.size(); ++index) {
      const PlanBuffer &buffer = tensor.buffers[index];
      if (!getAddress(bound, buffer))
        continue;
      copies[index].resize(std::max<size_t>(1, buffer.byteSize));
      setAddress(buffers, buffer, copies[index].data());
    }
  }

  /// Brings what is bound here, and back again; only the gradient's buffers, or
  /// only the others.
  Status read(bool isGrad) {
    return forEachCopy(isGrad, [&](const PlanBuffer &buffer, void *copy) {
      return session.memory().copyToHost(copy, getAddress(bound, buffer),
                                         buffer.byteSize);
    });
  }
  Status write(bool isGrad) {
    return forEachCopy(isGrad, [&](const PlanBuffer &buffer, void *copy) {
      return session.memory().copyFromHost(getAddress(bound, buffer), copy,
                                           buffer.byteSize);
    });
  }

private:
  template <typename Copy> Status forEachCopy(bool isGrad, Copy copy) {
    for (size_t index = 0; index < copies.size(); ++index) {
      const PlanBuffer &buffer = tensor.buffers[index];
      if (buffer.isRequired() && !copies[index].empty() &&
          (buffer.role == Plan::roleIndex(plan::RoleKind::Grad)) == isGrad)
        MSAMP_RETURN_IF_ERROR(copy(buffer, copies[index].data()));
    }
    return {};
  }

  Session &session;
  const PlanTensor &tensor;
  const TensorBuffers &bound;
  std::vector<std::vector<std::byte>> copies;

public:
  TensorBuffers buffers;
};

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_HOSTVIEW_H
