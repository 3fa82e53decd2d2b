// Rounding up of whole numbers.
#pragma once
#include <cstdint>

namespace runner {

/// The smallest multiple of `multiple` that is not below `value`; value >= 0, multiple > 0.
constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace runner
