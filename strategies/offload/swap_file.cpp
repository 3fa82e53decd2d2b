#include "strategies/offload/swap_file.hpp"

#include <algorithm>
#include <system_error>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/error.hpp"
#include "runner/base/round_up.hpp"

namespace runner {

namespace {

constexpr int threads_max = 256;

SwapOptions check(SwapOptions options) {
  if (options.block_size <= 0 || options.block_size % SwapFile::alignment != 0)
    throw usage_error("block_size must be a multiple of {} bytes, not {}", SwapFile::alignment, options.block_size);
  if (options.queue_depth < 1) throw usage_error("queue_depth must be at least 1, not {}", options.queue_depth);
  if (options.thread_count < 1) throw usage_error("thread_count must be at least 1, not {}", options.thread_count);
  if (int64_t{options.queue_depth} * options.thread_count > threads_max)
    throw usage_error("thread_count x queue_depth must be at most {}, not {} x {}", threads_max, options.thread_count,
                      options.queue_depth);
  return options;
}

int64_t whole_pages(int64_t bytes) {
  RUNNER_CHECK(bytes >= 0);
  return round_up(bytes, SwapFile::alignment);
}

}  // namespace

SwapFile::SwapFile(SwapOptions options, int64_t bytes)
    : options_(check(std::move(options))),
      file_(options_.folder, whole_pages(bytes), options_.label, options_.direct) {}

SwapFile::~SwapFile() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_came_.notify_all();
  for (auto& thread : threads_) thread.join();
}

SwapFile::Ticket SwapFile::read(int64_t offset, std::span<std::byte> into, Ticket after) {
  return enter({.writes = false, .offset = offset, .data = into.data(), .size = std::ssize(into)}, after);
}

SwapFile::Ticket SwapFile::write(int64_t offset, std::span<const std::byte> from, Ticket after) {
  auto* data = const_cast<std::byte*>(from.data());
  return enter({.writes = true, .offset = offset, .data = data, .size = std::ssize(from)}, after);
}

SwapFile::Ticket SwapFile::enter(Request request, Ticket after) {
  RUNNER_CHECK(request.offset >= 0 && request.offset % alignment == 0 && request.size % alignment == 0 &&
                   reinterpret_cast<uintptr_t>(request.data) % alignment == 0,
               "{} bytes at offset {}: not aligned", request.size, request.offset);
  RUNNER_CHECK(request.size > 0 && request.offset + request.size <= bytes(), "{} bytes at offset {} of {}",
               request.size, request.offset, bytes());
  std::lock_guard lock(mutex_);
  if (threads_.empty()) start_threads();
  Request* before = nullptr;
  if (after != 0) {
    auto found = requests_.find(after);
    RUNNER_CHECK(found != requests_.end() && !found->second.follower, "request {} cannot be followed", after);
    before = &found->second;
  }
  auto& entered = requests_[++last_ticket_] = request;
  if (before && !before->done) {
    before->follower = &entered;
  } else if (before && before->error) {
    entered.error = before->error;
    finish(entered);
  } else {
    queue_.push_back(&entered);
    work_came_.notify_all();
  }
  return last_ticket_;
}

void SwapFile::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  auto found = requests_.find(ticket);
  RUNNER_CHECK(found != requests_.end(), "no request {} to wait for", ticket);
  Request& request = found->second;
  request_done_.wait(lock, [&] { return request.done; });
  auto error = request.error;
  requests_.erase(ticket);
  if (error) std::rethrow_exception(error);
}

/// Fewer threads than requested are enough.
void SwapFile::start_threads() {
  BlockedSignals blocked;
  try {
    for (int i = 0; i < options_.thread_count * options_.queue_depth; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    if (threads_.empty()) throw environment_error("cannot start a thread for {}: {}", file_.name(), error.what());
  }
}

void SwapFile::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_came_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    carry_out_piece(lock);
  }
}

std::exception_ptr SwapFile::transfer(const Request& request, int64_t begin, int64_t size) {
  try {
    if (request.writes)
      file_.write(request.offset + begin, request.data + begin, size);
    else
      file_.read(request.offset + begin, request.data + begin, size);
  } catch (...) {
    return std::current_exception();
  }
  (request.writes ? bytes_written_ : bytes_read_) += size;
  return nullptr;
}

void SwapFile::carry_out_piece(std::unique_lock<std::mutex>& lock) {
  Request& request = *queue_.front();
  auto begin = request.given, size = std::min(options_.block_size, request.size - begin);
  request.given += size;
  ++request.running;
  if (request.given == request.size) queue_.pop_front();
  lock.unlock();
  auto error = transfer(request, begin, size);
  lock.lock();
  --request.running;
  if (error) {
    if (!request.error) request.error = error;
    if (request.given < request.size) std::erase(queue_, &request);
    request.given = request.size;
  }
  if (request.running == 0 && request.given == request.size) finish(request);
}

void SwapFile::finish(Request& request) {
  request.done = true;
  request_done_.notify_all();
  if (!request.follower) return;
  if (request.error) {
    request.follower->error = request.error;
    finish(*request.follower);
  } else {
    queue_.push_back(request.follower);
    work_came_.notify_all();
  }
}

}  // namespace runner
