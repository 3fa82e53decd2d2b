#include "strategies/offload/work_thread.hpp"

#include <system_error>
#include <utility>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/error.hpp"

namespace runner {

WorkThread::WorkThread(std::string label, Piece at_start) : label_(std::move(label)), at_start_(std::move(at_start)) {}

WorkThread::~WorkThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_came_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WorkThread::start(std::vector<Piece> pieces) {
  wait_all();
  {
    std::lock_guard lock(mutex_);
    pieces_ = std::move(pieces);
    ended_ = 0;
  }
  if (!thread_.joinable()) start_thread();
  work_came_.notify_all();
}

void WorkThread::wait(size_t index) {
  std::unique_lock lock(mutex_);
  RUNNER_CHECK(index < pieces_.size() || pieces_.empty(), "piece {} of {}", index, pieces_.size());
  if (pieces_.empty()) return;
  piece_ended_.wait(lock, [&] { return error_ || ended_ > index; });
  if (ended_ <= index) std::rethrow_exception(error_);
}

void WorkThread::wait_all() {
  std::unique_lock lock(mutex_);
  piece_ended_.wait(lock, [&] { return error_ || ended_ == pieces_.size(); });
  if (error_) std::rethrow_exception(error_);
}

void WorkThread::start_thread() {
  BlockedSignals blocked;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    std::lock_guard lock(mutex_);
    pieces_.clear();
    throw environment_error("cannot start a thread for {}: {}", label_, error.what());
  }
}

void WorkThread::work() {
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

}  // namespace runner
