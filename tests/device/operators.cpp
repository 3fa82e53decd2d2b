#include "tests/device/operators.hpp"

#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "tests/device/shapes.hpp"

namespace runner::simulated {

namespace {

/// Gives `out` tensors without elements the shapes of the results that they are.
void shape_outputs(Call& call, const Shapes& shapes) {
  for (size_t result = 0; result < shapes.size(); ++result) {
    auto argument = call.facts->result_is[result];
    if (!argument || !call.is_unshaped_output(*argument)) continue;
    auto tensor = call.actual[*argument].toTensor();
    if (tensor.sizes() != at::IntArrayRef(shapes[result].at(0).sizes)) tensor.resize_(shapes[result][0].sizes);
    call.arguments[*argument].views[0] = View::of(tensor);
  }
}

struct Results {
  std::vector<c10::IValue> values;
  std::vector<std::vector<View>> views;  ///< by result; empty if it is an argument
};

Results make_results(const Call& call, const Shapes& shapes) {
  Results results;
  c10::Device device(device_type, static_cast<c10::DeviceIndex>(call.device));
  for (size_t i = 0; i < call.facts->result_is.size(); ++i) {
    auto& views = results.views.emplace_back();
    if (auto argument = call.facts->result_is[i]) {
      results.values.push_back(call.actual[*argument]);
      continue;
    }
    std::vector<at::Tensor> tensors;
    for (const auto& shape : shapes[i]) {
      auto options = at::TensorOptions().dtype(shape.dtype).device(device);
      tensors.push_back(shape.defined ? at::empty_strided(shape.sizes, shape.strides, options) : at::Tensor());
      views.push_back(View::of(tensors.back()));
    }
    bool list = call.op.schema().returns()[i].type()->kind() == c10::TypeKind::ListType;
    results.values.push_back(list ? c10::IValue(c10::List<at::Tensor>(tensors)) : c10::IValue(tensors.at(0)));
  }
  return results;
}

void copy_to(const std::vector<View>& views, const c10::IValue& value) {
  if (views.empty()) return;
  auto tensors = value.isTensor() ? std::vector<at::Tensor>{value.toTensor()} : value.toTensorVector();
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined() && views[i].defined) views[i].on_host().copy_(tensors[i]);
}

/// Counts the call and checks it; then it can be entered.
Stream& begin(const Call& call, bool waits) {
  Machine& all = machine();
  ++all.operators.all[call.facts->name];
  if (waits) ++all.operators.waited[call.facts->name];
  check_device(call.device, call.facts->name.c_str());
  call.require_memory();
  return current_stream(call.device);
}

/// What a task keeps of a call.
std::shared_ptr<const Call> without_tensors(const Call& call) {
  auto kept = std::make_shared<Call>(call);
  kept->actual.clear();
  return kept;
}

std::vector<c10::IValue> run_later(const Call& call, const Shapes& shapes) {
  Results results = make_results(call, shapes);
  Lock lock = machine().lock();
  Stream& stream = begin(call, false);
  auto kernel = [kept = without_tensors(call), views = results.views] {
    auto values = kept->run();
    run_as_kernel([&] {
      for (size_t i = 0; i < views.size(); ++i) copy_to(views[i], values[i]);
    });
  };
  const double seconds = call.seconds(machine().schedule.speeds());
  machine().schedule.enter(stream, {.kernel = std::move(kernel), .seconds = seconds});
  call.note(stream);
  for (const auto& views : results.views)
    for (const auto& view : views) view.note(stream, /*writes=*/true, call.facts->name.c_str());
  machine().run_some(call.device);
  return std::move(results.values);
}

std::vector<c10::IValue> run_and_wait(const Call& call) {
  auto values = std::make_shared<torch::jit::Stack>();
  {
    Lock lock = machine().lock();
    Stream& stream = begin(call, true);
    machine().schedule.enter(stream, {.kernel = [values, kept = without_tensors(call)] { *values = kept->run(); },
                                      .seconds = call.seconds(machine().schedule.speeds())});
    call.note(stream);
    machine().host_waits(lock, machine().schedule.record(stream));
  }
  c10::Device device(device_type, static_cast<c10::DeviceIndex>(call.device));
  for (size_t i = 0; i < values->size(); ++i) {
    c10::IValue& value = (*values)[i];
    if (auto argument = call.facts->result_is[i])
      value = call.actual[*argument];
    else if (value.isTensor() && value.toTensor().defined())
      value = value.toTensor().to(device);
  }
  return std::move(*values);
}

}  // namespace

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  size_t count = op.schema().arguments().size();
  Call call(op, std::vector<c10::IValue>(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end()));
  bool unshaped = false;
  for (size_t i = 0; i < count; ++i) unshaped = unshaped || call.is_unshaped_output(i);
  std::optional<Shapes> shapes = Shapes();
  if (call.facts->shape_needs_data)
    shapes.reset();
  else if (call.facts->makes_tensors || unshaped)
    shapes = shapes_of_results(call);
  if (shapes && unshaped) shape_outputs(call, *shapes);
  auto results = shapes ? run_later(call, *shapes) : run_and_wait(call);
  torch::jit::drop(*stack, count);
  for (auto& result : results) stack->push_back(std::move(result));
}

}  // namespace runner::simulated

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&runner::simulated::run_operator>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  // LibTorch would decompose these for a device that it does not know. CUDA has kernels for them, and the CPU's have
  // other bits.
  for (const char* name : {"native_layer_norm", "silu_backward"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&runner::simulated::run_operator>());
}
