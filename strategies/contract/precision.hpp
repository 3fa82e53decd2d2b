// The precision policy: the dtype of parameters, the dtype of computation, and whether a loss scaler is needed. Modes have the
// usual names ("bf16-mixed"). This header is torch-free.
#pragma once
#include <cstdint>
#include <string>

namespace runner {

enum class DType { float64, float32, bfloat16, float16 };

inline int64_t bytes_of(DType dtype) { return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2; }

/// The dtype with more bytes; `a` if both have the same size.
inline DType wider(DType a, DType b) { return bytes_of(b) > bytes_of(a) ? b : a; }

struct PrecisionPolicy {
  DType parameter = DType::float32;  ///< parameters, gradients and optimizer state
  DType compute = DType::float32;    ///< matrix products inside blocks (by autocast if it differs from `parameter`)
  bool loss_scaling = false;         ///< 16-mixed: dynamic scaler

  bool autocast() const { return compute != parameter; }
  bool operator==(const PrecisionPolicy&) const = default;
};

/// `mode`: "32-true", "64-true", "16-true", "bf16-true", "16-mixed" or "bf16-mixed". Other values throw std::logic_error: the
/// caller must have replaced other spellings and "auto".
PrecisionPolicy precision_policy(const std::string& mode);
/// The mode with this policy. Throws std::logic_error if there is none.
std::string mode_of(const PrecisionPolicy& policy);

}  // namespace runner
