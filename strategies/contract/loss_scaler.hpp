// The dynamic loss scale of 16-mixed: halved when gradients overflow, doubled after a number of steps without overflow.
// Source: Micikevicius et al., Mixed Precision Training (2018), section 3.2. The defaults are those of torch.amp.GradScaler.
// Hysteresis and a minimum are from DeepSpeed (its runtime/fp16/loss_scaler.py).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace runner {

struct LossScalePolicy {
  double initial = 65536.0;
  bool dynamic = true;
  int64_t window = 2000;                ///< steps without overflow before the scale doubles
  int64_t hysteresis = 1;               ///< overflows since the last doubling before the scale is halved
  bool consecutive_hysteresis = false;  ///< a step without overflow resets this count of overflows
  /// An overflow at this scale is an error. The default is fp16's smallest normal number: gradients that overflow even at this
  /// scale are not finite in any case.
  double minimum = 0x1p-14;
  double maximum = 0x1p126;  ///< of ColossalAI; by default, no scale is larger in practice
  double growth = 2, backoff = 0.5;
};

class LossScaler {
 public:
  explicit LossScaler(bool enabled, LossScalePolicy policy = {})
      : enabled_(enabled), policy_(policy), scale_(enabled ? policy.initial : 1.0), patience_(policy.hysteresis) {}
  bool enabled() const { return enabled_; }
  double scale() const { return scale_; }
  /// Whether an overflow lowers the scale, so that a later step has none. A fixed scale never changes.
  bool adapts() const { return enabled_ && policy_.dynamic; }
  /// Whether the scale is at its minimum, so that the next overflow cannot lower it.
  bool at_floor() const { return adapts() && patience_ <= 1 && scale_ <= policy_.minimum; }

  /// Call this after each step. `finite`: its gradients were finite; equal on all ranks, so the scale is equal too.
  void update(bool finite) {
    if (!adapts()) return;
    if (!finite) {
      good_steps_ = 0;
      if (patience_ > 1)
        --patience_;
      else
        scale_ = std::max(scale_ * policy_.backoff, policy_.minimum);
      return;
    }
    if (policy_.consecutive_hysteresis) patience_ = policy_.hysteresis;
    if (++good_steps_ < policy_.window) return;
    good_steps_ = 0;
    patience_ = policy_.hysteresis;
    scale_ = std::min(scale_ * policy_.growth, policy_.maximum);
  }

  nlohmann::json state() const {
    return {{"enabled", enabled_}, {"scale", scale_}, {"good_steps", good_steps_}, {"patience", patience_}};
  }
  /// Ignores the state of a run whose precision used no loss scale; the scale then stays at its initial value.
  void load(const nlohmann::json& state) {
    bool had_scale = state.value("enabled", state.at("scale") != 1.0);  // older checkpoints do not have "enabled"
    if (!adapts() || !had_scale) return;
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
