// Population based training, a generation at a time.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/sweep/methods.hpp"
#include "runner/sweep/random_bits.hpp"

namespace runner::sweep {

namespace {

/// Trial g x population + m trains member m through generation g.
class Pbt : public Method {
 public:
  Pbt(const Space& space, uint64_t seed, const PbtOptions& options) : space_(space), seed_(seed), options_(options) {}

  Proposal propose(int64_t number) override {
    if (number >= *count({})) return {};
    int64_t generation = number / options_.population, member = number % options_.population;
    Trial trial{number, {}, {}, (generation + 1) * options_.interval};
    if (generation == 0) {
      trial.parameters = random_point(space_, seed_, static_cast<uint64_t>(number));
      return Proposal::of(std::move(trial));
    }
    if (member == 0 && !breed(generation)) return stuck_ ? Proposal{} : Proposal::waiting();
    const auto& bred = next_[static_cast<size_t>(member)];
    trial.parameters = bred.parameters;
    trial.from_trial = bred.from_trial;
    return Proposal::of(std::move(trial));
  }

  void finished(const Trial& trial, const Ending& ending) override {
    bool failed = ending.kind == Ending::Kind::failed;
    ended_[trial.number] = {
        trial.parameters, failed || std::isnan(ending.value) ? std::numeric_limits<double>::infinity() : ending.value};
  }

  std::optional<int64_t> count(std::optional<int64_t>) const override {
    return options_.population * options_.generations;
  }

 private:
  struct Member {
    nlohmann::json parameters;
    double value;
  };
  struct Bred {
    nlohmann::json parameters;
    int64_t from_trial;
  };

  /// Makes `next_` from the previous generation. Returns false if that is not complete, or if none of its trials finished (stuck_).
  bool breed(int64_t generation) {
    int64_t first = (generation - 1) * options_.population;
    std::vector<int64_t> order(static_cast<size_t>(options_.population));
    std::iota(order.begin(), order.end(), first);
    if (!std::all_of(order.begin(), order.end(), [&](int64_t trial) { return ended_.contains(trial); })) return false;
    auto value = [&](int64_t trial) { return ended_.at(trial).value; };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value(a) < value(b); });
    auto sound = static_cast<size_t>(
        std::count_if(order.begin(), order.end(), [&](int64_t trial) { return std::isfinite(value(trial)); }));
    stuck_ = sound == 0;
    if (stuck_) return false;
    auto quarter = std::max<size_t>(1, static_cast<size_t>(options_.quantile * static_cast<double>(order.size())));
    size_t best = std::min(quarter, sound);
    next_.assign(order.size(), {});
    for (size_t rank = 0; rank < order.size(); ++rank) {
      int64_t trial = order[rank];
      bool replaced = rank >= order.size() - quarter || !std::isfinite(value(trial));
      RandomBits random(seed_, static_cast<uint64_t>(trial + options_.population));
      int64_t source = replaced && rank >= best ? order[random.below(best)] : trial;
      next_[static_cast<size_t>(trial - first)] = {
          source == trial ? ended_.at(trial).parameters : explore(ended_.at(source).parameters, random), source};
    }
    return true;
  }

  nlohmann::json explore(const nlohmann::json& from, RandomBits& random) const {
    for (int draw = 0; draw < Space::draws_max; ++draw) {
      auto point = space_.point([&](size_t, const Parameter& parameter) -> nlohmann::json {
        bool resample = random.uniform() < options_.resample_probability;
        double u = random.uniform();
        if (resample || !from.contains(parameter.name)) return parameter.at(u);
        return parameter.kind == Parameter::Kind::choice ? from.at(parameter.name)
                                                         : perturbed(parameter, from.at(parameter.name), u);
      });
      if (space_.accepts(point)) return point;
    }
    space_.nothing_left(Space::draws_max);
  }

  nlohmann::json perturbed(const Parameter& parameter, const nlohmann::json& value, double u) const {
    double factor = options_.factors[static_cast<size_t>(u * static_cast<double>(options_.factors.size()))];
    double number = value.get<double>() * factor - static_cast<double>(parameter.origin);
    number = std::clamp(number, parameter.low, parameter.high);
    return parameter.at(std::clamp(parameter.unit_of(number), 0.0, std::nextafter(1.0, 0.0)));
  }

  Space space_;
  uint64_t seed_;
  PbtOptions options_;
  std::map<int64_t, Member> ended_;
  std::vector<Bred> next_;
  bool stuck_ = false;
};

}  // namespace

std::unique_ptr<Method> make_pbt(const Space& space, uint64_t seed, const PbtOptions& options) {
  return std::make_unique<Pbt>(space, seed, options);
}

}  // namespace runner::sweep
