// Checks every operation of a process group against a simple reference. Each rank checks its results. The same checks
// run on threads and in processes, over shared memory and Gloo.
#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/shm_layout.hpp"
#include "strategies/collective/world.hpp"

namespace runner::testing {

using Op = c10d::ReduceOp;

/// The input of rank `rank`. Every rank can compute it.
inline at::Tensor input_of(int rank, at::ScalarType dtype, int64_t numel) {
  auto index = torch::arange(numel, torch::kInt64);
  if (dtype == torch::kBool) return ((index + rank) % 3) == 0;
  auto whole = (index * 37 + rank * 11) % 19;
  if (dtype == torch::kUInt8) return (whole * 13).to(dtype);  // sums overflow and wrap
  if (!c10::isFloatingType(dtype)) return (whole - 6).to(dtype);
  return ((whole - 6).to(torch::kFloat64) * 0.137 + rank * 0.01).to(dtype);
}

inline at::Tensor combine(const at::Tensor& a, const at::Tensor& b, Op::RedOpType op) {
  if (a.scalar_type() == torch::kBool) return op == Op::SUM || op == Op::MAX ? a.logical_or(b) : a.logical_and(b);
  switch (op) {
    case Op::MAX:
      return torch::maximum(a, b);
    case Op::MIN:
      return torch::minimum(a, b);
    case Op::PRODUCT:
      return a * b;
    default:
      return a + b;
  }
}

/// The reduction of ranks [low, high) over the binary tree that strategies/collective/reduction.hpp defines.
inline at::Tensor tree(const std::vector<at::Tensor>& in, size_t low, size_t high, Op::RedOpType op) {
  if (high - low == 1) return in[low];
  size_t middle = low + (high - low) / 2;
  return combine(tree(in, low, middle, op), tree(in, middle, high, op), op);
}

inline at::Tensor reduced(int ranks, at::ScalarType dtype, int64_t numel, Op::RedOpType op) {
  bool half = dtype == torch::kHalf || dtype == torch::kBFloat16;
  std::vector<at::Tensor> in;
  for (int rank = 0; rank < ranks; ++rank) {
    auto input = input_of(rank, dtype, numel);
    in.push_back(half ? input.to(torch::kFloat32) : input);
  }
  return tree(in, 0, in.size(), op).to(dtype);
}

struct Coverage {
  std::vector<at::ScalarType> dtypes = {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kHalf,
                                        torch::kInt64,   torch::kInt32,   torch::kUInt8,    torch::kBool};
  std::vector<at::ScalarType> large = {torch::kFloat32, torch::kBFloat16, torch::kUInt8};  ///< larger than one chunk
  bool exact = true;  ///< bitwise equal; otherwise equal within rounding
};

/// Runs all checks on `group`. Returns one line per failure.
class OperationCheck {
 public:
  OperationCheck(const ProcessGroup& group, Coverage coverage)
      : group_(group), coverage_(std::move(coverage)), rank_(group->getRank()), size_(group->getSize()) {}

  std::vector<std::string> run() {
    for (auto dtype : coverage_.dtypes) {
      dtype_ = dtype;
      for (int64_t numel : {0, 1, 1001})
        for (auto op : {Op::SUM, Op::MAX, Op::MIN, Op::PRODUCT}) reductions(numel, numel, op);
      for (int64_t numel : {0, 1, 1001}) moves(numel, numel);
    }
    for (auto dtype : coverage_.large) {
      dtype_ = dtype;
      auto chunk = static_cast<int64_t>(shm_chunk_bytes / c10::elementSize(dtype));
      for (auto [numel, part] : {std::pair(chunk, chunk / size_), {2 * chunk + 1, 2 * (chunk / size_) + 1}}) {
        reductions(numel, part, Op::SUM);
        moves(numel, part);
      }
    }
    barrier(group_);
    return failures_;
  }

 private:
  void check(const char* what, const at::Tensor& is, const at::Tensor& should) {
    bool same = is.sizes() == should.sizes() &&
                (coverage_.exact ? torch::equal(is, should)
                                 : torch::allclose(is.to(torch::kFloat64), should.to(torch::kFloat64),
                                                   c10::elementSize(dtype_) == 2 ? 3e-2 : 1e-5, 1e-5));
    if (!same)
      failures_.push_back(
          fmt::format("{} of {} {} on rank {} of {}", what, should.numel(), c10::toString(dtype_), rank_, size_));
  }

