// Transfers over shared memory: one thread of each of two ranks moves the messages, so that the ranks go on.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/segment.hpp"

namespace runner {

/// One rank's end. The first rank of the group sends, the second one receives. Messages of any size go through the ring of the group,
/// in order.
class ShmChannel {
 public:
  explicit ShmChannel(SegmentGroup& group);
  /// Transfers that have not ended fail, on both ranks.
  ~ShmChannel();
  ShmChannel(const ShmChannel&) = delete;
  ShmChannel& operator=(const ShmChannel&) = delete;

  /// Queues a transfer from or to a contiguous CPU tensor, and returns. Both ranks give the same `message`, else the transfer fails.
  c10::intrusive_ptr<c10d::Work> start(const at::Tensor& tensor, const Operation& message);

 private:
  class Transfer;
  void run();

  SegmentGroup& group_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<c10::intrusive_ptr<Transfer>> queue_;  ///< the first one is being moved
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace runner
