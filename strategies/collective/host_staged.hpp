// A c10d backend for tensors in the memory of devices that have no collectives. It copies them to host memory and calls another
// backend there.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// The inner backend gets contiguous CPU tensors. The caller's tensors may have any device and strides.
///
/// The copies block the host and run on the caller's current stream, so they come after earlier work on the device. A collective has
/// ended when its call returns, and errors of the inner work are thrown by the call. Transfers do not wait for the other rank: wait() of
/// their Work does, and that of a receive then copies the message to the device.
///
/// Only tensors that the operation defines on a rank are written: a reduce leaves the tensors of all ranks but the root as they are.
/// Autograd does not see the copies, as with other backends. Operations that are not listed here are refused.
class HostStagedBackend : public c10d::Backend {
 public:
  explicit HostStagedBackend(c10::intrusive_ptr<c10d::Backend> inner);

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
  /// The tensors have been read when it returns.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  /// isCompleted() of the Work tells whether the message is in host memory. Its wait() must be called in any case.
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void waitForPendingWorks() override { inner_->waitForPendingWorks(); }
  c10d::ErrorType getError() override { return inner_->getError(); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
};

}  // namespace runner
