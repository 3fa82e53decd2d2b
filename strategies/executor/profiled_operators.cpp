#include "strategies/executor/profiled_operators.hpp"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TypeProperties.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/library.h>

#include <set>

#include "strategies/collective/completed_work.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/profiled.hpp"

namespace {

using torch::Tensor;

Tensor statistics(const Tensor& x, at::IntArrayRef normalized) {
  auto sizes = x.sizes().vec();
  for (size_t i = 0; i < normalized.size(); ++i) sizes[sizes.size() - 1 - i] = 1;
  return at::empty(sizes, x.options().dtype(runner::wide_dtype(x)));
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, at::IntArrayRef shape, const std::optional<Tensor>&,
                                              const std::optional<Tensor>&, double) {
  return {at::empty_like(x), statistics(x, shape), statistics(x, shape)};
}

Tensor like(const std::optional<Tensor>& x, bool wanted) {
  return x && x->defined() && wanted ? at::empty_like(*x) : Tensor();
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor&, const Tensor& x, at::IntArrayRef, const Tensor&,
                                                       const Tensor&, const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>& bias, std::array<bool, 3> mask) {
  // The CPU's kernel sums the gradients of the weight and of the bias for each thread.
  const int64_t threads = runner::on_host(x) && (mask[1] || mask[2]) ? at::get_num_threads() : 0;
  const auto sums = at::empty({2, threads, x.size(-1)}, x.options().dtype(runner::wide_dtype(x)));
  return {like(x, mask[0]), like(weight, mask[1]), like(bias, mask[2])};
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, at::IntArrayRef shape, const std::optional<Tensor>&,
                                    std::optional<double>) {
  return {at::empty_like(x), statistics(x, shape)};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor&, const Tensor& x, at::IntArrayRef, const Tensor&,
                                             const std::optional<Tensor>& weight, std::array<bool, 2> mask) {
  return {like(x, mask[0]), like(weight, mask[1])};
}

Tensor nonzero(const Tensor& x) { return at::empty({x.numel(), x.dim()}, x.options().dtype(torch::kInt64)); }

Tensor embedding_backward(const Tensor& gradient, const Tensor&, c10::SymInt rows, c10::SymInt, bool) {
  return at::empty({rows.expect_int(), gradient.size(-1)}, gradient.options());
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  auto sizes = x.sizes().vec();
  sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = index.numel();
  return at::empty(sizes, x.options());
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return at::empty(at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes())),
                   a.options().dtype(at::result_type(a, b)));
}

Tensor relu(const Tensor& x) { return at::empty_like(x); }
Tensor flip(const Tensor& x, at::IntArrayRef) { return at::empty_like(x); }
std::tuple<Tensor, Tensor> log_sigmoid(const Tensor& x) {
  return {at::empty_like(x), runner::on_host(x) ? at::empty_like(x) : at::empty({0}, x.options())};
}
Tensor log_sigmoid_backward(const Tensor&, const Tensor& x, const Tensor&) { return at::empty_like(x); }
Tensor isnan(const Tensor& x) { return at::empty_like(x, x.options().dtype(torch::kBool)); }
Tensor huber_loss(const Tensor& x, const Tensor&, int64_t reduction, double) {
  return reduction == at::Reduction::None ? at::empty_like(x) : at::empty({}, x.options());
}
Tensor mse_loss_backward(const Tensor&, const Tensor& x, const Tensor&, int64_t) { return at::empty_like(x); }
void assert_async(const Tensor&, c10::string_view) {}

Tensor& write_binary(const Tensor& a, const Tensor& b, Tensor& out) {
  return const_cast<Tensor&>(out.resize_(at::infer_size(a.sizes(), b.sizes())));
}
Tensor& write_unary(const Tensor& x, Tensor& out) { return const_cast<Tensor&>(out.resize_(x.sizes())); }

Tensor& write_where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  return const_cast<Tensor&>(out.resize_(at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes()))));
}
Tensor& write_numbers(const Tensor& x, std::optional<double>, std::optional<double>, std::optional<double>,
                      Tensor& out) {
  return write_unary(x, out);
}
Tensor& write_huber_gradient(const Tensor&, const Tensor& x, const Tensor&, int64_t, double, Tensor& out) {
  return write_unary(x, out);
}

Tensor channel_statistics(const Tensor& x, const std::optional<Tensor>& weight) {
  const bool narrow = x.element_size() < 4;
  const auto dtype = narrow && weight && weight->defined() ? weight->scalar_type() : x.scalar_type();
  return at::empty({x.size(1)}, x.options().dtype(dtype));
}

