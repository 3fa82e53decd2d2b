// Our c10d backend for the CPU ranks of one host: collectives by copies through a shared segment.
//
// Calls run in the calling thread and return completed work. Memory traffic per rank, for a payload of n bytes among R ranks:
// all_reduce copies n in, reads n (its 1/R share from R slots), copies n out; all_gather and reduce_scatter about half of that.
#pragma once
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "strategies/collective/operation.hpp"
#include "strategies/collective/segment.hpp"

namespace runner {

class ShmBackend : public c10d::Backend {
 public:
  ShmBackend(std::unique_ptr<SegmentGroup> group);

  const std::string getBackendName() const override { return "shm"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                               std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  void abort() override { group_->abort(); }

 private:
  void begin(Collective kind, int64_t bytes, torch::ScalarType dtype);
  /// The barrier after the first chunk is in the slots: also where ranks find out that they do different things.
  void meet();
  void reduce_in_slots(torch::ScalarType dtype, c10d::ReduceOp::RedOpType operation, int half, int64_t count, int64_t element);

  std::unique_ptr<SegmentGroup> group_;
  uint64_t sequence_ = 0;
  bool checked_ = false;
  int half_ = 0;
};

}  // namespace runner
