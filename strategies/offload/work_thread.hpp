// A thread that executes lists of tasks, one after another. Its owner can wait for each task.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/error.hpp"

namespace runner {

/// Used by one thread at a time. Results of a piece may be read after waiting for it.
class WorkThread {
 public:
  using Piece = std::function<void()>;

  /// `at_start` runs first in the new thread. `label` names the thread's owner in messages.
  explicit WorkThread(std::string label, Piece at_start = {})
      : label_(std::move(label)), at_start_(std::move(at_start)) {}
  /// Waits for the running piece. Later pieces, and an unreported error, are dropped.
  ~WorkThread() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_came_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  /// Starts to execute the pieces in order, and destroys each as soon as it has ended. Waits for the previous list first. Throws
  /// what wait_all() throws, and Error(environment) if no thread can be started.
  void start(std::vector<Piece> pieces) {
    wait_all();
    {
      std::lock_guard lock(mutex_);
      pieces_ = std::move(pieces);
      ended_ = 0;
    }
    if (!thread_.joinable()) start_thread();
    work_came_.notify_all();
  }

  /// Waits for piece `index` of the last list; returns at once if there was no list. If that piece or an earlier one threw an
  /// exception, every call throws it again. The later pieces are dropped then, and no further list is accepted.
  void wait(size_t index) {
    std::unique_lock lock(mutex_);
    RUNNER_CHECK(index < pieces_.size() || pieces_.empty(), "piece {} of {}", index, pieces_.size());
    if (pieces_.empty()) return;
    piece_ended_.wait(lock, [&] { return error_ || ended_ > index; });
    if (ended_ <= index) std::rethrow_exception(error_);
  }

  /// Waits for the whole list, as wait() for a piece.
  void wait_all() {
    std::unique_lock lock(mutex_);
    piece_ended_.wait(lock, [&] { return error_ || ended_ == pieces_.size(); });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void start_thread() {
    BlockedSignals blocked;
    try {
      thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      std::lock_guard lock(mutex_);
      pieces_.clear();
      throw environment_error("cannot start a thread for {}: {}", label_, error.what());
    }
  }

  void work() {
    if (at_start_) at_start_();
    std::unique_lock lock(mutex_);
    while (true) {
      work_came_.wait(lock, [&] { return stopping_ || (!error_ && ended_ < pieces_.size()); });
      if (stopping_) return;
      Piece piece = std::exchange(pieces_[ended_], nullptr);
      lock.unlock();
      std::exception_ptr error;
      try {
        piece();
      } catch (...) {
        error = std::current_exception();
      }
      piece = nullptr;
      lock.lock();
      if (!error) {
        ++ended_;
      } else {
        auto dropped = std::exchange(pieces_, std::vector<Piece>(pieces_.size()));
        lock.unlock();
        dropped.clear();
        lock.lock();
        error_ = error;
      }
      piece_ended_.notify_all();
    }
  }

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
