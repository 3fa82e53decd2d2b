// The dynamic loss scale of 16-mixed: halved when gradients overflow, doubled after a run of good steps.
// Source: Micikevicius et al., Mixed Precision Training (2018), section 3.2; constants of torch.amp.GradScaler.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>

namespace runner {

class LossScaler {
 public:
  explicit LossScaler(bool enabled) : enabled_(enabled), scale_(enabled ? 65536.0 : 1.0) {}
  bool enabled() const { return enabled_; }
  double scale() const { return scale_; }
  /// After each step, with whether its gradients were finite. Equal on all ranks because `finite` is.
  void update(bool finite) {
    if (!enabled_) return;
    if (!finite) {
      scale_ *= 0.5;
      good_steps_ = 0;
    } else if (++good_steps_ == growth_interval) {
      scale_ *= 2.0;
      good_steps_ = 0;
    }
  }
  nlohmann::json state() const { return {{"scale", scale_}, {"good_steps", good_steps_}}; }
  void load(const nlohmann::json& state) {
    if (!enabled_) return;
    scale_ = state.at("scale");
    good_steps_ = state.at("good_steps");
  }

 private:
  static constexpr int64_t growth_interval = 2000;
  bool enabled_;
  double scale_;
  int64_t good_steps_ = 0;
};

}  // namespace runner
