// The meaning of an exception for a process that computes with LibTorch: its kind, its message and its exit code.
#pragma once
#include <exception>
#include <string>

#include "runner/base/error.hpp"

namespace runner {

/// The loss or gradients are not finite. Thrown on every rank in the same step. A new attempt with the same recipe
/// would fail in the same way.
class NonFiniteError : public Error {
 public:
  explicit NonFiniteError(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

struct WorkerFailure {
  std::string kind;  ///< usage, environment, nonfinite, oom, collective or error, as in the event `failed`
  std::string message;
  ExitCode code = ExitCode::run_failed;
};

/// LibTorch's messages are without backtrace. "collective": another rank is gone, or a collective has timed out.
WorkerFailure failure_of(const std::exception& error);

}  // namespace runner