  /// `part`: number of elements per rank for reduce-scatter.
  void reductions(int64_t numel, int64_t part, Op::RedOpType op) {
    auto expected = reduced(size_, dtype_, numel, op);
    std::vector<at::Tensor> tensors{input_of(rank_, dtype_, numel)};
    group_->allreduce(tensors, {op})->wait();
    check("all_reduce", tensors[0], expected);

    int root = size_ - 1;
    std::vector<at::Tensor> one{input_of(rank_, dtype_, numel)};
    c10d::ReduceOptions to_root;
    to_root.reduceOp = op;
    to_root.rootRank = root;
    group_->reduce(one, to_root)->wait();
    if (rank_ == root) check("reduce", one[0], expected);
    if (rank_ != root && coverage_.exact) check("reduce's input", one[0], input_of(rank_, dtype_, numel));

    auto whole = reduced(size_, dtype_, part * size_, op), mine = whole.narrow(0, rank_ * part, part);
    auto original = input_of(rank_, dtype_, part * size_), input = original.clone(),
         output = torch::zeros({part}, dtype_);
    group_->_reduce_scatter_base(output, input, {op})->wait();
    check("reduce_scatter", output, mine);
    check("reduce_scatter's input", input, original);

    if (part == 0) return;  // c10d's list form cannot represent empty parts
    std::vector<at::Tensor> outputs{torch::zeros({part}, dtype_)};
    std::vector<std::vector<at::Tensor>> parts(1);
    for (int r = 0; r < size_; ++r) parts[0].push_back(input.narrow(0, r * part, part));
    group_->reduce_scatter(outputs, parts, {op})->wait();
    check("reduce_scatter of a list", outputs[0], mine);
  }

  void moves(int64_t numel, int64_t part) {
    std::vector<at::Tensor> from_root{input_of(rank_, dtype_, numel)};
    int root = size_ / 2;
    group_->broadcast(from_root, {.rootRank = root})->wait();
    check("broadcast", from_root[0], input_of(root, dtype_, numel));

    std::vector<at::Tensor> all;
    for (int r = 0; r < size_; ++r) all.push_back(input_of(r, dtype_, numel));
    auto input = input_of(rank_, dtype_, numel), output = torch::zeros({numel * size_}, dtype_);
    group_->_allgather_base(output, input)->wait();
    check("all_gather", output, torch::cat(all));

    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int r = 0; r < size_; ++r) outputs[0].push_back(torch::zeros({numel}, dtype_));
    std::vector<at::Tensor> inputs{input};
    group_->allgather(outputs, inputs)->wait();
    for (int r = 0; r < size_; ++r)
      check("all_gather of a list", outputs[0][static_cast<size_t>(r)], all[static_cast<size_t>(r)]);

    auto sent = input_of(rank_, dtype_, part * size_), received = torch::zeros({part * size_}, dtype_);
    std::vector<int64_t> equal_splits;
    group_->alltoall_base(received, sent, equal_splits, equal_splits)->wait();
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size_; ++r) parts.push_back(input_of(r, dtype_, part * size_).narrow(0, rank_ * part, part));
    check("all_to_all", received, torch::cat(parts));
    check_split_all_to_all(part);
  }

  /// Rank r sends k parts to rank (r + k) mod size.
  void check_split_all_to_all(int64_t part) {
    auto count = [&](int from, int to) { return (to - from + size_) % size_ * part; };
    std::vector<int64_t> sent_splits, taken_splits;
    std::vector<at::Tensor> parts;
    int64_t total = part * size_ * (size_ - 1) / 2;
    for (int other = 0; other < size_; ++other) {
      sent_splits.push_back(count(rank_, other));
      taken_splits.push_back(count(other, rank_));
      int64_t before = 0;
      for (int to = 0; to < rank_; ++to) before += count(other, to);
      parts.push_back(input_of(other, dtype_, total).narrow(0, before, count(other, rank_)));
    }
    auto sent = input_of(rank_, dtype_, total), received = torch::zeros({total}, dtype_);
    group_->alltoall_base(received, sent, taken_splits, sent_splits)->wait();
    check("all_to_all of unequal parts", received, torch::cat(parts));
  }

  ProcessGroup group_;
  Coverage coverage_;
  int rank_, size_;
  at::ScalarType dtype_ = torch::kFloat32;
  std::vector<std::string> failures_;
};

inline at::Tensor all_reduce(const ProcessGroup& group, at::Tensor tensor, Op op = Op::SUM) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  group->allreduce(tensors, {op})->wait();
  return tensors[0];
}

inline at::Tensor all_gather(const ProcessGroup& group, at::Tensor tensor) {
  auto output = torch::empty({group->getSize() * tensor.numel()}, tensor.options());
  group->_allgather_base(output, tensor)->wait();
  return output;
}

inline at::Tensor broadcast(const ProcessGroup& group, at::Tensor tensor, int root) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  group->broadcast(tensors, {.rootRank = root})->wait();
  return tensors[0];
}

}  // namespace runner::testing
