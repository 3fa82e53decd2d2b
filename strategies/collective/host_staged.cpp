// A c10d backend for tensors in the memory of devices that have no collectives. It copies them to host memory and calls another
// backend there.
#include <ATen/core/LegacyTypeDispatch.h>
#include <mutex>

#include "strategies/collective/backends.hpp"
#include "strategies/collective/completed_work.hpp"

namespace runner {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

/// Without autograd: the target may be a parameter, and its version does not change.
void copy_into(const at::Tensor& target, const at::Tensor& source) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  target.copy_(source);
}

void copy_all_into(const Tensors& targets, const Tensors& sources) {
  for (size_t i = 0; i < targets.size(); ++i) copy_into(targets[i], sources[i]);
}

/// An uninitialised contiguous CPU tensor for a result.
at::Tensor host_room(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), at::device(at::kCPU).dtype(tensor.scalar_type()));
}

at::Tensor host_copy(const at::Tensor& tensor) {
  auto host = host_room(tensor);
  copy_into(host, tensor);
  return host;
}

Tensors host_rooms(const Tensors& tensors) {
  Tensors rooms;
  for (const auto& tensor : tensors) rooms.push_back(host_room(tensor));
  return rooms;
}

Tensors host_copies(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors) copies.push_back(host_copy(tensor));
  return copies;
}

/// Keeps the host tensors of a transfer until the inner work is done. Then it copies them into `targets`, which a send does not have.
class StagedTransfer : public c10d::Work {
 public:
  StagedTransfer(WorkPtr inner, Tensors host, Tensors targets)
      : inner_(std::move(inner)), host_(std::move(host)), targets_(std::move(targets)) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  void abort() override { inner_->abort(); }
  void synchronize() override { wait(kNoTimeout); }

  /// After the first success it does nothing: the caller may use its tensors, and a Work of Gloo can be waited for only once.
  bool wait(std::chrono::milliseconds timeout) override {
    const std::lock_guard lock(waiting_);
    if (done_) return true;
    if (!inner_->wait(timeout)) return false;
    copy_all_into(targets_, host_);
    done_ = true;
    host_.clear();
    targets_.clear();
    return true;
  }

 private:
  WorkPtr inner_;
  Tensors host_, targets_;
  std::mutex waiting_;
  bool done_ = false;
};

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
  explicit HostStagedBackend(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto host = host_copies(tensors);
    inner_->allreduce(host, options)->wait();
    copy_all_into(tensors, host);
    return completed(tensors);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const bool sends = options.rootRank == getRank();
    auto host = sends ? host_copies(tensors) : host_rooms(tensors);
    inner_->broadcast(host, options)->wait();
    if (!sends) copy_all_into(tensors, host);
    return completed(tensors);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    auto host = host_copies(tensors);
    inner_->reduce(host, options)->wait();
    if (options.rootRank == getRank()) copy_all_into(tensors, host);
    return completed(tensors);
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto from = host_copies(inputs);
    std::vector<Tensors> to;
    for (const auto& list : outputs) to.push_back(host_rooms(list));
    inner_->allgather(to, from, options)->wait();
    for (size_t i = 0; i < outputs.size(); ++i) copy_all_into(outputs[i], to[i]);
    return completed(outputs.at(0));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    auto from = host_copy(input), to = host_room(output);
    inner_->_allgather_base(to, from, options)->wait();
    copy_into(output, to);
    return completed({output});
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    std::vector<Tensors> from;
    for (const auto& list : inputs) from.push_back(host_copies(list));
    auto to = host_rooms(outputs);
    inner_->reduce_scatter(to, from, options)->wait();
    copy_all_into(outputs, to);
    return completed(outputs);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    auto from = host_copy(input), to = host_room(output);
    inner_->_reduce_scatter_base(to, from, options)->wait();
    copy_into(output, to);
    return completed({output});
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    auto from = host_copy(input), to = host_room(output);
    inner_->alltoall_base(to, from, output_splits, input_splits, options)->wait();
    copy_into(output, to);
    return completed({output});
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    inner_->barrier(options)->wait();
    return completed({});
  }
  /// The tensors have been read when it returns.
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    auto host = host_copies(tensors);
    auto work = inner_->send(host, to, tag);
    return c10::make_intrusive<StagedTransfer>(std::move(work), std::move(host), Tensors());
  }
  /// isCompleted() of the Work tells whether the message is in host memory. Its wait() must be called in any case.
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    auto host = host_rooms(tensors);
    auto work = inner_->recv(host, from, tag);
    return c10::make_intrusive<StagedTransfer>(std::move(work), std::move(host), tensors);
  }

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

}  // namespace

c10::intrusive_ptr<c10d::Backend> host_staged(c10::intrusive_ptr<c10d::Backend> inner) {
  return c10::make_intrusive<HostStagedBackend>(std::move(inner));
}

}  // namespace runner
