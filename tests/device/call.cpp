#include "tests/device/call.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <set>
#include <unordered_map>

namespace runner::simulated {

namespace {

bool writes(const c10::AliasInfo* alias) {
  if (!alias) return false;
  const auto& elements = alias->containedTypes();  // of a list
  return alias->isWrite() ||
         std::any_of(elements.begin(), elements.end(), [](const auto& element) { return element.isWrite(); });
}

OperatorFacts read_schema(const c10::FunctionSchema& schema) {
  static const std::set<std::string> by_data{"aten::nonzero",    "aten::masked_select",      "aten::_unique2",
                                             "aten::unique_dim", "aten::unique_consecutive", "aten::repeat_interleave"};
  OperatorFacts facts;
  facts.name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  facts.shape_needs_data = by_data.count(schema.name()) > 0;
  for (const auto& argument : schema.arguments()) facts.writes.push_back(writes(argument.alias_info()));
  for (const auto& result : schema.returns()) {
    auto& is = facts.result_is.emplace_back();
    if (!result.alias_info()) {
      facts.makes_tensors = true;
      continue;
    }
    TORCH_CHECK(writes(result.alias_info()), facts.name,
                " makes a view, so the simulated device needs a kernel for it");
    for (size_t i = 0; i < schema.arguments().size() && !is; ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias && *alias == *result.alias_info()) is = i;
    }
    TORCH_CHECK(is, facts.name, ": no argument is its result");
  }
  return facts;
}

}  // namespace

const OperatorFacts& OperatorFacts::of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<const c10::FunctionSchema*, OperatorFacts>;
  std::lock_guard lock(mutex);
  auto found = known->find(&op.schema());
  if (found == known->end()) found = known->emplace(&op.schema(), read_schema(op.schema())).first;
  return found->second;
}

// ---- arguments

namespace {

template <typename ToTensor>
c10::IValue with_tensors(const Argument& argument, const ToTensor& to_tensor) {
  using Kind = Argument::Kind;
  if (argument.kind == Kind::tensor) return to_tensor(argument.views[0]);
  if (argument.kind == Kind::list) {
    c10::List<at::Tensor> list;
    for (const auto& view : argument.views) list.push_back(to_tensor(view));
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const auto& view : argument.views)
    list.push_back(view.defined ? std::optional<at::Tensor>(to_tensor(view)) : std::nullopt);
  return list;
}

}  // namespace

c10::IValue Argument::on_host() const {
  if (kind == Kind::other) return value;
  return with_tensors(*this, [](const View& view) { return view.on_host(); });
}

c10::IValue Argument::like(c10::Device device) const {
  if (kind == Kind::other) {
    if (value.isGenerator()) return at::detail::createCPUGenerator();
    return value.isDevice() ? c10::IValue(device) : value;
  }
  return with_tensors(*this, [&](const View& view) -> at::Tensor {
    if (!view.defined) return {};
    if (view.host.defined()) return device.is_meta() ? view.host.to(device) : view.host;
    auto tensor = at::empty_strided(view.sizes, view.strides, at::TensorOptions().dtype(view.dtype).device(device));
    return device.is_meta() ? tensor : tensor.zero_();
  });
}

// ---- the call

Call::Call(const c10::OperatorHandle& op, std::vector<c10::IValue> values)
    : op(op), facts(&OperatorFacts::of(op)), actual(std::move(values)) {
  const auto& formal = op.schema().arguments();
  for (size_t i = 0; i < actual.size(); ++i) {
    arguments.push_back(read(actual[i]));
    arguments.back().writes = facts->writes[i];
  }
  TORCH_CHECK(device >= 0, facts->name, ": no tensor is on the simulated device");
  for (size_t i = 0; i < actual.size(); ++i)
    if (actual[i].isGenerator() || (actual[i].isNone() && formal[i].name() == "generator"))
      arguments[i].value = seeded(actual[i]);
}

