#include "strategies/contract/tensor_axis.hpp"

#include <algorithm>
#include <numeric>

#include "runner/base/error.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

class TensorAxis::Enter : public torch::autograd::Function<Enter> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& stream, const TensorAxis& axis, int64_t n) {
    axis.save(context);
    return axis.division_.divides_rows() ? axis.all_rows(stream, n) : stream.view_as(stream);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto axis = saved(context);
    auto sum = axis.division_.divides_rows() ? axis.start_scattered_sum(gradients[0])
                                             : axis.start_sum(gradients[0].clone(at::MemoryFormat::Contiguous));
    if (const auto meanwhile = WeightGradients::saved(context)) meanwhile->compute_all();
    return {sum.wait(), Tensor(), Tensor()};
  }
};

class TensorAxis::Leave : public torch::autograd::Function<Leave> {
 public:
  static Tensor forward(AutogradContext* context, Tensor products, const TensorAxis& axis, bool unused) {
    axis.save(context);
    context->saved_data["rows"] = products.size(0);
    if (axis.division_.divides_rows()) {
      if (!unused) return axis.scattered_sum(products);
      return at::zeros({axis.stream_rows(products.size(0)), products.size(1)}, products.options());
    }
    context->mark_dirty({products});
    if (!unused) axis.add_in_place(products);
    return products;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto axis = saved(context);
    if (!axis.division_.divides_rows()) return {gradients[0], Tensor(), Tensor()};
    return {axis.all_rows(gradients[0], context->saved_data["rows"].toInt()), Tensor(), Tensor()};
  }
};

class TensorAxis::JoinColumns : public torch::autograd::Function<JoinColumns> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& columns, const TensorAxis& axis,
                        const std::vector<int64_t>& sizes) {
    context->saved_data["first"] = std::accumulate(sizes.begin(), sizes.begin() + axis.rank(), int64_t{0});
    context->saved_data["count"] = columns.size(1);
    return axis.joined(columns, sizes);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto first = context->saved_data["first"].toInt(), count = context->saved_data["count"].toInt();
    return {gradients[0].narrow(1, first, count).contiguous(), Tensor(), Tensor()};
  }
};

TensorAxis::TensorAxis(ProcessGroup group, TensorDivision division) : group_(std::move(group)), division_(division) {
  RUNNER_CHECK(group_->getSize() == division_.ranks && group_->getRank() == division_.rank);
}

int64_t TensorAxis::stream_rows(int64_t n) const { return division_.divides_rows() ? (n + size() - 1) / size() : n; }

int64_t TensorAxis::first_row(int64_t n) const { return division_.divides_rows() ? stream_rows(n) * rank() : 0; }

// Autograd functions that are applied without gradients cost time, and cannot change tensors of the inference mode.
Tensor TensorAxis::enter(const Tensor& stream, int64_t n) const {
  if (at::GradMode::is_enabled()) return Enter::apply(stream, *this, n);
  return division_.divides_rows() ? all_rows(stream, n) : stream;
}

WeightGradients::Pointer TensorAxis::during_sum(const Tensor& entered) {
  if (!at::GradMode::is_enabled()) return {};
  auto* node = dynamic_cast<torch::autograd::CppNode<Enter>*>(entered.grad_fn().get());
  if (!node || WeightGradients::saved(&node->ctx_)) return {};
  auto list = c10::make_intrusive<WeightGradients>();
  WeightGradients::save(&node->ctx_, list);
  return list;
}

Tensor TensorAxis::leave(Tensor products, bool unused) const {
  if (at::GradMode::is_enabled()) return Leave::apply(std::move(products), *this, unused);
  if (division_.divides_rows()) return scattered_sum(products);
  add_in_place(products);
  return products;
}

Tensor TensorAxis::own_rows(const Tensor& rows) const {
  if (!division_.divides_rows()) return rows;
  const int64_t n = rows.size(0), count = stream_rows(n), first = std::min(n, first_row(n)),
                here = std::min(count, n - first);
  const auto own = rows.narrow(0, first, here);
  return here == count ? own : at::constant_pad_nd(own, {0, 0, 0, count - here});
}

Tensor TensorAxis::join_columns(const Tensor& columns, const std::vector<int64_t>& sizes) const {
  return at::GradMode::is_enabled() ? JoinColumns::apply(columns, *this, sizes) : joined(columns, sizes);
}

Tensor TensorAxis::gather(const Tensor& values) const {
  auto sizes = values.sizes().vec();
  sizes.insert(sizes.begin(), size());
  const auto all = at::empty(sizes, values.options());
  auto part = values.dim() == 0 ? values.reshape({1}) : values.contiguous();
  // Gloo wants the parts one after another along the first dimension of a part.
  auto joined = values.dim() == 0 ? all : all.flatten(0, 1);
  group_->_allgather_base(joined, part)->wait();
  return all;
}

void TensorAxis::save(AutogradContext* context) const {
  context->saved_data["tensor_axis"] = group_;
  context->saved_data["sequence_parallel"] = division_.sequence_parallel;
}

TensorAxis TensorAxis::saved(AutogradContext* context) {
  auto group = context->saved_data["tensor_axis"].toCustomClass<c10d::ProcessGroup>();
  const TensorDivision division{.ranks = group->getSize(),
                                .rank = group->getRank(),
                                .sequence_parallel = context->saved_data["sequence_parallel"].toBool()};
  return {std::move(group), division};
}

Tensor TensorAxis::all_rows(const Tensor& stream, int64_t n) const {
  return gather(stream).flatten(0, 1).narrow(0, 0, n);
}

/// The sum over the ranks of rows [n, d], of which each rank keeps its part. The rows that are missing on the last ranks are zeros.
TensorAxis::Started TensorAxis::start_scattered_sum(const Tensor& rows) const {
  const int64_t n = rows.size(0), own = stream_rows(n), padding = own * size() - n;
  auto all = padding == 0 ? rows.contiguous() : at::constant_pad_nd(rows, {0, 0, 0, padding});
  auto part = at::empty({own, rows.size(1)}, rows.options());
  auto work = group_->_reduce_scatter_base(part, all, {c10d::ReduceOp::SUM});
  return {.result = part, .read = all, .work = std::move(work)};
}

/// In place.
TensorAxis::Started TensorAxis::start_sum(const Tensor& values) const {
  RUNNER_CHECK(values.is_contiguous());
  std::vector<Tensor> tensors{values};
  return {.result = values, .read = values, .work = group_->allreduce(tensors, {c10d::ReduceOp::SUM})};
}

void TensorAxis::add_in_place(const Tensor& values) const { start_sum(values).wait(); }

Tensor TensorAxis::joined(const Tensor& columns, const std::vector<int64_t>& sizes) const {
  const int64_t widest = *std::ranges::max_element(sizes);
  const auto all = gather(at::constant_pad_nd(columns, {0, widest - columns.size(1)}));
  std::vector<Tensor> parts;
  for (size_t r = 0; r < sizes.size(); ++r) parts.push_back(all[static_cast<int64_t>(r)].narrow(1, 0, sizes[r]));
  return at::cat(parts, 1);
}

}  // namespace runner
