#include "strategies/collective/shm_channel.hpp"

#include <algorithm>
#include <cstring>

namespace runner {

class ShmChannel::Transfer : public c10d::Work {
 public:
  Transfer(at::Tensor tensor, const Operation& message) : tensor_(std::move(tensor)), message_(message) {}

  void synchronize() override {}

  /// Wakes those that wait for the transfer. They may then end the channel.
  void end(std::exception_ptr error) { finish(std::move(error)); }

  void move(SegmentGroup& group) {
    group.announce(message_);
    auto* data = static_cast<std::byte*>(tensor_.data_ptr());
    size_t total = tensor_.nbytes(), done = 0;
    do {
      size_t count = std::min(shm_chunk_bytes, total - done);
      if (group.rank() == 0) {
        std::memcpy(group.free_chunk(message_), data + done, count);
        group.pass_on();
      } else {
        std::memcpy(data + done, group.filled_chunk(message_), count);
        group.give_back();
      }
      done += count;
    } while (done < total);
    tensor_.reset();  // a tensor belongs to its rank alone when the transfer has ended
  }

 private:
  at::Tensor tensor_;
  Operation message_;
};

ShmChannel::ShmChannel(SegmentGroup& group) : group_(group), thread_([this] { run(); }) {}

ShmChannel::~ShmChannel() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (!queue_.empty()) group_.abort();
  }
  wake_.notify_one();
  thread_.join();
}

c10::intrusive_ptr<c10d::Work> ShmChannel::start(const at::Tensor& tensor, const Operation& message) {
  auto transfer = c10::make_intrusive<Transfer>(tensor, message);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(transfer);
  }
  wake_.notify_one();
  return transfer;
}

void ShmChannel::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto transfer = queue_.front();
    lock.unlock();
    std::exception_ptr error;
    try {
      transfer->move(group_);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    queue_.pop_front();
    lock.unlock();
    transfer->end(error);
    transfer.reset();
    lock.lock();
  }
}

}  // namespace runner
