#include "strategies/collective/tree.hpp"

#include <algorithm>

#include "strategies/collective/reduction.hpp"

namespace runner {

namespace {

constexpr int tree_tag = 0x7ee00000;  ///< of its messages; channels number theirs from 0

}  // namespace

TreePlace place_in_tree(int rank, int ranks) {
  TreePlace place;
  for (int low = 0, high = ranks; high - low > 1;) {
    const int middle = low + (high - low) / 2;
    if (rank == low) place.children.push_back(middle);
    if (rank == middle) place.parent = low;
    (rank < middle ? high : low) = middle;
  }
  std::ranges::reverse(place.children);
  return place;
}

bool suits_tree(const at::Tensor& tensor, c10d::ReduceOp::RedOpType operation) {
  using Op = c10d::ReduceOp;
  const auto dtype = tensor.scalar_type();
  const bool exact = dtype == at::kDouble || dtype == at::kFloat || dtype == at::kLong || dtype == at::kInt;
  const bool known = operation == Op::SUM || operation == Op::PRODUCT || operation == Op::MIN || operation == Op::MAX;
  return exact && known && tensor.is_cpu() && tensor.is_contiguous() && tensor.nbytes() <= tree_bytes_max;
}

void tree_all_reduce(c10d::Backend& messages, at::Tensor& tensor, c10d::ReduceOp::RedOpType operation) {
  const auto place = place_in_tree(messages.getRank(), messages.getSize());
  const auto reduce = reduction_of(tensor.scalar_type(), operation);
  std::vector<at::Tensor> own{tensor};
  struct Receive {
    std::vector<at::Tensor> partial;
    c10::intrusive_ptr<c10d::Work> work;
  };
  std::vector<Receive> receives;
  for (const int child : place.children) {
    auto& receive = receives.emplace_back();
    receive.partial.push_back(at::empty_like(tensor));
    receive.work = messages.recv(receive.partial, child, tree_tag);
  }
  auto* sum = static_cast<std::byte*>(tensor.data_ptr());
  for (auto& receive : receives) {
    receive.work->wait();
    const std::byte* parts[] = {sum, static_cast<const std::byte*>(receive.partial[0].data_ptr())};
    reduce(parts, 2, sum, tensor.numel());
  }
  if (place.parent >= 0) {
    messages.send(own, place.parent, tree_tag)->wait();
    messages.recv(own, place.parent, tree_tag)->wait();
  }
  std::vector<c10::intrusive_ptr<c10d::Work>> sends;  // to the largest part of the tree first
  for (auto child = place.children.rbegin(); child != place.children.rend(); ++child)
    sends.push_back(messages.send(own, *child, tree_tag));
  for (auto& work : sends) work->wait();
}

}  // namespace runner
