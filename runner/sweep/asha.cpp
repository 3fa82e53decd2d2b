// Asynchronous successive halving, the form that stops trials.
#include <algorithm>
#include <cmath>
#include <map>

#include "runner/sweep/methods.hpp"

namespace runner::sweep {

namespace {

class Asha : public Method {
 public:
  Asha(std::unique_ptr<Method> sampler, const AshaOptions& options) : sampler_(std::move(sampler)), options_(options) {}

  Proposal propose(int64_t number) override { return sampler_->propose(number); }
  bool adopt(const Trial& recorded) override { return sampler_->adopt(recorded); }

  bool wants(int64_t trial, int64_t step) const override {
    auto found = rung_.find(trial);
    return step >= steps_of(found == rung_.end() ? 0 : found->second);
  }

  /// A trial whose reports skip a rung is judged at the highest rung that it has reached.
  Verdict report(int64_t trial, int64_t step, double value) override {
    int64_t& rung = rung_[trial];
    while (step >= steps_of(rung + 1)) ++rung;
    if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
    auto& values = values_[rung++];
    values.insert(std::upper_bound(values.begin(), values.end(), value), value);
    auto promoted = std::max<size_t>(1, values.size() / static_cast<size_t>(options_.reduction_factor));
    return value <= values[promoted - 1] && std::isfinite(value) ? Verdict::go_on : Verdict::stop;
  }

  void finished(const Trial& trial, const Ending& ending) override { sampler_->finished(trial, ending); }

 private:
  int64_t steps_of(int64_t rung) const {
    int64_t steps = options_.min_steps;
    while (rung-- > 0 && steps < std::numeric_limits<int64_t>::max() / options_.reduction_factor)
      steps *= options_.reduction_factor;
    return steps;
  }

  std::unique_ptr<Method> sampler_;
  AshaOptions options_;
  std::map<int64_t, int64_t> rung_;                ///< trial -> its next rung
  std::map<int64_t, std::vector<double>> values_;  ///< rung -> values reported there, ascending
};

}  // namespace

std::unique_ptr<Method> make_asha(std::unique_ptr<Method> sampler, const AshaOptions& options) {
  return std::make_unique<Asha>(std::move(sampler), options);
}

}  // namespace runner::sweep