Argument Call::read(const c10::IValue& value) {
  using Kind = Argument::Kind;
  Argument argument;
  if (value.isTensor()) {
    argument.kind = Kind::tensor;
    add_tensor(argument, value.toTensor());
  } else if (value.isTensorList()) {
    argument.kind = Kind::list;
    for (const at::Tensor& tensor : value.toTensorList()) add_tensor(argument, tensor);
  } else if (value.isOptionalTensorList()) {
    argument.kind = Kind::optional_list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      add_tensor(argument, tensor.value_or(at::Tensor()));
  } else if (value.isDevice()) {
    if (value.toDevice().type() == device_type && device < 0)
      device = value.toDevice().has_index() ? value.toDevice().index() : current_device();
    argument.value = c10::Device(at::kCPU);
  } else {
    argument.value = value;
  }
  return argument;
}

/// CPU tensors may be among those of the device where CUDA allows it: as scalars and as indices.
void Call::add_tensor(Argument& argument, const at::Tensor& tensor) {
  if (tensor.defined() && tensor.is_cpu())
    TORCH_CHECK(tensor.dim() == 0 || argument.kind == Argument::Kind::optional_list, facts->name,
                ": a tensor on the CPU among tensors on the device");
  if (tensor.defined() && !tensor.is_cpu()) {
    TORCH_CHECK(tensor.device().type() == device_type, facts->name, ": a tensor on ", tensor.device());
    TORCH_CHECK(device < 0 || device == tensor.device().index(), facts->name, ": tensors on two devices");
    device = tensor.device().index();
  }
  argument.views.push_back(View::of(tensor));
}

c10::IValue Call::seeded(const c10::IValue& given) const {
  auto generator = given.isGenerator() ? given.toGenerator() : machine().generator(device);
  std::lock_guard lock(generator.mutex());
  return at::detail::createCPUGenerator(at::check_generator<at::CPUGeneratorImpl>(generator)->random64());
}

torch::jit::Stack Call::run() const {
  torch::jit::Stack stack;
  for (const auto& argument : arguments) stack.push_back(argument.on_host());
  // LibTorch destroys the arguments on the stack before it pushes results that refer to them (make_boxed_from_unboxed_functor.h).
  const torch::jit::Stack alive = stack;
  run_as_kernel([&] { op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack); });
  return stack;
}

void Call::require_memory() const {
  for (const auto& argument : arguments)
    for (const auto& view : argument.views) view.require_memory(facts->name.c_str());
}

void Call::note(Stream& stream) const {
  for (bool writes : {false, true})
    for (const auto& argument : arguments)
      if (argument.writes == writes)
        for (const auto& view : argument.views) view.note(stream, writes, facts->name.c_str());
}

/// Operands of a product are the first two matrices, or in addmm those after the summand.
double Call::seconds(const Speeds& speeds) const {
  static const std::set<std::string> products{"aten::mm.out", "aten::bmm.out", "aten::addmm.out", "aten::baddbmm.out"};
  double bytes = 0;
  for (const auto& argument : arguments)
    for (const auto& view : argument.views)
      if (view.defined) bytes += static_cast<double>(view.numel()) * static_cast<double>(c10::elementSize(view.dtype));
  if (!products.contains(facts->name)) return bytes / speeds.bytes;
  const size_t first = facts->name.find("add") == std::string::npos ? 0 : 1;
  const auto &a = arguments[first].views[0], &b = arguments[first + 1].views[0];
  return 2 * static_cast<double>(a.numel()) * static_cast<double>(b.sizes.back()) / speeds.flops;
}

bool Call::is_unshaped_output(size_t i) const {
  return op.schema().arguments()[i].kwarg_only() && arguments[i].writes &&
         arguments[i].kind == Argument::Kind::tensor && arguments[i].views[0].defined &&
         arguments[i].views[0].numel() == 0;
}

void run_as_kernel(const std::function<void()>& body) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  body();
}

}  // namespace runner::simulated
