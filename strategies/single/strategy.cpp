// `single`: every parameter is a separate leaf tensor, and its gradient is the tensor that autograd accumulates.
#include "strategies/contract/strategy.hpp"
#include "strategies/single/strategy.hpp"

namespace runner {

namespace {

class Single : public Strategy {
 public:
  using Strategy::Strategy;

  void module_to_device() override { place_whole_copy(); }

 protected:
  void begin_micro_batch(bool) override {}

  std::vector<torch::Tensor> finish_gradients() override {
    std::vector<torch::Tensor> gradients;
    for (auto& slot : model_.slots) gradients.push_back(slot.grad().reshape({-1}));
    return gradients;
  }

  bool counts_in_norm() const override { return true; }

  void after_update(bool) override {
    for (auto& slot : model_.slots) slot.mutable_grad().reset();
  }
};

}  // namespace

std::unique_ptr<Strategy> make_single(StrategySetup setup) { return std::make_unique<Single>(std::move(setup)); }

}  // namespace runner
