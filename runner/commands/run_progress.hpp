// Shows a run on the screen while it goes on.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/logging/run_listener.hpp"
#include "runner/report/progress.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

class RunProgress final : public RunListener {
 public:
  /// `places`: where people find the metrics in addition to the ledger. Called when an attempt begins.
  RunProgress(const Recipe& recipe, const Plan& plan, std::function<std::vector<std::string>()> places);
  /// A new plan, before its attempt begins.
  void replan(const Plan& plan);

  std::string title() const override { return "the progress display"; }
  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override;
  void event(const std::string& kind, const nlohmann::json& fields) override;
  void tick() override {
    if (progress_) progress_->tick();
  }
  /// Closes the display.
  void end(const RunEnd&) override { progress_.reset(); }

 private:
  void show_step(const PointGroup& group);
  void show_validation(const PointGroup& group);
  void ready(const nlohmann::json& fields);

  Progress::Options options_;
  bool kept_;  ///< the run's folder is kept
  int64_t world_size_;
  std::string unit_;        ///< of what the model is trained on
  int64_t confirms_bytes_;  ///< predicted memory, to be printed with the measured memory of a step; 0 = print nothing
  std::function<std::vector<std::string>()> places_;
  std::unique_ptr<Progress> progress_;
  int ready_ = 0;
  bool skipped_ = false;  ///< a step was skipped, and the screen says so
};

}  // namespace runner
