#include "runner/sweep/methods.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner::sweep {

namespace {

using nlohmann::json;
using Kind = MethodOption::Kind;

TpeOptions tpe_options(const json& options) {
  return {options.at("n_startup_trials"), options.at("n_ei_candidates"), options.at("gamma"),
          options.at("prior_weight"),     options.at("multivariate"),    options.at("constant_liar")};
}

std::vector<MethodOption> tpe_list() {
  return {{"n_startup_trials", Kind::integer, 10, 1, 0, {}, "random trials before the estimate begins"},
          {"n_ei_candidates", Kind::integer, 24, 1, 100'000, {}, "draws of which the most promising is taken"},
          {"gamma", Kind::number, 0.1, 0.001, 0.999, {}, "share of trials that count as good, at most 25 of them"},
          {"prior_weight", Kind::number, 1.0, 1e-9, 0, {}, "weight of the prior beside one trial's"},
          {"multivariate", Kind::boolean, true, 0, 0, {}, "one estimate of all parameters instead of one each"},
          {"constant_liar", Kind::boolean, true, 0, 0, {}, "running trials count as bad ones"}};
}

std::vector<MethodEntry> make_list() {
  std::vector<MethodEntry> list;
  list.push_back(
      {"grid", "every combination of values", {}, false, false, [](const Space& space, uint64_t, const json&) {
         return make_grid(space);
       }});
  list.push_back({"random", "independent draws", {}, false, true, [](const Space& space, uint64_t seed, const json&) {
                    return make_random(space, seed);
                  }});
  list.push_back({"sobol",
                  "a low-discrepancy sequence: even coverage of the space",
                  {{"scramble", Kind::boolean, true, 0, 0, {}, "Owen scrambling by the sweep's seed"}},
                  false,
                  true,
                  [](const Space& space, uint64_t seed, const json& options) {
                    return make_sobol(space, seed, options.at("scramble"));
                  }});
  list.push_back({"tpe", "tree-structured Parzen estimator: learns from ended trials", tpe_list(), false, true,
                  [](const Space& space, uint64_t seed, const json& options) {
                    return make_tpe(space, seed, tpe_options(options));
                  }});
  list.push_back({"asha",
                  "asynchronous successive halving: stops the worse trials early",
                  {{"min_steps", Kind::integer, json(), 1, 0, {}, "steps to the first decision"},
                   {"reduction_factor", Kind::integer, 4, 2, 1000, {}, "one in so many goes on at each decision"},
                   {"sampler", Kind::choice, "random", 0, 0, {"random", "sobol", "tpe"}, "which method proposes"}},
                  true,
                  true,
                  [](const Space& space, uint64_t seed, const json& options) {
                    AshaOptions asha;
                    asha.min_steps = options.at("min_steps");
                    asha.reduction_factor = options.at("reduction_factor");
                    return make_asha(make_method(options.at("sampler"), space, seed), asha);
                  }});
  list.push_back({"pbt",
                  "population based training: weights and parameters of the best replace those of the worst",
                  {{"population", Kind::integer, 8, 2, 100'000, {}, "members that train side by side"},
                   {"interval", Kind::integer, json(), 1, 0, {}, "steps of a generation"},
                   {"generations", Kind::integer, json(), 1, 0, {}, "how many"},
                   {"quantile", Kind::number, 0.25, 0.001, 0.5, {}, "share that is replaced, and that replaces"},
                   {"resample_probability", Kind::number, 0.25, 0, 1, {}, "of a parameter to be drawn anew"},
                   {"factors", Kind::numbers, json({0.8, 1.25}), 1e-6, 1e6, {}, "a number is multiplied by one of"}},
                  false,
                  false,
                  [](const Space& space, uint64_t seed, const json& options) {
                    PbtOptions pbt{options.at("population"),           options.at("interval"),
                                   options.at("generations"),          options.at("quantile"),
                                   options.at("resample_probability"), options.at("factors")};
                    return make_pbt(space, seed, pbt);
                  }});
  return list;
}

}  // namespace

const std::vector<MethodEntry>& methods() {
  static const std::vector<MethodEntry> list = make_list();
  return list;
}

const MethodEntry* find_method(const std::string& name) {
  auto found = std::find_if(methods().begin(), methods().end(), [&](const auto& entry) { return entry.name == name; });
  return found == methods().end() ? nullptr : &*found;
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
