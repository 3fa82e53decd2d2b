#include "strategies/contract/recompute.hpp"

#include <ATen/autocast_mode.h>

namespace runner {

namespace {

using Run = std::function<torch::Tensor(const torch::Tensor&)>;

/// The autocast settings during forward. Backward needs them, because it runs outside of the Autocast scope.
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

/// Applies a state, and restores the previous one at the end of the scope, also after an exception.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& inside) : outside_(inside.device), clears_cache_(inside.enabled) {
    inside.apply();
  }
  ~AutocastScope() {
    if (clears_cache_) at::autocast::clear_cache();
    outside_.apply();
  }
  AutocastScope(const AutocastScope&) = delete;

 private:
  AutocastState outside_;
  bool clears_cache_;
};

struct Holder : torch::CustomClassHolder {
  Holder(Run run, AutocastState autocast, HostCheckpoints* host)
      : run(std::move(run)), autocast(autocast), host(host) {}
  Run run;
  AutocastState autocast;
  HostCheckpoints* host;  ///< null: autograd keeps the input
  std::shared_ptr<HostCheckpoints::Input> input;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               at::TensorList parameters, const Run& run, HostCheckpoints* host) {
    auto holder = c10::make_intrusive<Holder>(run, AutocastState(x.device().type()), host);
    if (host)
      holder->input = host->keep(x);
    else
      context->save_for_backward({x});
    context->saved_data["holder"] = c10::IValue::make_capsule(holder);
    // Saves the tensor handles, not their values: strategies may free and refill the storage of these tensors in the meantime.
    context->saved_data["parameters"] = parameters.vec();
    torch::NoGradGuard no_grad;
    return run(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto parameters = context->saved_data["parameters"].toTensorVector();
    auto capsule = context->saved_data["holder"].toCapsule();
    auto* holder = static_cast<Holder*>(capsule.get());
    auto x = holder->host ? holder->host->take(*holder->input) : context->get_saved_variables()[0].detach();
    x.requires_grad_(true);
    torch::Tensor output;
    {
      torch::AutoGradMode grad(true);
      AutocastScope autocast(holder->autocast);
      output = holder->run(x);
    }
    std::vector<torch::Tensor> inputs{x};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    auto result =
        torch::autograd::grad({output}, inputs, {gradients[0]}, /*retain_graph=*/false, /*create_graph=*/false,
                              /*allow_unused=*/true);
    result.insert(result.end(), 2, {});  // for `run` and `host`
    return result;
  }
};

}  // namespace

torch::Tensor recompute(const torch::Tensor& x, const std::vector<torch::Tensor>& parameters, Run run,
                        HostCheckpoints* host) {
  return Recompute::apply(x, at::TensorList(parameters), run, host);
}

}  // namespace runner
