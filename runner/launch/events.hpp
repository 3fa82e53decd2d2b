// The event protocol, worker -> supervisor: one JSON object a line on the pipe whose descriptor is in RUNNER_EVENT_FD.
//
// Every event has {"event": kind, "rank": r, "time": unix seconds}. Kinds and their further fields:
//   ready       {pid, device, threads, steps}                            every rank, once its model is built
//   resumed     {step, bytes_read}                                       every rank, once its state is loaded
//   step        {step, epoch, loss, lr, grad_norm, tokens, seconds, data_wait_s, memory_bytes, skipped}   global rank 0
//   validation  {step, loss, tokens, seconds}                            global rank 0
//   checkpoint  {step, path, seconds, bytes}                             global rank 0, once published
//   metrics     {step, values: {name: number}}                           global rank 0: what hooks log
//   artifact    {step, path}                                             global rank 0: a file that a hook asked for
//   sample      {step, text or tokens}                                   global rank 0: what a hook had generated
//   memory      {peak_bytes, rss_peak_bytes}                             every rank, at the end
//   note        {message}                                                anything a person should read
//   stopping    {step, reason}                                           global rank 0: a stop was agreed on
//   failed      {kind, message}                                          any rank
//   finished    {step, final_loss, tokens, train_seconds, time_to_first_step_s}      global rank 0
//   settle      {}                                                       global rank 0: waits for an answer
//
// `settle` is answered through the eventfd RUNNER_SETTLED_FD once the events before it are in the ledger and survive a
// power failure. A checkpoint is published only then, so a run that goes on from it misses nothing that came before.
// What training makes again when it goes on from an earlier checkpoint (artifact, sample, notes of hooks) has `saved`:
// the step of the newest snapshot at that time, 0 without one. Such records are dropped when a run goes on from a
// snapshot of that step or an earlier one.
//
// failed.kind is error, usage, environment, nonfinite, oom, collective (noticed that a peer has gone) or crash.
// ready.steps is how many the recipe asks for in all, absent where only time ends the run. resumed.bytes_read are those
// of the checkpoint's files. time_to_first_step_s counts from the worker's start.
//
// How numbers that are not finite and text that is not UTF-8 travel: lines.hpp.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runner/launch/lines.hpp"

namespace runner {

/// The worker's end of the pipe. Never blocks the training thread: lines go through a queue and a writer thread; a pipe
/// whose reader has gone is ignored. Without RUNNER_EVENT_FD events are dropped. emit and flush may be called from any
/// thread.
class EventSink {
 public:
  /// Reads RUNNER_EVENT_FD. `rank` is put into every event.
  explicit EventSink(int rank);
  /// Writes to `fd`, which stays the caller's; -1 drops everything.
  EventSink(int rank, int fd);
  ~EventSink();  ///< flushes
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  /// `fields` is an object. Its "event", "rank" and "time", if any, are replaced.
  void emit(const std::string& kind, nlohmann::json fields = nlohmann::json::object());
  /// The same of what may wait a tenth of a second, or until the next emit(): wakes nobody, and the writer thread calls
  /// `fields`.
  void emit_soon(const std::string& kind, std::function<nlohmann::json()> fields);
  /// emit() of what training makes again after a resume: adds `saved`.
  void record(const std::string& kind, nlohmann::json fields);
  /// From now on, what record() gets came after the snapshot of `step`.
  void snapshot_taken(int64_t step);
  /// Waits until everything emitted so far is in the pipe or the reader is gone (used before _exit).
  void flush();
  /// Waits until the supervisor has everything emitted so far in the ledger, safe from a power failure. Returns at once
  /// where no supervisor listens. When the supervisor dies, this does not return: the kernel kills the worker.
  void settle();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The supervisor's end: bytes in, events out. Whatever is not an event (not
/// JSON, no "event", longer than a line may be) becomes a note that quotes it. The rank is the pipe's, whatever the
/// line says.
class EventReader {
 public:
  explicit EventReader(int rank) : rank_(rank) {}
  std::vector<nlohmann::json> feed(std::string_view bytes);
  /// At the end of the pipe: what a worker that died in the middle of a line left.
  std::vector<nlohmann::json> finish();

 private:
  nlohmann::json parse(std::string_view line) const;
  int rank_;
  LineReader lines_;
};

}  // namespace runner
