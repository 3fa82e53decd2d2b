// The event protocol from worker to supervisor: one JSON object per line, on the pipe whose descriptor is
// RUNNER_EVENT_FD.
//
// Every event has {"event": kind, "rank": r, "time": unix seconds}. Kinds, their senders and their further fields:
//   ready        every rank, once its model is built     {pid, device, threads, steps}
//   resumed      every rank, once its state is loaded    {step, bytes_read}
//   first_step   global rank 0: the attempt's first      {step}; not recorded
//   step         global rank 0: a logged step            {step, epoch, epochs, loss, lr, grad_norm, tokens, trained,
//                                                         seconds, train_seconds, data_wait_s, memory_bytes, skipped}
//   skipped      global rank 0: on_nonfinite = "skip"    {step, total, message, saved}
//   nonfinite    global rank 0: a loss or a gradient     {step, message, value, grad_norm, epoch, first, rows, samples,
//                                                         saved}
//   loss_spike   global rank 0                           {step, message, value, expected, deviations, epoch, first, rows,
//                                                         samples, saved}
//   stall        global rank 0: a step does not end      {step, message, value, expected, epoch, first, rows, samples}
//   validation   global rank 0                           {step, loss, tokens, seconds}
//   checkpoint   global rank 0, once published           {step, path, seconds, bytes}
//   metrics      global rank 0: metrics that hooks log   {step, values: {name: number}, at_end}
//   artifact     global rank 0: a file for a hook        {step, path, saved}
//   sample       global rank 0: text for a hook          {step, prompt, text or tokens, saved}
//   note         any rank: a message for the user        {message, saved}
//   hook         global rank 0, when training has ended  {hook, seconds, calls: {function: number}}, one for each hook
//   printed      global rank 0: a hook's print()         {text}; not recorded
//   stopping     global rank 0: the run ends early       {step, reason, saved}
//   profile      global rank 0: run.profiler             {first_step, last_step, step_seconds, phases: {name: seconds},
//                                                         outside: {name: {times, seconds}}, blocks: [{name,
//                                                         forward_seconds, backward_seconds}], collectives: [{name, of,
//                                                         bytes, seconds}]}; seconds and bytes are those of a mean step
//   pipeline     every rank of one: run.profiler         {wait_share}, the share of a step that the rank spends in
//                                                         transfers between stages, where it waits for other ranks
//   trace        every rank: its trace is written        {path, steps}
//   memory       every rank, after training              {peak_bytes, rss_peak_bytes, lost_share}
//   finished     global rank 0                           {step, final_loss, tokens, skipped_steps, train_seconds}
//   failed       any rank                                {kind, message}
//   settle       global rank 0: waits for an answer      {}
//   calibration  global rank 0: `--calibrate`            {what, ...}
//
// step.trained is the number of tokens (or samples) of all steps so far, and step.train_seconds the time of training of all attempts so
// far. `samples` of the signs of trouble are those of the step, at most 1,024: samples `first` to first + rows - 1 in the order of the
// epoch. nonfinite is sent for the 1st, 2nd, 4th ... skipped step; that of a validation has no samples.
//
// ready.steps is the total number of steps, absent if only time ends the run. resumed.bytes_read counts bytes of the
// checkpoint's files. skipped.total is the number of all skipped steps; the event is sent if it is a power of two.
// metrics.at_end is true after the last step, otherwise absent. memory.lost_share is the share of the training's time
// that other programs took (base/contention.hpp).
// failed.kind is error, usage, environment, nonfinite, oom or collective (another rank has ended).
// calibration.what is product, copy, collective or step, with the fields that train/calibrate.cpp gives each; the last
// is verdict with `disturbed`, the reason why the others cannot be used, "" without one.
//
// The supervisor answers `settle` through the eventfd RUNNER_SETTLED_FD when all earlier events are in the ledger and
// would survive a power failure. Only then is a checkpoint published, so the record of the steps before it is complete.
//
// Training produces some records again when it continues from an earlier checkpoint. They have a field `saved`: the
// step of the newest snapshot at that time, 0 without one, STEP - 0.5 while a resumed run completes STEP. The ledger
// deletes them when the run continues from that snapshot or an earlier one. Notes have it if a hook caused them,
// `stopping` if a hook stopped the run.
//
// lines.hpp describes the encoding of non-finite numbers and of text that is not UTF-8.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runner/launch/lines.hpp"

