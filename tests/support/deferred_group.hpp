// A process group whose reductions read their inputs when they are called and deliver when they are waited for: what
// NCCL may do beside the backward pass, on threads.
#pragma once
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "strategies/collective/libtorch.hpp"

namespace runner::testing {

/// Until wait(), `target` is not what it will be.
class DeferredWork : public c10d::Work {
 public:
  DeferredWork(at::Tensor target, at::Tensor result) : target_(std::move(target)), result_(std::move(result)) {
    target_.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  bool isCompleted() override { return !result_.defined(); }
  bool wait(std::chrono::milliseconds) override {
    target_.copy_(result_);
    result_.reset();
    return true;
  }

 private:
  at::Tensor target_, result_;
};

class DeferredBackend : public c10d::Backend {
 public:
  explicit DeferredBackend(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

  const std::string getBackendName() const override { return "deferred"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    std::vector<at::Tensor> results{tensors.at(0).clone()};
    inner_->allreduce(results, options)->wait();
    return c10::make_intrusive<DeferredWork>(tensors[0], results[0]);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    auto result = at::empty_like(output);
    inner_->_reduce_scatter_base(result, input, options)->wait();
    return c10::make_intrusive<DeferredWork>(output, result);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    return inner_->_allgather_base(output, input, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return inner_->broadcast(tensors, options);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
};

inline c10::intrusive_ptr<c10d::ProcessGroup> deferred(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (!group) return group;
  auto backend = c10::make_intrusive<DeferredBackend>(group->getBackend(at::kCPU));
  auto wrapped = c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  wrapped->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  wrapped->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return wrapped;
}

}  // namespace runner::testing
