// Recognises losses that are far above those of the steps before.
#pragma once
#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace runner {

/// Compares with the median of the last steps, in units of 1.4826 times the median absolute deviation from it, which is the standard
/// deviation of normal noise and is not changed by a few large values (Hampel, "The influence curve and its role in robust estimation",
/// 1974). A spike also has to be a tenth above the median, because losses may hardly vary. While the loss stays up, the spike is
/// reported once.
class LossWatch {
 public:
  /// `deviations`: 0 turns it off. `window`: steps.
  LossWatch(double deviations, int64_t window) : deviations_(deviations), window_(window) {}

  struct Spike {
    double expected = 0;    ///< the median
    double deviations = 0;  ///< above it
  };
  /// Takes the loss of the next step. NaN and infinities are ignored.
  std::optional<Spike> take(double loss);

  /// The window, for checkpoints.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  double deviations_;
  int64_t window_;
  std::deque<double> losses_;
  bool up_ = false;  ///< the last loss was far above
};

}  // namespace runner
