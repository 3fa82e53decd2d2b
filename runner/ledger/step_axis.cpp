#include "runner/ledger/step_axis.hpp"

#include <cmath>

namespace runner {

StepAxis::StepAxis(std::function<std::optional<Point>()> next) : next_(std::move(next)) { advance(); }

void StepAxis::advance() {
  do after_ = next_();
  while (after_ && !std::isfinite(after_->second));
}

std::optional<double> StepAxis::at(int64_t step) {
  while (after_ && after_->first <= step) {
    before_ = after_;
    advance();
  }
  if (!before_) return {};
  if (before_->first == step) return before_->second;
  if (!after_) return {};
  const auto begin = static_cast<double>(before_->first), passed = static_cast<double>(step) - begin,
             all = static_cast<double>(after_->first) - begin;
  return before_->second + (after_->second - before_->second) * passed / all;  // exact for whole numbers
}

}  // namespace runner
