// Times what a rank does, as named spans that nest: totals of steps for a table, and single spans for a trace. Torch-free.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace runner {

/// The activity in a span of time. A span of a step contains the others of that step. Validation and checkpoints are not parts of a
/// step, and what they contain is theirs.
enum class Phase : uint8_t {
  step,
  data,
  forward,
  backward,
  collective,
  update,
  program,
  hooks,
  validation,
  checkpoint
};
/// "forward".
const char* name_of(Phase phase);

/// The name of a span. `what` must have static storage duration.
struct SpanName {
  Phase phase = Phase::step;
  const char* what = "";
  int32_t block = -1, unit = -1;  ///< of the model and of the plan; -1: not about one
  bool operator<(const SpanName& other) const {
    return std::tie(phase, block, unit, what) < std::tie(other.phase, other.block, other.unit, other.what);
  }
};

/// Threads may use it at the same time. Spans of one thread nest.
class SpanRecorder {
 public:
  struct Total {
    int64_t spans = 0;
    int64_t nanoseconds = 0;      ///< of the spans
    int64_t own_nanoseconds = 0;  ///< without the spans inside them
    int64_t bytes = 0;            ///< of the collectives that were called in them
  };
  struct Span {
    SpanName name;
    size_t thread;               ///< in the order in which threads began their first span
    int64_t begin, nanoseconds;  ///< begin: of std::chrono::steady_clock
    std::string collective;      ///< kinds of the collectives that were called in it: "all_gather"; empty: none
    int64_t bytes;
    int64_t step;
  };

  /// `wait`: called before the end of a span of computation and of a wait for a collective. On a device with streams it waits for
  /// the device, because otherwise the span would end before its work does. Empty: the host does the work itself.
  explicit SpanRecorder(std::function<void()> wait = {})
      : wait_(std::move(wait)), rank_thread_(std::this_thread::get_id()) {}

  void begin(const SpanName& name);
  /// Ends the innermost span of the calling thread.
  void end();
  /// A collective of `kind` (a string with static storage duration), called in the innermost span of the calling thread.
  void collective(const char* kind, int64_t bytes);

  /// The names of the model's blocks and of the plan's units, for place().
  void set_names(std::vector<std::string> blocks, std::vector<std::string> units);
  /// The name of the block or unit of a span; empty if it is about none.
  std::string place(const SpanName& name) const;
  /// The number of the step that later spans belong to. Call it between spans of the rank's thread.
  void set_step(int64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
  }
  /// Whether later spans are kept for spans().
  void keep_spans(bool keep) {
    const std::lock_guard lock(mutex_);
    keep_ = keep;
  }
  /// Forgets the totals so far.
  void reset_totals() {
    const std::lock_guard lock(mutex_);
    totals_.clear();
  }
  /// The totals of the rank's own thread, which made this object, in spans of steps, validation and checkpoints.
  std::map<SpanName, Total> totals() const {
    const std::lock_guard lock(mutex_);
    return totals_;
  }
  std::vector<Span> spans() const {
    const std::lock_guard lock(mutex_);
    return spans_;
  }

 private:
  struct Open {
    SpanName name;
    int64_t begin = 0, inside = 0;  ///< `inside`: nanoseconds of the spans in it
    std::string collective = {};
    int64_t bytes = 0;
  };
  struct Thread {
    size_t index = 0;
    std::vector<Open> open = {};
  };
  Thread& mine();

  std::function<void()> wait_;
  std::thread::id rank_thread_;
  mutable std::mutex mutex_;
  std::map<std::thread::id, Thread> threads_;
  std::map<SpanName, Total> totals_;
  std::vector<Span> spans_;
  std::vector<std::string> blocks_, units_;
  int64_t step_ = 0;
  bool keep_ = false;
};

/// A span from here to the end of the scope. Does nothing if `recorder` is null.
class SpanScope {
 public:
  SpanScope(SpanRecorder* recorder, const SpanName& name) : recorder_(recorder) {
    if (recorder_) recorder_->begin(name);
  }
  ~SpanScope() noexcept(false) { end(); }  ///< throws what the recorder's `wait` throws
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;
  /// Ends the span earlier.
  void end() {
    if (auto* const recorder = std::exchange(recorder_, nullptr)) recorder->end();
  }

 private:
  SpanRecorder* recorder_;
};

}  // namespace runner
