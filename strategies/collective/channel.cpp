#include "strategies/collective/channel.hpp"

#include <fmt/format.h>

namespace runner {

Channel::Work Channel::send(const at::Tensor& tensor, int number) const {
  std::vector<at::Tensor> tensors{tensor};
  return pair_->send(tensors, 1, number);
}

Channel::Work Channel::receive(const at::Tensor& tensor, int number) const {
  std::vector<at::Tensor> tensors{tensor};
  return pair_->recv(tensors, 0, number);
}

Channel make_channel(const World& world, const std::string& name, int from, int to) {
  Channel channel(world.make_subgroup({from, to}, fmt::format("{} {} to {}", name, from, to)));
  if (!channel) return channel;
  auto first = at::zeros({1}, at::device(world.device).dtype(at::kByte));
  (world.rank == from ? channel.send(first) : channel.receive(first))->wait();
  return channel;
}

}  // namespace runner
