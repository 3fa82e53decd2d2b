// The profile of one rank's training (run.profiler): the time of each part of a step, and a trace of some steps.
#pragma once
#include <filesystem>
#include <memory>

#include "runner/base/span_recorder.hpp"
#include "runner/config/recipe.hpp"
#include "runner/launch/events.hpp"
#include "runner/train/operator_trace.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

class Profile {
 public:
  /// Null if run.profiler = "off".
  static std::unique_ptr<Profile> make(const Recipe& recipe, const World& world, const std::filesystem::path& run_dir);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  SpanRecorder& spans() { return spans_; }
  /// Call it before the span of each step.
  void step_begins(int64_t step);
  /// Writes the trace if that was not done, and emits the totals ("profile", rank 0) and the trace's file ("trace").
  void finish(EventSink& events);

 private:
  Profile(const Recipe& recipe, const World& world, const std::filesystem::path& run_dir);
  bool records(int64_t step) const;
  void write_trace();
  nlohmann::json totals() const;
  /// The share of the steps that this rank spends in transfers between stages of a pipeline; nullopt without a pipeline. A receive waits for
  /// its message, and a send for the message before it to be taken.
  std::optional<double> share_of_transfers() const;

  const World& world_;
  std::filesystem::path trace_file_;  ///< empty: no trace
  std::vector<int64_t> wanted_;       ///< steps of the trace; empty: the third and the fourth of this attempt
  OperatorTrace operators_;
  SpanRecorder spans_;
  std::vector<int64_t> recorded_;
  int64_t first_step_ = 0;          ///< of this attempt
  int64_t counted_ = 0, last_ = 0;  ///< the totals are of steps counted_ to last_
  bool recording_ = false, written_ = false;
};

}  // namespace runner
