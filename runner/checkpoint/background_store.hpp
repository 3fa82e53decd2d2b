// Stores the checkpoints of a run on a thread of its own, so that training and the supervisor do not wait.
#pragma once
#include <condition_variable>
#include <thread>

#include "runner/checkpoint/checkpoint_store.hpp"

namespace runner {

class BackgroundStore {
 public:
  /// `stop_on_error`: a failure ends the run (checkpoint.on_error).
  BackgroundStore(std::shared_ptr<CheckpointStore> store, bool stop_on_error);
  /// Waits a second for a call of the plug-in that has not ended. If it has not ended then, the process will exit without it.
  ~BackgroundStore();
  BackgroundStore(const BackgroundStore&) = delete;

  CheckpointStore& store() { return *store_; }
  /// Stores what is missing now. Returns at once. If it stores already, it looks again when it has ended.
  void begin(const Retention& rule);
  /// Calls `done` when nothing is left of what begin() has asked for until now, at once or on the thread.
  void when_idle(std::function<void()> done);
  /// The checkpoint that is stored now, or a text without a name; nothing: no call is left.
  std::optional<std::string> busy() const;
  /// No further checkpoint is stored, after the one whose storing has begun.
  void give_up();

  /// Messages for the user since the last call.
  std::vector<std::string> take_notes();
  /// Throws Error(environment) if a call has failed and stop_on_error is set.
  void check() const;
  /// Why the newest checkpoint of the folder could not be stored; empty: it is stored, or nothing was asked for. For the end, when busy()
  /// has nothing.
  std::string missing() const;

 private:
  struct Shared;
  std::shared_ptr<CheckpointStore> store_;
  std::shared_ptr<Shared> shared_;  ///< also of the thread, which may live longer
  std::thread thread_;
};

}  // namespace runner
