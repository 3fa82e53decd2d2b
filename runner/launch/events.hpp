// The event protocol, worker -> supervisor: one JSON object a line on the pipe whose descriptor is in RUNNER_EVENT_FD.
//
// Every event has {"event": kind, "rank": r, "time": unix seconds}. Kinds and their further fields:
//   ready       {pid, device, threads}                                   every rank, once its model is built
//   step        {step, epoch, loss, lr, grad_norm, tokens, seconds, data_wait_s, memory_bytes, skipped}   global rank 0
//   validation  {step, loss, tokens, seconds}                            global rank 0
//   checkpoint  {step, path, seconds, bytes}                             global rank 0, once published
//   memory      {peak_bytes, rss_peak_bytes}                             every rank, at the end
//   note        {message}                                                anything a person should read
//   stopping    {step, reason}                                           global rank 0: a stop was agreed on
//   failed      {kind, message}                                          any rank; kind: error | usage | environment | nonfinite | oom | collective | crash
//   finished    {step, final_loss, tokens, train_seconds, time_to_first_step_s (since worker start)}      global rank 0
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// The worker's end of the pipe. Never blocks the training thread: lines go through a queue and a writer thread; a pipe whose
/// reader has gone is noticed (see supervisor_gone) and otherwise ignored. Without RUNNER_EVENT_FD events are dropped.
class EventSink {
 public:
  /// Reads RUNNER_EVENT_FD. `rank` is put into every event.
  explicit EventSink(int rank);
  ~EventSink();  ///< flushes
  void emit(const std::string& kind, nlohmann::json fields = nlohmann::json::object());
  /// Waits until everything emitted so far is in the pipe (used before _exit).
  void flush();

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace runner
