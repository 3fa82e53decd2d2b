#include "runner/sweep/methods.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/option_table.hpp"
#include "runner/sweep/random_bits.hpp"

namespace runner::sweep {

namespace {

using nlohmann::json;
using Type = Option::Type;

MethodEntry grid_method() {
  return {.name = "grid",
          .help = "every combination of values",
          .needs_trials = false,
          .make = [](const Space& space, uint64_t, const json&) { return make_grid(space); }};
}

MethodEntry random_method() {
  return {.name = "random", .help = "independent draws", .make = [](const Space& space, uint64_t seed, const json&) {
            return make_random(space, seed);
          }};
}

struct SobolOptions {
  bool scramble = true;
};
const OptionTable<SobolOptions>& sobol_options() {
  static const auto table = OptionTable<SobolOptions>().add(
      {.name = "scramble", .help = "Owen scrambling by the sweep's seed"}, &SobolOptions::scramble);
  return table;
}

MethodEntry sobol_method() {
  return {.name = "sobol",
          .help = "a low-discrepancy sequence, which covers the space evenly",
          .options = sobol_options().options(),
          .make = [](const Space& space, uint64_t seed, const json& options) {
            return make_sobol(space, seed, sobol_options().read(options).scramble);
          }};
}

const OptionTable<TpeOptions>& tpe_options() {
  using O = TpeOptions;
  static const auto table =
      OptionTable<O>()
          .add({.name = "n_startup_trials", .help = "number of random trials before the first estimate", .minimum = 1},
               &O::n_startup_trials)
          .add({.name = "n_ei_candidates",
                .help = "number of draws, of which the most promising is proposed",
                .minimum = 1,
                .maximum = 100'000},
               &O::n_ei_candidates)
          .add({.name = "gamma",
                .help = "fraction of the trials that count as good, at most 25 trials",
                .minimum = 0.001,
                .maximum = 0.999},
               &O::gamma)
          .add({.name = "prior_weight", .help = "weight of the prior; a trial has the weight 1", .minimum = 1e-9},
               &O::prior_weight)
          .add({.name = "multivariate", .help = "one joint estimate of all parameters, not one for each"},
               &O::multivariate)
          .add({.name = "constant_liar", .help = "running trials count as bad trials"}, &O::constant_liar);
  return table;
}

MethodEntry tpe_method() {
  return {.name = "tpe",
          .help = "tree-structured Parzen estimator: learns from ended trials",
          .options = tpe_options().options(),
          .make = [](const Space& space, uint64_t seed, const json& options) {
            return make_tpe(space, seed, tpe_options().read(options));
          }};
}

const OptionTable<AshaOptions>& asha_options() {
  using O = AshaOptions;
  static const auto table = OptionTable<O>()
                                .add({.name = "min_steps",
                                      .help = "number of steps before the first decision",
                                      .minimum = 1,
                                      .required = true},
                                     &O::min_steps)
                                .add({.name = "reduction_factor",
                                      .help = "the best 1/reduction_factor continue at each decision",
                                      .minimum = 2,
                                      .maximum = 1000},
                                     &O::reduction_factor)
                                .add({.name = "sampler",
                                      .type = Type::choice,
                                      .help = "method that proposes the trials",
                                      .choices = {"random", "sobol", "tpe"}},
                                     &O::sampler);
  return table;
}

MethodEntry asha_method() {
  return {.name = "asha",
          .help = "asynchronous successive halving: stops the worse trials early",
          .options = asha_options().options(),
          .uses_reports = true,
          .make = [](const Space& space, uint64_t seed, const json& given) {
            const auto options = asha_options().read(given);
            return make_asha(make_method(options.sampler, space, seed), options);
          }};
}

const OptionTable<PbtOptions>& pbt_options() {
  using O = PbtOptions;
  static const auto table =
      OptionTable<O>()
          .add({.name = "population", .help = "number of members", .minimum = 2, .maximum = 100'000}, &O::population)
          .add({.name = "interval", .help = "number of steps in a generation", .minimum = 1, .required = true},
               &O::interval)
          .add({.name = "generations", .help = "number of generations", .minimum = 1, .required = true},
               &O::generations)
          .add({.name = "quantile",
                .help = "fraction of the members that is replaced by the same fraction of the best",
                .minimum = 0.001,
                .maximum = 0.5},
               &O::quantile)
          .add({.name = "resample_probability",
                .help = "probability that a parameter of a replaced member is drawn from the space again",
                .minimum = 0,
                .maximum = 1},
               &O::resample_probability)
          .add({.name = "factors",
                .type = Type::numbers,
                .help = "a number that is not drawn again is multiplied by one of these",
                .minimum = 1e-6,
                .maximum = 1e6},
               &O::factors);
  return table;
}

MethodEntry pbt_method() {
  return {.name = "pbt",
          .help = "population based training: weights and parameters of the best replace those of the worst",
          .options = pbt_options().options(),
          .needs_trials = false,
          .make = [](const Space& space, uint64_t seed, const json& options) {
            return make_pbt(space, seed, pbt_options().read(options));
          }};
}

/// Independent draws: those of trial k are a function of (seed, k).
class Random : public Method {
 public:
  Random(const Space& space, uint64_t seed) : space_(space), seed_(seed) {}

  Proposal propose(int64_t number) override {
    return Proposal::of({number, random_point(space_, seed_, static_cast<uint64_t>(number))});
  }
  void finished(const Trial&, const Ending&) override {}

 private:
  Space space_;
  uint64_t seed_;
};

}  // namespace

const std::vector<MethodEntry>& methods() {
  static const std::vector<MethodEntry> list = {grid_method(), random_method(), sobol_method(),
                                                tpe_method(),  asha_method(),   pbt_method()};
  return list;
}

const MethodEntry* find_method(const std::string& name) {
  auto found = std::find_if(methods().begin(), methods().end(), [&](const auto& entry) { return entry.name == name; });
  return found == methods().end() ? nullptr : &*found;
}

std::optional<int64_t> trials_without_results(const std::string& method, const json& options) {
  if (method == "tpe") return tpe_options().read(options).n_startup_trials;
  if (method == "pbt") return pbt_options().read(options).population;
  if (method == "asha") return trials_without_results(asha_options().read(options).sampler, json::object());
  return std::nullopt;
}

std::unique_ptr<Method> make_method(const std::string& name, const Space& space, uint64_t seed, const json& options) {
  const MethodEntry* entry = find_method(name);
  if (!entry) throw usage_error("there is no method \"{}\"", name);
  for (const auto& option : entry->options)
    if (option.required && !options.contains(option.name))
      throw usage_error("the method {} needs `{}`: {}", name, option.name, option.help);
  return entry->make(space, seed, options);
}

nlohmann::json random_point(const Space& space, uint64_t seed, uint64_t stream) {
  RandomBits random(seed, stream);
  for (int draw = 0; draw < Space::draws_max; ++draw) {
    auto point = space.point([&](size_t, const Parameter& parameter) { return parameter.at(random.uniform()); });
    if (space.accepts(point)) return point;
  }
  space.nothing_left(Space::draws_max);
}

std::unique_ptr<Method> make_random(const Space& space, uint64_t seed) { return std::make_unique<Random>(space, seed); }

}  // namespace runner::sweep
