// noop_hook: gradients are not communicated. They become those of the mean over the rank's own rows.
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/base_reducer.hpp"

namespace runner {

namespace {

class Noop : public BaseReducer {
 public:
  using BaseReducer::BaseReducer;

 protected:
  void start(size_t, torch::Tensor&) override {}
  void complete(size_t, torch::Tensor& values) override { to_own_mean(values); }
};

}  // namespace

std::shared_ptr<Reducer> make_noop(World& world, const ReducerPlan& plan) {
  return std::make_shared<Noop>(world, plan);
}

}  // namespace runner
