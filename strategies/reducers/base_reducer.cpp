#include "strategies/reducers/base_reducer.hpp"

#include <fmt/format.h>

#include <functional>
#include <map>

#include "runner/base/error.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/quantization_plan.hpp"

namespace runner {

void BaseReducer::prepare(std::vector<Bucket> buckets, const torch::TensorOptions&, Host host) {
  buckets_ = std::move(buckets);
  host_ = std::move(host);
  values_.resize(buckets_.size());
  torch::NoGradGuard no_grad;
  prepared();
}

void BaseReducer::begin(size_t bucket) {
  torch::NoGradGuard no_grad;
  values_[bucket] = buckets_[bucket].gradients.to(dtype_of_values());
  start(bucket, values_[bucket]);
}

void BaseReducer::finish(size_t bucket) {
  torch::NoGradGuard no_grad;
  complete(bucket, values_[bucket]);
  auto values = std::exchange(values_[bucket], {});
  auto& gradients = buckets_[bucket].gradients;
  if (!values.is_same(gradients)) gradients.copy_(values);
}

Work BaseReducer::start_sum(const torch::Tensor& tensor, const ProcessGroup& group) {
  if (group->getSize() == 1 || tensor.numel() == 0) return {};
  std::vector<at::Tensor> tensors{tensor};
  return group->allreduce(tensors, {c10d::ReduceOp::SUM});
}

Work BaseReducer::start_exchange(const ProcessGroup& group, int64_t to, const torch::Tensor& sent, int64_t from,
                                 const torch::Tensor& received) {
  std::vector<int64_t> input(static_cast<size_t>(group->getSize())), output = input;
  input[static_cast<size_t>(to)] = sent.numel();
  output[static_cast<size_t>(from)] = received.numel();
  auto in = sent, out = received;
  return group->alltoall_base(out, in, output, input);
}

torch::ScalarType BaseReducer::dtype_of_values() const { return scalar_type(plan_.wire); }

StateTensor BaseReducer::own_piece(const std::string& name, const torch::Tensor& tensor) const {
  return {.name = "reducer/" + name,
          .global_shape = {world_.size, tensor.numel()},
          .offset = world_.rank * tensor.numel(),
          .local = tensor,
          .write_end = tensor.numel(),
          .optional = true};
}

StateTensor BaseReducer::shared_piece(const std::string& name, const torch::Tensor& tensor) const {
  return {.name = "reducer/" + name,
          .global_shape = {1, tensor.numel()},
          .offset = 0,
          .local = tensor,
          .write_end = world_.rank == 0 ? tensor.numel() : 0,
          .optional = true};
}

ProcessGroup neighbours(World& world, int64_t size, const std::string& name) {
  if (size == world.size) return world.group;
  ProcessGroup own;
  for (int64_t first = 0; first < world.size; first += size) {
    std::vector<int> ranks;
    for (int64_t rank = first; rank < first + size; ++rank) ranks.push_back(static_cast<int>(rank));
    if (auto group = world.make_subgroup(ranks, fmt::format("{}_{}", name, first / size))) own = std::move(group);
  }
  return own;
}

namespace {

/// noop_hook: gradients are not communicated. They become those of the mean over the rank's own rows.
class Noop : public BaseReducer {
 public:
  using BaseReducer::BaseReducer;

 protected:
  void start(size_t, torch::Tensor&) override {}
  void complete(size_t, torch::Tensor& values) override { to_own_mean(values); }
};

}  // namespace

std::shared_ptr<Reducer> make_reducer(World& world, const ReducerPlan& plan, const Job& job) {
  const std::map<std::string, std::function<std::shared_ptr<Reducer>()>> makers = {
      {"quantization_pertensor_hook", [&] { return make_quantization(world, plan, 0); }},
      {"quantization_perchannel_hook", [&] { return make_quantization(world, plan, quantized_row); }},
      {"powerSGD_hook", [&] { return make_power_sgd(world, plan, false); }},
      {"batched_powerSGD_hook", [&] { return make_power_sgd(world, plan, true); }},
      {"post_localSGD_hook", [&] { return make_local_sgd(world, plan, job); }},
      {"noop_hook", [&] { return std::make_shared<Noop>(world, plan); }},
      {"adasum", [&] { return make_adasum(world, plan, job); }},
      {"hierarchical_sum", [&] { return make_hierarchical_sum(world, plan, job); }},
      {"bytegrad", [&] { return make_bytegrad(world, plan, job); }},
      {"qadam", [&] { return make_qadam(world, plan, job); }},
      {"async", [&] { return make_async_average(world, plan); }},
      {"decentralized", [&] { return make_decentralized(world, plan, job); }},
      {"low_precision_decentralized", [&] { return make_low_precision_decentralized(world, plan, job); }}};
  const auto maker = makers.find(plan.name);
  RUNNER_CHECK(maker != makers.end(), "no reducer `{}`", plan.name);
  return maker->second();
}

}  // namespace runner
