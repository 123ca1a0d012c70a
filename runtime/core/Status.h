// Status: the result of every runtime call that can fail. A failed Status
// carries one sentence that names the thing at fault and the values involved;
// nothing in the runtime throws, asserts on user input or exits.

#ifndef MSAMP_RT_CORE_STATUS_H
#define MSAMP_RT_CORE_STATUS_H

#include "msamp_rt/api.h"

#include <memory>
#include <string>
#include <utility>

namespace msamp::rt {

/// Kinds of failure; the numeric values are those of the C ABI.
enum class StatusCode {
  InvalidArgument = MSAMP_INVALID_ARGUMENT,
  NotFound = MSAMP_NOT_FOUND,
  DataLoss = MSAMP_DATA_LOSS,
  Unimplemented = MSAMP_UNIMPLEMENTED,
  IoError = MSAMP_IO_ERROR,
  Poisoned = MSAMP_POISONED,
  Internal = MSAMP_INTERNAL,
  OutOfMemory = MSAMP_OUT_OF_MEMORY,
  Aborted = MSAMP_ABORTED,
};

class [[nodiscard]] Status {
public:
  /// Success.
  Status() = default;
  Status(StatusCode code, std::string message)
      : failure(std::make_unique<Failure>(Failure{code, std::move(message)})) {}

  bool ok() const { return !failure; }
  StatusCode code() const { return failure->code; }
  const std::string &message() const { return failure->message; }

  /// Prefixes the message of a failure with `context` and ": ".
  Status withContext(const std::string &context) && {
    if (failure)
      failure->message = context + ": " + failure->message;
    return std::move(*this);
  }

private:
  struct Failure {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Failure> failure;
};

inline Status invalidArgument(std::string message) {
  return {StatusCode::InvalidArgument, std::move(message)};
}
inline Status notFound(std::string message) {
  return {StatusCode::NotFound, std::move(message)};
}
inline Status dataLoss(std::string message) {
  return {StatusCode::DataLoss, std::move(message)};
}
inline Status ioError(std::string message) {
  return {StatusCode::IoError, std::move(message)};
}

} // namespace msamp::rt

#define MSAMP_RETURN_IF_ERROR(expression)                                      \
  do {                                                                         \
    if (::msamp::rt::Status msampStatus = (expression); !msampStatus.ok())     \
      return msampStatus;                                                      \
  } while (false)

#endif // MSAMP_RT_CORE_STATUS_H
