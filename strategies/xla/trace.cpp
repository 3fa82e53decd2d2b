#include "strategies/xla/trace.hpp"

#include <torch/library.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "strategies/xla/call.hpp"
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/strided.hpp"

namespace runner::xla {

using pjrt::ElementType, pjrt::Value;

ElementType element_type(torch::ScalarType type) {
  switch (type) {
    case torch::kBool:
      return ElementType::boolean;
    case torch::kInt32:
      return ElementType::int32;
    case torch::kInt64:
      return ElementType::int64;
    case torch::kFloat16:
      return ElementType::float16;
    case torch::kBFloat16:
      return ElementType::bfloat16;
    case torch::kFloat32:
      return ElementType::float32;
    case torch::kFloat64:
      return ElementType::float64;
    default:
      throw run_error("tensors of type {} cannot be compiled", toString(type));
  }
}

torch::ScalarType scalar_type(ElementType type) {
  switch (type) {
    case ElementType::boolean:
      return torch::kBool;
    case ElementType::int32:
      return torch::kInt32;
    case ElementType::int64:
      return torch::kInt64;
    case ElementType::float16:
      return torch::kFloat16;
    case ElementType::bfloat16:
      return torch::kBFloat16;
    case ElementType::float32:
      return torch::kFloat32;
    case ElementType::float64:
      return torch::kFloat64;
  }
  return torch::kFloat32;
}

pjrt::Type type_of(const torch::Tensor& tensor) { return {element_type(tensor.scalar_type()), tensor.sizes().vec()}; }

namespace {

const c10::StorageImpl* storage_of(const torch::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

/// Elements of the tensor's type in its storage.
int64_t storage_elements(const torch::Tensor& tensor) {
  return static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
}

Strided strided(const torch::Tensor& tensor) {
  return {.sizes = tensor.sizes().vec(), .strides = tensor.strides().vec(), .offset = tensor.storage_offset()};
}

/// Calls `visit` with each tensor of a value, also in lists.
template <typename Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const auto& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) each_tensor(element, visit);
  }
}

bool writes(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() && argument.alias_info()->isWrite();
  });
}

/// The tensors that an operator writes to, which are its results.
std::vector<torch::Tensor> written_arguments(const c10::FunctionSchema& schema,
                                             const std::vector<c10::IValue>& arguments) {
  std::vector<torch::Tensor> written;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (const auto* alias = schema.arguments()[i].alias_info(); alias && alias->isWrite())
      written.push_back(arguments[i].toTensor());
  return written;
}

bool returns_views(const c10::FunctionSchema& schema) {
  return !writes(schema) && std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr;
  });
}

/// The key of the kernel that is written in terms of other operators.
std::optional<c10::DispatchKey> composition(const c10::OperatorHandle& op) {
  for (const auto key : {c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::CompositeExplicitAutograd,
                         c10::DispatchKey::CompositeExplicitAutogradNonFunctional})
    if (op.hasKernelForDispatchKey(key)) return key;
  return std::nullopt;
}

Error no_lowering(const c10::FunctionSchema& schema) {
  return run_error("the operator {} cannot be compiled: it has no form in StableHLO here",
                   toString(schema.operator_name()));
}

thread_local Trace* recording = nullptr;

void record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  RUNNER_CHECK(recording, "{} outside of a recording", op.schema().name());
  recording->run(op, *stack);
}

}  // namespace

void Constants::add(const torch::Tensor& tensor, const torch::Tensor& values) {
  all_[storage_of(tensor)] = {.tensor = tensor, .values = values};
}

const torch::Tensor* Constants::find(const c10::StorageImpl* storage) const {
  const auto found = all_.find(storage);
  return found == all_.end() ? nullptr : &found->second.values;
}

Trace::Recording::Recording(Trace& trace)
    : before_(std::exchange(recording, &trace)), include_(c10::DispatchKey::Fake) {}

Trace::Recording::~Recording() { recording = before_; }

const StepNumbers& Trace::step_numbers() const {
  RUNNER_CHECK(step_numbers_, "a mask of dropout outside of a step");
  return *step_numbers_;
}

torch::Tensor Trace::tensor(const Value& value) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  auto made = torch::empty(value.shape(), torch::dtype(scalar_type(value.type.element)).device(torch::kMeta));
  write(made, value);
  return made;
}

