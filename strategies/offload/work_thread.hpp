// A thread that works off one list of pieces after another, each piece of which its owner can wait for.
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

/// Used by one thread at a time. What a piece has written can be read once it has been waited for.
class WorkThread {
 public:
  using Piece = std::function<void()>;

  /// `at_start` runs in the thread before all else. `label` is whose thread it is, in messages.
  explicit WorkThread(std::string label, Piece at_start = {});
  /// The piece at work ends first; those behind it are dropped, and so is an error.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  /// Begins to work the pieces off in order, and destroys each as soon as it has ended. Waits for the list before.
  /// Throws what wait_all() throws, and Error(environment) where no thread can be started.
  void start(std::vector<Piece> pieces);
  /// Piece `index` of the last list has ended when it returns; there may have been no list. Throws, every time, what
  /// that piece has thrown, or one before it: the pieces behind it are dropped, and no list is taken any more.
  void wait(size_t index);
  /// The same for the whole list.
  void wait_all();

 private:
  void start_thread();
  void work();

  const std::string label_;
  const Piece at_start_;
  std::mutex mutex_;
  std::condition_variable work_came_, piece_ended_;
  std::vector<Piece> pieces_;  ///< the last list; those that have ended are empty
  size_t ended_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace runner
