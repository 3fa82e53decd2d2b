// The error of a PJRT plug-in whose device has not enough memory for an array or a program.
#pragma once
#include "runner/base/error.hpp"

namespace runner::pjrt {

struct OutOfMemory : Error {
  explicit OutOfMemory(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

}  // namespace runner::pjrt
