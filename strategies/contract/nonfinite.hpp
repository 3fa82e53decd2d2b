// Training that cannot go on because its numbers are not finite.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

/// Thrown on every rank in the same step. The same recipe fails the same way, so that trying again is hopeless.
class NonFiniteError : public Error {
 public:
  explicit NonFiniteError(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

}  // namespace runner