Value Trace::constant(const torch::Tensor& values) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  const auto dense = values.detach().to(torch::kCPU).contiguous();
  return text_.constant({static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes()}, type_of(dense));
}

Value Trace::read(const torch::Tensor& tensor) {
  if (!tensor.is_meta()) return constant(tensor);
  const auto* storage = storage_of(tensor);
  auto found = values_.find(storage);
  if (found == values_.end()) {
    const auto* values = constants_.find(storage);
    if (!values && tensor.numel() == 0) return text_.splat(0, type_of(tensor));
    if (!values) throw run_error("a tensor of the model is read before it has values, so the step cannot be compiled");
    found = values_.emplace(storage, Stored{tensor.storage(), constant(*values)}).first;
  }
  const Value& value = found->second.value;
  if (value.type.element != element_type(tensor.scalar_type()))
    throw run_error("a view of a tensor with another element type cannot be compiled");
  return xla::read(text_, value, strided(tensor));
}

void Trace::write(const torch::Tensor& tensor, const Value& value) {
  RUNNER_CHECK(tensor.is_meta() && value.type == type_of(tensor), "a value of another type than its tensor");
  const auto* storage = storage_of(tensor);
  const auto elements = storage_elements(tensor);
  if (tensor.is_contiguous() && tensor.numel() == elements) {
    values_.insert_or_assign(storage, Stored{tensor.storage(), value});
    return;
  }
  auto found = values_.find(storage);
  if (found == values_.end()) {
    const auto* values = constants_.find(storage);
    const auto old = values ? constant(*values) : text_.splat(0, {value.type.element, {elements}});
    found = values_.emplace(storage, Stored{tensor.storage(), old}).first;
  }
  if (found->second.value.type.numel() != elements)
    throw run_error("a write to a part of a tensor that has grown cannot be compiled");
  found->second.value = written(text_, found->second.value, strided(tensor), value);
}

void Trace::run(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  std::vector<c10::IValue> arguments(stack.end() - std::ssize(schema.arguments()), stack.end());
  const auto* found = find_lowering(schema.operator_name());
  const Lowering* lowering = found ? &found->second : nullptr;
  const auto lower = [&](Call& call) {
    lowered_.insert(found->first);
    lowering->write(call);
  };
  const bool views = returns_views(schema);
  bool has_meta = false;
  for (const auto& argument : arguments) {
    each_tensor(argument, [&](const torch::Tensor& tensor) { has_meta |= tensor.is_meta(); });
    has_meta |= argument.isDevice() && argument.toDevice().is_meta();
  }
  if (has_meta && !lowering && !views) {
    if (const auto key = composition(op)) return op.callBoxedForDispatchKey(*key, stack);
    if (!op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) throw no_lowering(schema);
  }
  if (has_meta && lowering && lowering->makes_results) {
    auto written = written_arguments(schema, arguments);
    Call call(*this, schema, std::move(arguments), written.empty() ? std::nullopt : std::optional(std::move(written)));
    lower(call);
    torch::jit::drop(stack, schema.arguments().size());
    for (const auto& result : call.results()) stack.emplace_back(result);
    return;
  }
  {
    const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
    op.callBoxed(stack);
  }
  if (views || !has_meta) return;
  std::vector<torch::Tensor> results;
  for (auto result = stack.end() - std::ssize(schema.returns()); result != stack.end(); ++result)
    if (result->isTensorList())
      for (const auto& tensor : result->toTensorVector()) results.push_back(tensor);
    else if (result->isTensor())
      results.push_back(result->toTensor());
  if (!lowering) {
    const bool shares = !results.empty() && std::ranges::all_of(results, [&](const torch::Tensor& result) {
      return result.defined() && result.is_meta() &&
             (values_.contains(storage_of(result)) || constants_.find(storage_of(result)));
    });
    if (shares && !writes(schema)) return;  // a view that its schema does not declare
    throw no_lowering(schema);
  }
  // A table that was computed on the host.
  if (schema.name() == "aten::_to_copy" && !arguments[0].toTensor().is_meta()) {
    const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
    constants_.add(results[0], arguments[0].toTensor().detach().to(results[0].scalar_type()).contiguous().reshape(-1));
    return;
  }
  Call call(*this, schema, std::move(arguments), std::move(results));
  lower(call);
}

}  // namespace runner::xla

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&runner::xla::record>());
}
