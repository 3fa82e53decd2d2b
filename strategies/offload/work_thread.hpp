// A thread that executes lists of tasks, one after another. Its owner can wait for each task.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace runner {

/// Used by one thread at a time. Results of a piece may be read after waiting for it.
class WorkThread {
 public:
  using Piece = std::function<void()>;

  /// `at_start` runs first in the new thread. `label` names the thread's owner in messages.
  explicit WorkThread(std::string label, Piece at_start = {});
  /// Waits for the running piece. Later pieces, and an unreported error, are dropped.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  /// Starts to execute the pieces in order, and destroys each as soon as it has ended. Waits for the previous list first. Throws
  /// what wait_all() throws, and Error(environment) if no thread can be started.
  void start(std::vector<Piece> pieces);
  /// Waits for piece `index` of the last list; returns at once if there was no list. If that piece or an earlier one threw an
  /// exception, every call throws it again. The later pieces are dropped then, and no further list is accepted.
  void wait(size_t index);
  /// Waits for the whole list, as wait() for a piece.
  void wait_all();

 private:
  void start_thread();
  void work();

  const std::string label_;
  const Piece at_start_;
  std::mutex mutex_;
  std::condition_variable work_came_, piece_ended_;
  std::vector<Piece> pieces_;  ///< the last list; finished pieces are empty
  size_t ended_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace runner
