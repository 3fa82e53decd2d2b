// Autocast for tests that run blocks without a strategy.
#pragma once
#include <ATen/autocast_mode.h>

#include "strategies/collective/libtorch.hpp"

namespace runner::testing {

/// Parameters in fp32 and products in bfloat16, as the executor does for mixed precision.
class MixedPrecision {
 public:
  explicit MixedPrecision(bool on = true) : on_(on) {
    if (!on_) return;
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~MixedPrecision() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;

 private:
  bool on_;
};

}  // namespace runner::testing
