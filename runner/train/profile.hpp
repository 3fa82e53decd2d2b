// The profile of one rank's training (run.profiler): the time of each part of a step, and a trace of some steps.
#pragma once
#include <filesystem>
#include <memory>

#include "runner/base/span_recorder.hpp"
#include "runner/config/recipe.hpp"
#include "runner/launch/events.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

/// LibTorch's own operators, and the kernels of a device, as events of a trace. They come from LibTorch's profiler.
class OperatorTrace {
 public:
  struct Event {
    std::string name;
    std::string track;           ///< the thread or the device's stream
    int64_t begin, nanoseconds;  ///< begin: Unix time in nanoseconds
    std::string shapes;          ///< of the inputs: "[8, 128] [128, 64]"
  };

  /// `device`: also the kernels of a device that has its own activities in LibTorch's profiler.
  explicit OperatorTrace(bool device) : device_(device) {}
  ~OperatorTrace();
  /// Begins to record what the calling thread and the autograd threads execute.
  void start();
  /// Ends it, and adds what was recorded to events(). Does nothing if it was not started.
  void stop();
  const std::vector<Event>& events() const { return events_; }

 private:
  bool device_, running_ = false;
  std::vector<Event> events_;
};

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
  /// The share of the steps that this rank spends in transfers between stages of a pipeline; nullopt without a
  /// pipeline. A receive waits for its message, and a send for the message before it to be taken.
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
