// The precision policy: which dtype parameters are kept in, which one blocks compute in, and whether a loss scaler is
// needed. Torch-free; names as the field writes them ("bf16-mixed").
#pragma once
#include <cstdint>
#include <string>

namespace runner {

enum class DType { float64, float32, bfloat16, float16 };

inline int64_t bytes_of(DType dtype) { return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2; }

/// The one of more bytes; `a` of equals.
inline DType wider(DType a, DType b) { return bytes_of(b) > bytes_of(a) ? b : a; }

struct PrecisionPolicy {
  DType parameter = DType::float32;  ///< parameters, gradients and optimizer state
  DType compute = DType::float32;    ///< matrix products inside blocks (autocast where it differs from `parameter`)
  bool loss_scaling = false;         ///< 16-mixed: dynamic scaler

  bool autocast() const { return compute != parameter; }
  bool operator==(const PrecisionPolicy&) const = default;
};

/// "32-true", "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed". Throws std::logic_error for anything else:
/// config has already mapped the field's other spellings and selection has resolved "auto".
PrecisionPolicy precision_policy(const std::string& mode);
/// The mode that the policy is of.
std::string mode_of(const PrecisionPolicy& policy);

}  // namespace runner
