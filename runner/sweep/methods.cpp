#include "runner/sweep/methods.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner::sweep {

namespace {

using nlohmann::json;
using Kind = MethodOption::Kind;

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

MethodEntry sobol_method() {
  return {.name = "sobol",
          .help = "a low-discrepancy sequence, which covers the space evenly",
          .options = {{.name = "scramble", .kind = Kind::boolean, .help = "Owen scrambling by the sweep's seed",
                       .default_value = true}},
          .make = [](const Space& space, uint64_t seed, const json& options) {
            return make_sobol(space, seed, options.at("scramble"));
          }};
}

std::vector<MethodOption> tpe_options() {
  return {
      {.name = "n_startup_trials", .kind = Kind::integer, .help = "number of random trials before the first estimate",
       .default_value = 10, .minimum = 1},
      {.name = "n_ei_candidates", .kind = Kind::integer,
       .help = "number of draws, of which the most promising is proposed",
       .default_value = 24, .minimum = 1, .maximum = 100'000},
      {.name = "gamma", .kind = Kind::number, .help = "fraction of the trials that count as good, at most 25 trials",
       .default_value = 0.1, .minimum = 0.001, .maximum = 0.999},
      {.name = "prior_weight", .kind = Kind::number, .help = "weight of the prior; a trial has the weight 1",
       .default_value = 1.0, .minimum = 1e-9},
      {.name = "multivariate", .kind = Kind::boolean, .help = "one joint estimate of all parameters, not one for each",
       .default_value = true},
      {.name = "constant_liar", .kind = Kind::boolean, .help = "running trials count as bad trials",
       .default_value = true},
  };
}

MethodEntry tpe_method() {
  return {.name = "tpe",
          .help = "tree-structured Parzen estimator: learns from ended trials",
          .options = tpe_options(),
          .make = [](const Space& space, uint64_t seed, const json& options) {
            return make_tpe(space, seed,
                            {.n_startup_trials = options.at("n_startup_trials"),
                             .n_ei_candidates = options.at("n_ei_candidates"),
                             .gamma = options.at("gamma"),
                             .prior_weight = options.at("prior_weight"),
                             .multivariate = options.at("multivariate"),
                             .constant_liar = options.at("constant_liar")});
          }};
}

std::vector<MethodOption> asha_options() {
  return {
      {.name = "min_steps", .kind = Kind::integer, .help = "number of steps before the first decision", .minimum = 1},
      {.name = "reduction_factor", .kind = Kind::integer,
       .help = "the best 1/reduction_factor continue at each decision",
       .default_value = 4, .minimum = 2, .maximum = 1000},
      {.name = "sampler", .kind = Kind::choice, .help = "method that proposes the trials", .default_value = "random",
       .choices = {"random", "sobol", "tpe"}},
  };
}

MethodEntry asha_method() {
  return {.name = "asha",
          .help = "asynchronous successive halving: stops the worse trials early",
          .options = asha_options(),
          .uses_reports = true,
          .make = [](const Space& space, uint64_t seed, const json& options) {
            return make_asha(
                make_method(options.at("sampler"), space, seed),
                {.min_steps = options.at("min_steps"), .reduction_factor = options.at("reduction_factor")});
          }};
}

std::vector<MethodOption> pbt_options() {
  return {
      {.name = "population", .kind = Kind::integer, .help = "number of members", .default_value = 8,
       .minimum = 2, .maximum = 100'000},
      {.name = "interval", .kind = Kind::integer, .help = "number of steps in a generation", .minimum = 1},
      {.name = "generations", .kind = Kind::integer, .help = "number of generations", .minimum = 1},
      {.name = "quantile", .kind = Kind::number,
       .help = "fraction of the members that is replaced by the same fraction of the best",
       .default_value = 0.25, .minimum = 0.001, .maximum = 0.5},
      {.name = "resample_probability", .kind = Kind::number,
       .help = "probability that a parameter of a replaced member is drawn from the space again",
       .default_value = 0.25, .minimum = 0, .maximum = 1},
      {.name = "factors", .kind = Kind::numbers,
       .help = "a number that is not drawn again is multiplied by one of these",
       .default_value = {0.8, 1.25}, .minimum = 1e-6, .maximum = 1e6},
  };
}

MethodEntry pbt_method() {
  return {.name = "pbt",
          .help = "population based training: weights and parameters of the best replace those of the worst",
          .options = pbt_options(),
          .needs_trials = false,
          .make = [](const Space& space, uint64_t seed, const json& options) {
            return make_pbt(space, seed,
                            {.population = options.at("population"),
                             .interval = options.at("interval"),
                             .generations = options.at("generations"),
                             .quantile = options.at("quantile"),
                             .resample_probability = options.at("resample_probability"),
                             .factors = options.at("factors")});
          }};
}

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
  const auto value = [&](const std::string& option) -> json {
    for (const auto& known : find_method(method)->options)
      if (known.name == option) return options.value(option, known.default_value);
    return {};
  };
  if (method == "tpe") return value("n_startup_trials").get<int64_t>();
  if (method == "pbt") return value("population").get<int64_t>();
  if (method == "asha") return trials_without_results(value("sampler"), json::object());
  return std::nullopt;
}

std::unique_ptr<Method> make_method(const std::string& name, const Space& space, uint64_t seed, json options) {
  const MethodEntry* entry = find_method(name);
  if (!entry) throw usage_error("there is no method \"{}\"", name);
  for (const auto& option : entry->options) {
    if (!options.contains(option.name)) options[option.name] = option.default_value;
    if (options[option.name].is_null())
      throw usage_error("the method {} needs `{}`: {}", name, option.name, option.help);
  }
  return entry->make(space, seed, options);
}

}  // namespace runner::sweep
