#include "strategies/contract/precision.hpp"

#include "runner/base/error.hpp"

#include <stdexcept>

namespace runner {

PrecisionPolicy precision_policy(const std::string& mode) {
  if (mode == "32-true") return {DType::float32, DType::float32, false};
  if (mode == "64-true") return {DType::float64, DType::float64, false};
  if (mode == "16-true") return {DType::float16, DType::float16, false};
  if (mode == "bf16-true") return {DType::bfloat16, DType::bfloat16, false};
  if (mode == "16-mixed") return {DType::float32, DType::float16, true};
  if (mode == "bf16-mixed") return {DType::float32, DType::bfloat16, false};
  RUNNER_CHECK(false, "unknown precision mode `{}`", mode);
  return {};
}

std::string mode_of(const PrecisionPolicy& policy) {
  for (const char* mode : {"32-true", "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed"})
    if (precision_policy(mode) == policy) return mode;
  throw std::logic_error("no precision mode has this policy");
}

}  // namespace runner
