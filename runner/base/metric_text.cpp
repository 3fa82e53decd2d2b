#include "runner/base/metric_text.hpp"

#include <fmt/format.h>

#include <cmath>

#include "runner/base/text.hpp"

namespace runner {

std::string metric_text(double value) {
  if (!std::isfinite(value)) return nonfinite_word(value);
  const double size = std::abs(value);
  return size == 0 || (size >= 1e-3 && size < 1e5) ? fmt::format("{:.4f}", value) : fmt::format("{:.3e}", value);
}

std::string exact_metric_text(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : nonfinite_word(value);
}

}  // namespace runner
