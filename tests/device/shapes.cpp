#include "tests/device/shapes.hpp"

#include <sstream>
#include <unordered_map>
#include <unordered_set>

namespace runner::simulated {

namespace {

std::string key_of(const Call& call) {
  std::ostringstream key;
  key << call.facts->name;
  for (const auto& argument : call.arguments) {
    key << '|';
    if (argument.kind == Argument::Kind::other && !argument.value.isGenerator()) key << argument.value;
    for (const auto& view : argument.views)
      key << view.defined << view.sizes << view.strides << static_cast<int>(view.dtype);
  }
  return key.str();
}

Shape shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true, tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
}

/// LibTorch's own kernels without values. The profiler of blocks adds others, which tell the memory of kernels, and not
/// always their shapes.
const std::unordered_set<c10::OperatorName>& with_own_shapes() {
  static const auto* const names = [] {
    const auto all = c10::Dispatcher::singleton().getAllOpNamesForDispatchKey(c10::DispatchKey::Meta);
    return new std::unordered_set<c10::OperatorName>(all.begin(), all.end());
  }();
  return *names;
}
[[maybe_unused]] const auto& listed_at_start = with_own_shapes();

std::optional<Shapes> find_out(const Call& call) {
  const bool has_meta = with_own_shapes().contains(call.op.operator_name());
  torch::jit::Stack stack;
  for (const auto& argument : call.arguments) stack.push_back(argument.like(has_meta ? at::kMeta : at::kCPU));
  run_as_kernel([&] {
    call.op.redispatchBoxed(c10::DispatchKeySet(has_meta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU), &stack);
  });
  Shapes shapes;
  for (const auto& result : stack) {
    auto& tensors = shapes.emplace_back();
    if (result.isTensor()) {
      tensors.push_back(shape_of(result.toTensor()));
    } else if (result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorList()) tensors.push_back(shape_of(tensor));
    } else {
      return std::nullopt;
    }
  }
  return shapes;
}

}  // namespace

std::optional<Shapes> shapes_of_results(const Call& call) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<std::string, std::optional<Shapes>>;
  auto key = key_of(call);
  std::lock_guard lock(mutex);
  auto found = known->find(key);
  if (found == known->end()) found = known->emplace(key, find_out(call)).first;
  return found->second;
}

}  // namespace runner::simulated
