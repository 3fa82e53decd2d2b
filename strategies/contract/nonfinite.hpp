// The error of a training whose loss or gradients are not finite.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

/// Thrown on every rank in the same step. A new attempt with the same recipe would fail in the same way.
class NonFiniteError : public Error {
 public:
  explicit NonFiniteError(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

}  // namespace runner
