#include "strategies/executor/stage_transfers.hpp"

namespace runner {

StageTransfers::StageTransfers(const Mesh& mesh, int virtual_stages, World& world) : ranks_(mesh.size(Axis::pipeline)) {
  // With several virtual stages the last rank sends to the first one.
  const int pairs = virtual_stages > 1 ? ranks_ : ranks_ - 1;
  int index = 0;
  for (const auto& pipeline : mesh.groups(Axis::pipeline)) {
    const auto ranks = pipeline.ranks();
    for (int from = 0; from < pairs; ++from)
      for (const Kind kind : {Kind::activation, Kind::gradient}) {
        const int a = ranks[static_cast<size_t>(from)], b = ranks[static_cast<size_t>((from + 1) % ranks_)];
        const char* name = kind == Kind::activation ? "activations" : "gradients";
        auto group = world.make_subgroup({std::min(a, b), std::max(a, b)}, fmt::format("{}_{}", name, index));
        if (group) channels_[{from, kind}] = {.group = std::move(group)};
        index += kind == Kind::gradient;
      }
  }
}

StageTransfers::Channel& StageTransfers::channel(int from, Kind kind) { return channels_.at({from % ranks_, kind}); }

void StageTransfers::send(Channel& channel, torch::Tensor values) {
  if (channel.work) channel.work->wait();
  channel.sent = values.contiguous();
  std::vector<at::Tensor> tensors{channel.sent};
  channel.work = channel.group->send(tensors, 1 - channel.group->getRank(), /*tag=*/0);
}

torch::Tensor StageTransfers::receive(Channel& channel, torch::Tensor values) {
  std::vector<at::Tensor> tensors{values};
  channel.group->recv(tensors, 1 - channel.group->getRank(), /*tag=*/0)->wait();
  return values;
}

void StageTransfers::send_output(int stage, torch::Tensor x) { send(channel(stage, Kind::activation), std::move(x)); }

torch::Tensor StageTransfers::receive_input(int stage, torch::Tensor like) {
  return receive(channel(stage - 1, Kind::activation), std::move(like));
}

void StageTransfers::send_gradient(int stage, torch::Tensor dy) {
  send(channel(stage - 1, Kind::gradient), std::move(dy));
}

torch::Tensor StageTransfers::receive_gradient(int stage, torch::Tensor like) {
  return receive(channel(stage, Kind::gradient), std::move(like));
}

void StageTransfers::finish() {
  for (auto& [key, channel] : channels_) {
    if (channel.work) channel.work->wait();
    channel.work.reset();
    channel.sent.reset();
  }
}

}  // namespace runner
