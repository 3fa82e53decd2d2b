#include "strategies/contract/recompute.hpp"

#include <ATen/autocast_mode.h>

namespace runner {

namespace {

using Run = std::function<torch::Tensor(const torch::Tensor&)>;

/// Autocast as it was during forward: backward runs outside of any region.
struct AutocastState {
  at::DeviceType device;
  bool enabled;
  at::ScalarType dtype;
  explicit AutocastState(at::DeviceType device)
      : device(device),
        enabled(at::autocast::is_autocast_enabled(device)),
        dtype(at::autocast::get_autocast_dtype(device)) {}
  void apply() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
  }
};

struct Holder : torch::CustomClassHolder {
  Holder(Run run, AutocastState autocast) : run(std::move(run)), autocast(autocast) {}
  Run run;
  AutocastState autocast;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               at::TensorList parameters, const Run& run) {
    context->save_for_backward({x});
    context->saved_data["holder"] =
        c10::IValue::make_capsule(c10::make_intrusive<Holder>(run, AutocastState(x.device().type())));
    // Handles only: whoever frees and gathers storage does so behind the same tensors.
    context->saved_data["parameters"] = parameters.vec();
    torch::NoGradGuard no_grad;
    return run(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto x = context->get_saved_variables()[0].detach();
    x.requires_grad_(true);
    auto parameters = context->saved_data["parameters"].toTensorVector();
    auto capsule = context->saved_data["holder"].toCapsule();
    auto* holder = static_cast<Holder*>(capsule.get());
    torch::Tensor output;
    {
      torch::AutoGradMode grad(true);
      AutocastState outside(x.device().type());
      holder->autocast.apply();
      output = holder->run(x);
      if (holder->autocast.enabled) at::autocast::clear_cache();
      outside.apply();
    }
    std::vector<torch::Tensor> inputs{x};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    auto result =
        torch::autograd::grad({output}, inputs, {gradients[0]}, /*retain_graph=*/false, /*create_graph=*/false,
                              /*allow_unused=*/true);
    result.push_back({});  // for `run`
    return result;
  }
};

}  // namespace

torch::Tensor recompute(const torch::Tensor& x, const std::vector<torch::Tensor>& parameters, Run run) {
  return Recompute::apply(x, at::TensorList(parameters), run);
}

}  // namespace runner
