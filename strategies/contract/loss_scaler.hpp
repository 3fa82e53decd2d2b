// The dynamic loss scale of 16-mixed: halved when gradients overflow, doubled after a run of good steps.
// Source: Micikevicius et al., Mixed Precision Training (2018), section 3.2. The defaults are torch.amp.GradScaler's;
// DeepSpeed's law adds hysteresis and a floor (its runtime/fp16/loss_scaler.py).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace runner {

struct LossScalePolicy {
  double initial = 65536.0;
  bool dynamic = true;
  int64_t window = 2000;                ///< good steps before the scale doubles
  int64_t hysteresis = 1;               ///< overflows since the last doubling that it takes to halve the scale
  bool consecutive_hysteresis = false;  ///< a good step makes up for all overflows before it
  /// An overflow here is an error: gradients that overflow at fp16's smallest normal number are not finite at all.
  double minimum = 0x1p-14;
};

class LossScaler {
 public:
  explicit LossScaler(bool enabled, LossScalePolicy policy = {})
      : enabled_(enabled), policy_(policy), scale_(enabled ? policy.initial : 1.0), patience_(policy.hysteresis) {}
  bool enabled() const { return enabled_; }
  double scale() const { return scale_; }
  /// Whether the next overflow could not lower the scale.
  bool at_floor() const { return enabled_ && policy_.dynamic && patience_ <= 1 && scale_ <= policy_.minimum; }

  /// After each step, with whether its gradients were finite. Equal on all ranks because `finite` is.
  void update(bool finite) {
    if (!enabled_ || !policy_.dynamic) return;
    if (!finite) {
      good_steps_ = 0;
      if (patience_ > 1)
        --patience_;
      else
        scale_ = std::max(scale_ * 0.5, policy_.minimum);
      return;
    }
    if (policy_.consecutive_hysteresis) patience_ = policy_.hysteresis;
    if (++good_steps_ < policy_.window) return;
    good_steps_ = 0;
    patience_ = policy_.hysteresis;
    scale_ *= 2.0;
  }

  nlohmann::json state() const {
    return {{"enabled", enabled_}, {"scale", scale_}, {"good_steps", good_steps_}, {"patience", patience_}};
  }
  /// A run of another precision has had no scale of its own: this one begins at its first.
  void load(const nlohmann::json& state) {
    bool had_scale = state.value("enabled", state.at("scale") != 1.0);  // older checkpoints do not have "enabled"
    if (!enabled_ || !policy_.dynamic || !had_scale) return;
    scale_ = std::max(state.at("scale").get<double>(), policy_.minimum);
    good_steps_ = state.at("good_steps");
    patience_ = std::clamp(state.value("patience", policy_.hysteresis), int64_t{1}, policy_.hysteresis);
  }

 private:
  bool enabled_;
  LossScalePolicy policy_;
  double scale_;
  int64_t good_steps_ = 0;
  int64_t patience_;
};

}  // namespace runner
