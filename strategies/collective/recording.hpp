// A c10d backend that forwards every call to another backend and records it in this rank's trace.
#pragma once
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/trace.hpp"

namespace runner {

/// Operation::root of an all-to-all in which each rank sends all of its payload to one other rank; of another one it is 0.
inline constexpr int64_t exchange_root = 1;

/// Work, futures and errors are those of the inner backend. Operations that are not forwarded here are refused, so nothing is
/// sent without being recorded.
class RecordingBackend : public c10d::Backend {
 public:
  /// `group` is the index that the trace gave it.
  RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveTrace> trace, int group);

  const c10::intrusive_ptr<c10d::Backend>& inner() const { return inner_; }

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
  /// Only in groups of two ranks, from the first one to the second one, so that both have the same calls.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void eagerConnectSingleDevice(at::Device device) override { inner_->eagerConnectSingleDevice(device); }
  void waitForPendingWorks() override { inner_->waitForPendingWorks(); }
  c10d::ErrorType getError() override { return inner_->getError(); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

 private:
  void note(Collective kind, torch::ScalarType dtype, size_t bytes, int64_t root = 0,
            const c10d::ReduceOp& reduction = c10d::ReduceOp::SUM);

  c10::intrusive_ptr<c10d::Backend> inner_;
  std::shared_ptr<CollectiveTrace> trace_;
  int group_;
};

}  // namespace runner
