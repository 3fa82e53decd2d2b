// Running statistics of a strategy's model (ModelSpec::buffers): every rank has them completely, and moves them alike.
#include "runner/base/error.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

void Strategy::make_buffers() {
  const size_t first = model_.spec.parameters().size();
  model_.buffers.clear();
  for (size_t i = 0; i < model_.spec.buffers.size(); ++i) {
    model_.buffers.push_back(
        torch::empty(model_.spec.buffers[i].shape, torch::dtype(torch::kFloat32).device(world_.device)));
    fill(first + i, 0, model_.buffers.back().view(-1));
  }
  model_.sum_over_ranks = [this](torch::Tensor& tensor) {
    if (world_.size == 1) return;
    std::vector<at::Tensor> sums{tensor.to(torch::kCPU).contiguous()};
    world_.control->allreduce(sums, {c10d::ReduceOp::SUM})->wait();
    tensor.copy_(sums[0]);
  };
}

void Strategy::move_buffers(bool takes) {
  if (model_.buffers.empty()) return;
  constexpr double momentum = 0.1;
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts;
  for (size_t i = 0; i < model_.buffers.size(); ++i) {
    const auto [sum, count] = model_.statistics.of(i);
    parts.push_back(sum.defined() ? sum.view(-1) : torch::zeros_like(model_.buffers[i]).view(-1));
    parts.push_back(torch::full({1}, static_cast<double>(count), parts.back().options()));
  }
  model_.statistics.clear();
  auto all = at::cat(parts);
  model_.sum_over_ranks(all);
  if (!takes) return;
  int64_t at = 0;
  for (auto& buffer : model_.buffers) {
    const int64_t elements = buffer.numel();
    const auto count = all[at + elements].item<double>();
    if (count > 0) buffer.mul_(1 - momentum).add_(all.narrow(0, at, elements).view(buffer.sizes()), momentum / count);
    at += elements + 1;
  }
}

std::vector<StateTensor> Strategy::buffer_state() const {
  std::vector<StateTensor> list;
  for (size_t i = 0; i < model_.buffers.size(); ++i) {
    const auto& spec = model_.spec.buffers[i];
    list.push_back({.name = "param/" + spec.name,
                    .global_shape = spec.shape,
                    .local = model_.buffers[i].view(-1),
                    .write_end = world_.rank == 0 ? spec.numel() : 0});
  }
  return list;
}

}  // namespace runner
