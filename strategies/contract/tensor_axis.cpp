#include "strategies/contract/tensor_axis.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

int64_t padded_rows(int64_t n, int ranks) { return (n + ranks - 1) / ranks * ranks; }

Tensor gathered_rows(c10d::ProcessGroup& group, const Tensor& rows) {
  auto sizes = rows.sizes().vec();
  sizes[0] *= group.getSize();
  auto all = at::empty(sizes, rows.options());
  auto part = rows.contiguous();
  group._allgather_base(all, part)->wait();
  return all;
}

/// The sum over the ranks of rows [n, d], of which each rank keeps its part. Missing rows of the last rank are zeros.
Tensor scattered_rows(c10d::ProcessGroup& group, const Tensor& rows) {
  const int64_t n = rows.size(0), padded = padded_rows(n, group.getSize());
  auto all = padded == n ? rows.contiguous() : at::constant_pad_nd(rows, {0, 0, 0, padded - n});
  auto part = at::empty({padded / group.getSize(), rows.size(1)}, rows.options());
  group._reduce_scatter_base(part, all, {c10d::ReduceOp::SUM})->wait();
  return part;
}

/// In place.
void sum(c10d::ProcessGroup& group, const Tensor& values) {
  RUNNER_CHECK(values.is_contiguous());
  std::vector<Tensor> tensors{values};
  group.allreduce(tensors, {c10d::ReduceOp::SUM})->wait();
}

/// A process group as an argument of an autograd function.
struct Ranks {
  ProcessGroup group;
  bool by_rows;  ///< sequence parallelism
};

c10::intrusive_ptr<c10d::ProcessGroup> saved_group(AutogradContext* context) {
  return context->saved_data["group"].toCustomClass<c10d::ProcessGroup>();
}

class Enter : public torch::autograd::Function<Enter> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& stream, const Ranks& ranks, int64_t n) {
    context->saved_data["group"] = ranks.group;
    context->saved_data["by_rows"] = ranks.by_rows;
    if (!ranks.by_rows) return stream.view_as(stream);
    return gathered_rows(*ranks.group, stream).narrow(0, 0, n);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto group = saved_group(context);
    if (context->saved_data["by_rows"].toBool()) return {scattered_rows(*group, gradients[0]), Tensor(), Tensor()};
    auto total = gradients[0].clone(at::MemoryFormat::Contiguous);
    sum(*group, total);
    return {total, Tensor(), Tensor()};
  }
};

class Leave : public torch::autograd::Function<Leave> {
 public:
  static Tensor forward(AutogradContext* context, Tensor products, const Ranks& ranks, bool unused) {
    context->saved_data["group"] = ranks.group;
    context->saved_data["by_rows"] = ranks.by_rows;
    const int64_t n = products.size(0), width = products.size(1);
    context->saved_data["rows"] = n;
    if (ranks.by_rows) {
      if (unused)
        return at::zeros({padded_rows(n, ranks.group->getSize()) / ranks.group->getSize(), width}, products.options());
      return scattered_rows(*ranks.group, products);
    }
    context->mark_dirty({products});
    if (!unused) sum(*ranks.group, products);
    return products;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!context->saved_data["by_rows"].toBool()) return {gradients[0], Tensor(), Tensor()};
    const int64_t n = context->saved_data["rows"].toInt();
    return {gathered_rows(*saved_group(context), gradients[0]).narrow(0, 0, n), Tensor(), Tensor()};
  }
};

class JoinColumns : public torch::autograd::Function<JoinColumns> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& columns, const ProcessGroup& group,
                        const std::vector<int64_t>& sizes) {
    const int64_t widest = *std::ranges::max_element(sizes), n = columns.size(0);
    int64_t before = 0;
    for (int r = 0; r < group->getRank(); ++r) before += sizes[static_cast<size_t>(r)];
    context->saved_data["before"] = before;
    context->saved_data["width"] = columns.size(1);
    const auto padded = at::constant_pad_nd(columns, {0, widest - columns.size(1)});
    const auto all = gathered_rows(*group, padded).view({group->getSize(), n, widest});
    std::vector<Tensor> parts;
    for (size_t r = 0; r < sizes.size(); ++r) parts.push_back(all[static_cast<int64_t>(r)].narrow(1, 0, sizes[r]));
    return at::cat(parts, 1);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto before = context->saved_data["before"].toInt(), width = context->saved_data["width"].toInt();
    return {gradients[0].narrow(1, before, width).contiguous(), Tensor(), Tensor()};
  }
};

}  // namespace

TensorAxis::TensorAxis(ProcessGroup group, TensorDivision division) : group_(std::move(group)), division_(division) {
  RUNNER_CHECK(group_->getSize() == division_.ranks && group_->getRank() == division_.rank);
}

int64_t TensorAxis::stream_rows(int64_t n) const {
  return division_.divides_rows() ? padded_rows(n, size()) / size() : n;
}

int64_t TensorAxis::first_row(int64_t n) const { return division_.divides_rows() ? stream_rows(n) * rank() : 0; }

Tensor TensorAxis::enter(const Tensor& stream, int64_t n) const {
  return Enter::apply(stream, Ranks{group_, division_.divides_rows()}, n);
}

Tensor TensorAxis::leave(Tensor products, bool unused) const {
  return Leave::apply(std::move(products), Ranks{group_, division_.divides_rows()}, unused);
}

Tensor TensorAxis::own_rows(const Tensor& rows) const {
  if (!division_.divides_rows()) return rows;
  const int64_t n = rows.size(0), count = stream_rows(n), first = std::min(n, first_row(n)),
                here = std::min(count, n - first);
  const auto own = rows.narrow(0, first, here);
  return here == count ? own : at::constant_pad_nd(own, {0, 0, 0, count - here});
}

Tensor TensorAxis::join_columns(const Tensor& columns, const std::vector<int64_t>& sizes) const {
  return JoinColumns::apply(columns, group_, sizes);
}

Tensor TensorAxis::gather(const Tensor& values) const {
  auto sizes = values.sizes().vec();
  sizes.insert(sizes.begin(), 1);
  return gathered_rows(*group_, values.reshape(sizes));
}

}  // namespace runner
