// The form of a layer's attention: direction, scale of scores, window and soft cap.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>

namespace runner {

/// How the queries of a layer see keys. Query i sees key j if 0 <= i - j < window; all keys if not causal.
struct AttentionForm {
  std::optional<double> scale = {};  ///< factor of scores; default 1 / sqrt(head_dim)
  int64_t window = 0;                ///< 0: all earlier keys
  bool causal = true;                ///< without it there is no window and no soft cap
  double softcap = 0;                ///< scores s become cap * tanh(s / cap), before the mask; 0: no cap
  bool many_lengths = false;         ///< calls have many lengths, so no kernel is used that is compiled for one length

  double scale_for(int64_t head_dim) const { return scale.value_or(1 / std::sqrt(static_cast<double>(head_dim))); }
};

/// Queries of a tile of attention in single operations (eager_attention.hpp).
constexpr int64_t attention_tile = 128;

}  // namespace runner
