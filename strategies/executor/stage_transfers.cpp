#include "strategies/executor/stage_transfers.hpp"

#include <utility>

namespace runner {

StageTransfers::StageTransfers(const Mesh& mesh, int virtual_stages, const World& world)
    : ranks_(mesh.size(Axis::pipeline)) {
  // With several virtual stages the last rank sends to the first one.
  const int pairs = virtual_stages > 1 ? ranks_ : ranks_ - 1;
  for (const auto& pipeline : mesh.groups(Axis::pipeline)) {
    const auto ranks = pipeline.ranks();
    for (int lower = 0; lower < pairs; ++lower) {
      const int from = ranks[static_cast<size_t>(lower)], to = ranks[static_cast<size_t>((lower + 1) % ranks_)];
      auto forward = make_channel(world, "activations", from, to),
           backward = make_channel(world, "gradients", to, from);
      if (forward) activations_[lower] = {.channel = std::move(forward)};
      if (backward) gradients_[lower] = {.channel = std::move(backward)};
    }
  }
}

void StageTransfers::Line::send(torch::Tensor values, int number) {
  if (work) work->wait();
  sent = values.contiguous();
  work = channel.send(sent, number);
}

torch::Tensor StageTransfers::Line::receive(torch::Tensor values, int number) const {
  channel.receive(values, number)->wait();
  return values;
}

void StageTransfers::send_output(int stage, int micro_batch, torch::Tensor x) {
  activations_after(stage).send(std::move(x), micro_batch);
}

torch::Tensor StageTransfers::receive_input(int stage, int micro_batch, torch::Tensor x) {
  return activations_after(stage - 1).receive(std::move(x), micro_batch);
}

void StageTransfers::send_gradient(int stage, int micro_batch, torch::Tensor dy) {
  gradients_after(stage - 1).send(std::move(dy), micro_batch);
}

torch::Tensor StageTransfers::receive_gradient(int stage, int micro_batch, torch::Tensor dy) {
  return gradients_after(stage).receive(std::move(dy), micro_batch);
}

void StageTransfers::finish() {
  for (auto* lines : {&activations_, &gradients_})
    for (auto& [lower, line] : *lines) {
      if (line.work) std::exchange(line.work, {})->wait();
      line.sent.reset();
    }
}

}  // namespace runner
