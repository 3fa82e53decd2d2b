#include "tests/support/staged_groups.hpp"

#include "strategies/collective/completed_work.hpp"
#include "tests/support/held_transfer.hpp"

namespace runner::testing {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The copies run on the caller's current stream and block the host, so a collective has ended when its call returns. A received message
/// is copied to the device in wait().
class StagedBackend final : public c10d::Backend {
 public:
  explicit StagedBackend(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

  const std::string getBackendName() const override { return "staged"; }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    auto host = in_host_memory(tensors);
    inner_->allreduce(host, options)->wait();
    return finish(tensors, host);
  }
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    auto host = in_host_memory(tensors);
    inner_->reduce(host, options)->wait();
    return finish(tensors, host);
  }
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    auto host = in_host_memory(tensors);
    inner_->broadcast(host, options)->wait();
    return finish(tensors, host);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    auto host = at::empty_like(output, at::kCPU), from = input.cpu();
    inner_->_allgather_base(host, from, options)->wait();
    return finish({output}, {host});
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    auto host = at::empty_like(output, at::kCPU), from = input.cpu();
    inner_->_reduce_scatter_base(host, from, options)->wait();
    return finish({output}, {host});
  }
  WorkPtr send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    auto host = in_host_memory(tensors);
    return inner_->send(host, to, tag);
  }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    std::vector<at::Tensor> host{at::empty_like(tensors.at(0), at::kCPU)};
    return c10::make_intrusive<HeldReceive>(inner_->recv(host, from, tag), host[0], tensors[0]);
  }

 private:
  static std::vector<at::Tensor> in_host_memory(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> host;
    for (const auto& tensor : tensors) host.push_back(tensor.cpu());
    return host;
  }
  static WorkPtr finish(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& host) {
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(host[i]);
    return completed({});
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
};

ProcessGroup staged(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroup& group, c10::DeviceType device) {
  if (!group) return group;
  auto backend = c10::make_intrusive<StagedBackend>(group->getBackend(at::kCPU));
  auto wrapped = c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  wrapped->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  wrapped->setBackend(device, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return wrapped;
}

}  // namespace

void stage_groups(World& world, c10::DeviceType device) {
  world.group = staged(world.store, world.group, device);
  world.make_subgroup = [make = world.make_subgroup, store = world.store, device](const std::vector<int>& ranks,
                                                                                  const std::string& name) {
    return staged(store, make(ranks, name), device);
  };
}

}  // namespace runner::testing