std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>&, const std::optional<Tensor>&,
                                              const std::optional<Tensor>&, bool training, double, double) {
  const auto none = [&] { return at::empty({0}, x.options()); };
  if (!training) return {at::empty_like(x), none(), none()};
  return {at::empty_like(x), channel_statistics(x, weight), channel_statistics(x, weight)};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(const Tensor&, const Tensor& x,
                                                       const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>&, const std::optional<Tensor>&,
                                                       const std::optional<Tensor>&, const std::optional<Tensor>&, bool,
                                                       double, std::array<bool, 3> mask) {
  return {like(x, mask[0]), like(weight, mask[1]), like(weight, mask[2])};
}

/// CUDA's libraries copy what a convolution reads and writes to another layout.
std::vector<Tensor> copies_in_other_layout(const Tensor& x, const Tensor& weight, const Tensor& y) {
  if (!runner::on_cuda(x)) return {};
  return {at::empty_like(x), at::empty_like(weight), at::empty_like(y)};
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>&, c10::SymIntArrayRef stride,
                   c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool, c10::SymIntArrayRef, c10::SymInt) {
  // One number stands for all dimensions.
  const auto number = [](c10::SymIntArrayRef numbers, int64_t i) {
    return numbers[std::min<size_t>(static_cast<size_t>(i), numbers.size() - 1)].expect_int();
  };
  std::vector<int64_t> sizes{x.size(0), weight.size(0)};
  for (int64_t i = 0; i + 2 < weight.dim(); ++i) {
    const int64_t seen = number(dilation, i) * (weight.size(i + 2) - 1) + 1;
    sizes.push_back((x.size(i + 2) + 2 * number(padding, i) - seen) / number(stride, i) + 1);
  }
  const auto y = at::empty(sizes, x.options());
  const auto copies = copies_in_other_layout(x, weight, y);
  return y;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                                        at::OptionalSymIntArrayRef, c10::SymIntArrayRef,
                                                        c10::SymIntArrayRef, c10::SymIntArrayRef, bool,
                                                        c10::SymIntArrayRef, c10::SymInt, std::array<bool, 3> mask) {
  const std::tuple gradients{like(x, mask[0]), like(weight, mask[1]), Tensor()};
  const auto copies = copies_in_other_layout(x, weight, dy);
  return gradients;
}

/// Operators that convert all arguments to one dtype.
bool promotes(const std::string& name) {
  static const std::set<std::string> names{"aten::mul",  "aten::mul_", "aten::add",  "aten::add_",    "aten::sub",
                                           "aten::sub_", "aten::div",  "aten::div_", "aten::addcmul", "aten::addcmul_"};
  return names.contains(name);
}

/// Reductions that compute in the dtype of their result.
bool reduces(const std::string& name) {
  static const std::set<std::string> names{"aten::sum", "aten::mean", "aten::linalg_vector_norm"};
  return names.contains(name);
}

std::vector<Tensor> conversions(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments) {
  std::vector<Tensor> copies;
  const auto copy_of = [&](const Tensor& x, torch::ScalarType dtype) {
    if (x.is_meta() && x.dim() > 0 && x.scalar_type() != dtype)
      copies.push_back(at::empty_like(x, x.options().dtype(dtype)));
  };
  if (promotes(schema.name())) {
    at::native::ResultTypeState state;
    for (const auto& argument : arguments)
      if (argument.isTensor() && argument.toTensor().defined())
        state = at::native::update_result_type_state(argument.toTensor(), state);
    const auto common = at::native::result_type(state);
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
      const auto* alias = schema.arguments()[i].alias_info();
      copy_of(arguments[i].toTensor(), common);
      // One tensor is an argument and the result.
      const bool both = alias && alias->isWrite() && schema.name().ends_with("_");
      if (both) copy_of(arguments[i].toTensor(), common);
    }
  } else if (reduces(schema.name())) {
    for (size_t i = 0; i < arguments.size(); ++i)
      if (schema.arguments()[i].name() == "dtype" && !arguments[i].isNone())
        copy_of(arguments[0].toTensor(), arguments[i].toScalarType());
  }
  return copies;
}

/// Whether the engine of autograd adds to the tensor in place, if it has values. `references`: those of the caller.
bool can_accumulate(const Tensor& x, size_t references) {
  return x.is_non_overlapping_and_dense() && x.use_count() == references && x.storage().use_count() == 1;
}