namespace runner {

/// The worker's end of the pipe. A queue and a writer thread keep emit() from blocking the training thread. Events are
/// dropped if the reader has ended or RUNNER_EVENT_FD is not set. emit and flush may be called from any thread.
class EventSink {
 public:
  /// Uses RUNNER_EVENT_FD. `rank` is added to every event.
  explicit EventSink(int rank);
  /// Writes to `fd`, which the caller owns; -1 drops all events.
  EventSink(int rank, int fd);
  /// For another rank that is a thread of this process: writes to the pipe of `first`.
  EventSink(int rank, const EventSink& first);
  ~EventSink();  ///< the last sink of a pipe flushes
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  /// `fields` is an object. Its entries "event", "rank" and "time" are replaced.
  void emit(const std::string& kind, nlohmann::json fields = nlohmann::json::object());
  /// Like emit(), for events that may wait 0.1 s or until the next emit(). Does not wake the writer thread, which calls
  /// `fields`.
  void emit_soon(const std::string& kind, std::function<nlohmann::json()> fields);
  /// Like emit(), for records that training produces again after a resume: adds `saved`.
  void record(const std::string& kind, nlohmann::json fields);
  /// Sets `saved` for later calls of record().
  void snapshot_taken(double step);
  /// Waits until everything emitted so far is in the pipe, or the reader has ended (called before _exit).
  void flush();
  /// Waits until the supervisor has committed everything emitted so far to the ledger, so that it survives a power
  /// failure. Returns at once without a supervisor. Does not return if the supervisor dies: the kernel then kills the
  /// worker.
  void settle();

 private:
  struct Impl;
  int rank_;
  std::atomic<double> saved_{0};
  std::shared_ptr<Impl> impl_;
};

/// The supervisor's end of the pipe: converts bytes to events. A line that is not an event (not JSON, without "event",
/// or too long) becomes a note that quotes it. The field "rank" is kept if it is one of the worker's ranks; otherwise it
/// becomes the first of them.
class EventReader {
 public:
  explicit EventReader(int first_rank, int ranks = 1) : rank_(first_rank), ranks_(ranks) {}
  std::vector<nlohmann::json> feed(std::string_view bytes);
  /// Called at the end of the pipe. Returns the incomplete line, as a note, if the worker died while it wrote one.
  std::vector<nlohmann::json> finish();

 private:
  nlohmann::json parse(std::string_view line) const;
  int rank_, ranks_;
  LineReader lines_;
};

// Which events are signs of trouble.

struct TroubleKind {
  std::string_view kind;
  bool is_alert = false;    ///< `logging.notify` tells those who want alerts
  bool is_warning = false;  ///< the terminal warns at once; other output tells of the others
};

/// `runner show` and the web page always show them. events.hpp describes them; the supervisor itself records:
///   restart      before another attempt of the same command    {attempt, why}
///   undelivered  a notification, or points for a server        {message}
inline constexpr std::array<TroubleKind, 7> trouble_kinds = {
    {{.kind = "nonfinite", .is_alert = true},
     {.kind = "loss_spike", .is_alert = true, .is_warning = true},
     {.kind = "stall", .is_alert = true, .is_warning = true},
     {.kind = "restart", .is_alert = true},
     {.kind = "skipped"},
     {.kind = "failed"},
     {.kind = "undelivered"}}};

/// Null for an event that is no sign of trouble.
inline const TroubleKind* find_trouble(std::string_view kind) {
  const auto* found = std::ranges::find(trouble_kinds, kind, &TroubleKind::kind);
  return found != trouble_kinds.end() ? found : nullptr;
}

}  // namespace runner
