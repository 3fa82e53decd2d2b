// A c10d backend for CPU ranks of one host. Collectives copy through a shared segment.
//
// Collectives run in the calling thread and return completed work. Transfers between two ranks run in a thread of their own. Memory
// traffic per rank of a collective, for a payload of n bytes among R ranks: all_reduce copies n in, reads n (its 1/R share from R
// slots), copies n out; all_gather and reduce_scatter about half of that.
// An all_reduce of up to shm_small_bytes reads R n, behind one barrier instead of two.
#pragma once
#include <condition_variable>
#include <deque>
#include <thread>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/reduction.hpp"
#include "strategies/collective/segment.hpp"

namespace runner {

/// Transfers over shared memory: one thread of each of two ranks moves the messages, so that the ranks go on.
/// A channel is one rank's end. The first rank of the group sends, the second one receives. Messages of any size go through the ring of
/// the group, in order.
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

class ShmBackend : public c10d::Backend {
 public:
  explicit ShmBackend(std::unique_ptr<SegmentGroup> group);

  const std::string getBackendName() const override { return "shm"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  /// The first rank of a group of two sends, the second one receives. Such a group has no collectives. `tag`: a number that must be the
  /// same on both ranks.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  void abort() override { group_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> alltoall_split(at::Tensor& output, at::Tensor& input,
                                                const std::vector<int64_t>& output_splits,
                                                const std::vector<int64_t>& input_splits);
  c10::intrusive_ptr<c10d::Work> transfer(const at::Tensor& tensor, int number);
  /// The next operation over `payload`, the whole tensor that it works on.
  Operation next(Collective kind, const at::Tensor& payload, int64_t root, c10d::ReduceOp::RedOpType reduction);
  /// Announces a collective.
  void begin(Collective kind, const at::Tensor& payload, int64_t root = 0,
             c10d::ReduceOp::RedOpType reduction = c10d::ReduceOp::SUM);
  /// The barrier after the first chunk is in the slots. Here ranks also detect that their operations differ.
  void meet();
  /// `receives`: whether the result goes into `tensor`.
  void reduce_chunks(at::Tensor& tensor, Reduction reduce, bool receives);
  void reduce_small(at::Tensor& tensor, Reduction reduce);

  std::unique_ptr<SegmentGroup> group_;
  std::unique_ptr<ShmChannel> channel_;  ///< from the first transfer on
  uint64_t sequence_ = 0;
  bool checked_ = false;
  int half_ = 0, small_half_ = 0;  ///< the buffers of the last phase
};

}  // namespace runner