/// Where gradients of two branches meet, the engine adds those with values in place if it can, and others out of place. Returns the result
/// of the former, or an undefined tensor. No backward of ours adds two tensors that nothing else refers to.
Tensor accumulated(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const bool in_backward = torch::autograd::get_current_graph_task_id() >= 0;
  if (!in_backward || op.schema().name() != "aten::add" || op.schema().overload_name() != "Tensor") return {};
  constexpr size_t references = 2;  // the engine's, and the stack's
  const auto& sum = torch::jit::peek(stack, 0, 3).toTensor();
  const auto& added = torch::jit::peek(stack, 1, 3).toTensor();
  return can_accumulate(sum, references) ? sum : can_accumulate(added, references) ? added : Tensor();
}

void with_conversions(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (const auto sum = accumulated(op, *stack); sum.defined()) {
    torch::jit::drop(*stack, 3);
    return torch::jit::push(*stack, sum);
  }
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::TESTING_ONLY_GenericMode);
  const auto count = op.schema().arguments().size();
  const auto copies = conversions(op.schema(), torch::jit::last(*stack, count));
  op.callBoxed(stack);
  for (const auto& result : torch::jit::last(*stack, op.schema().returns().size()))
    if (result.isTensor()) runner::ConvertingScope::this_thread()(result.toTensor());
}

/// Collectives of tensors without values: the results are the tensors that they write.
void collective(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const c10::IValue first = *(stack->end() - std::ssize(schema.arguments()));
  torch::jit::drop(*stack, schema.arguments().size());
  for (const auto& result : schema.returns()) {
    const bool work = result.type()->kind() == c10::TypeKind::ClassType;
    stack->push_back(work ? c10::IValue(runner::completed({})) : first);
  }
}

}  // namespace

namespace runner {

void register_profiled_operators() {
  static const auto libraries = [] {
    std::vector<std::unique_ptr<torch::Library>> made;
    const auto library = [&](const char* ns) -> torch::Library& {
      const auto kind = torch::Library::IMPL;
      return *made.emplace_back(std::make_unique<torch::Library>(kind, ns, c10::DispatchKey::Meta, __FILE__, __LINE__));
    };
    auto& aten = library("aten");
    aten.impl("native_layer_norm", layer_norm);
    aten.impl("native_layer_norm_backward", layer_norm_backward);
    aten.impl("_fused_rms_norm", rms_norm);
    aten.impl("_fused_rms_norm_backward", rms_norm_backward);
    aten.impl("nonzero", nonzero);
    aten.impl("embedding_dense_backward", embedding_backward);
    aten.impl("index_select", index_select);
    aten.impl("where.self", where);
    aten.impl("where.self_out", write_where);
    for (const char* name : {"logical_and.out", "logical_or.out"}) aten.impl(name, write_binary);
    aten.impl("nan_to_num.out", write_numbers);
    aten.impl("huber_loss_backward.out", write_huber_gradient);
    for (const char* name : {"abs.out", "logical_not.out"}) aten.impl(name, write_unary);
    aten.impl("relu", relu);
    aten.impl("flip", flip);
    aten.impl("log_sigmoid_forward", log_sigmoid);
    aten.impl("log_sigmoid_backward", log_sigmoid_backward);
    aten.impl("isnan", isnan);
    aten.impl("huber_loss", huber_loss);
    aten.impl("mse_loss_backward", mse_loss_backward);
    aten.impl("_assert_async.msg", assert_async);
    aten.impl("native_batch_norm", batch_norm);
    aten.impl("native_batch_norm_backward", batch_norm_backward);
    aten.impl("convolution", convolution);
    aten.impl("convolution_backward", convolution_backward);
    auto& all = *made.emplace_back(std::make_unique<torch::Library>(
        torch::Library::IMPL, "_", c10::DispatchKey::TESTING_ONLY_GenericMode, __FILE__, __LINE__));
    all.fallback(torch::CppFunction::makeFromBoxedFunction<&with_conversions>());
    auto& c10d = library("c10d");
    for (const char* name :
         {"allreduce_", "_allgather_base_", "_reduce_scatter_base_", "alltoall_base_", "send", "recv_"})
      c10d.impl(name, torch::CppFunction::makeFromBoxedFunction<&collective>());
    return made;
  }();
  (void)libraries;
}

}  // namespace runner
