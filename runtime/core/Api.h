// What functions of the C ABI share. Every one that can fail is wrapped so that
// no exception (out of memory, in practice) crosses it.

#ifndef MSAMP_RT_CORE_API_H
#define MSAMP_RT_CORE_API_H

#include "core/Session.h"
#include "msamp_rt/api.h"

#include <memory>
#include <new>
#include <string>

struct msamp_status {
  msamp::rt::Status status;
};
struct msamp_plan {
  std::shared_ptr<const msamp::rt::Plan> plan;
};

namespace msamp::rt {

/// Statuses that need no memory when there is none; freeing them does nothing.
extern msamp_status outOfMemory, internalError;

inline msamp_status *wrap(Status status) {
  return status.ok() ? nullptr : new msamp_status{std::move(status)};
}

/// Runs `body`, which returns a Status.
template <typename Body> msamp_status *guard(Body body) noexcept {
  try {
    return wrap(body());
  } catch (const std::bad_alloc &) {
    return &outOfMemory;
  } catch (...) {
    // The runtime itself throws nothing; what is left comes from the C++
    // library.
    return &internalError;
  }
}

SessionOptions convertOptions(const msamp_session_options *options);

/// Hands `found` to the caller; its strings live in `overflowTensor`.
void convertReport(const StepReport &found, std::string &overflowTensor,
                   msamp_step_report *report);

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_API_H
