#include "tests/xla/run_traced.hpp"

#include "strategies/pjrt/client.hpp"
#include "strategies/xla/trace.hpp"
#include "tests/pjrt/run_program.hpp"

namespace runner::testing {

namespace {

using pjrt::Buffer;
using pjrt::ModuleText;

struct TracedProgram {
  std::string text;
  std::set<std::string> lowered;
};

TracedProgram traced(const TensorFunction& function, const Tensors& inputs) {
  ModuleText text(1);
  xla::Constants constants;
  xla::Trace trace(text, constants);
  Tensors arguments;
  const xla::StepNumbers step{.dropout_key = text.whole(step_dropout_key, {pjrt::ElementType::int64, {}}),
                              .first_row = text.whole(step_first_row, {pjrt::ElementType::int64, {}})};
  trace.use(step);
  for (const auto& input : inputs)
    arguments.push_back(trace.tensor(text.argument(xla::type_of(input))).requires_grad_(input.requires_grad()));
  std::vector<ModuleText::Output> outputs;
  {
    const xla::Trace::Recording recording(trace);
    for (const auto& output : function(arguments)) outputs.push_back({trace.read(output)});
  }
  return {text.finish(outputs), trace.lowered()};
}

const pjrt::Client& client() {
  static const pjrt::Client one(loaded_cpu_plugin(), {.cpu_devices = 1});
  return one;
}

Buffer uploaded(const torch::Tensor& values) {
  const auto dense = values.detach().contiguous();
  return client().upload({static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes()},
                         xla::element_type(dense.scalar_type()), dense.sizes().vec(), 0);
}

torch::Tensor downloaded(const Buffer& buffer) {
  const auto values = torch::empty(buffer.shape(), xla::scalar_type(buffer.type()));
  buffer.read({static_cast<std::byte*>(values.data_ptr()), values.nbytes()});
  return values;
}

/// Numbers between -1 and 1.
torch::Tensor weights_like(const torch::Tensor& output) {
  const auto places = torch::arange(output.numel(), output.options().dtype(torch::kFloat64));
  return (places * 0.7 + 0.3).cos().to(output.scalar_type()).view(output.sizes());
}

}  // namespace

TracedResult run_traced(const TensorFunction& function, const Tensors& inputs) {
  const auto program = traced(function, inputs);
  const auto compiled = client().compile(program.text, on_replicas(1));
  std::vector<Buffer> buffers;
  std::vector<const Buffer*> arguments;
  for (const auto& input : inputs) buffers.push_back(uploaded(input));
  for (const auto& buffer : buffers) arguments.push_back(&buffer);
  auto execution = compiled.execute({arguments});
  execution.wait();
  TracedResult result{.outputs = {}, .lowered = program.lowered};
  for (const auto& buffer : execution.outputs[0]) result.outputs.push_back(downloaded(buffer));
  return result;
}

std::string traced_text(const TensorFunction& function, const Tensors& inputs) { return traced(function, inputs).text; }

TensorFunction with_gradients(TensorFunction function) {
  return [function = std::move(function)](const Tensors& inputs) {
    Tensors leaves, wanted, ends, weights;
    for (const auto& input : inputs) {
      leaves.push_back(input.detach().requires_grad_(input.requires_grad()));
      if (input.requires_grad()) wanted.push_back(leaves.back());
    }
    auto results = function(leaves);
    for (auto& result : results) {
      if (!result.requires_grad()) continue;
      ends.push_back(result);
      weights.push_back(weights_like(result));
    }
    if (!ends.empty())
      for (const auto& gradient : torch::autograd::grad(ends, wanted, weights, /*retain_graph=*/false,
                                                        /*create_graph=*/false, /*allow_unused=*/true))
        if (gradient.defined()) results.push_back(gradient);
    for (auto& result : results) result = result.detach();
    return results;
  };
}

}  // namespace runner::testing
