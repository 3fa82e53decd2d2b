// A method that asks functions: what scripts plug into.
#include "runner/base/error.hpp"
#include "runner/sweep/methods.hpp"

namespace runner::sweep {

namespace {

class Callback : public Method {
 public:
  Callback(const Space& space, MethodCallbacks callbacks) : space_(space), callbacks_(std::move(callbacks)) {}

  Proposal propose(int64_t number) override {
    auto parameters = callbacks_.propose(number);
    if (parameters.is_null()) return {};
    if (!space_.accepts(parameters))
      throw usage_error("trial {} was proposed with {}, which the constraints reject", number, parameters.dump());
    return Proposal::of({number, std::move(parameters)});
  }
  bool wants(int64_t, int64_t) const override { return static_cast<bool>(callbacks_.report); }
  Verdict report(int64_t trial, int64_t step, double value) override {
    return callbacks_.report ? callbacks_.report(trial, step, value) : Verdict::go_on;
  }
  void finished(const Trial& trial, const Ending& ending) override { callbacks_.finished(trial, ending); }

 private:
  Space space_;
  MethodCallbacks callbacks_;
};

}  // namespace

std::unique_ptr<Method> make_callback_method(const Space& space, MethodCallbacks callbacks) {
  return std::make_unique<Callback>(space, std::move(callbacks));
}

}  // namespace runner::sweep
