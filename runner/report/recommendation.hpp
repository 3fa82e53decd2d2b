// The output of `runner recommend`: the choice, its reason, the other candidates, and what would change the choice.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/selection/plan.hpp"
#include "runner/selection/what_if.hpp"

namespace runner {

struct Recommendation {
  const Plan& plan;                  ///< if nothing fits, only recipe, model, request and choice are set
  std::string recipe_file, devices;  ///< devices: e.g. "8 x h100-80g"
  double peak_flops = 0;             ///< peak FLOP/s of one rank's device, for MFU; 0 = unknown
  std::string peak_name, times;      ///< device of that peak; source of the predicted times, or why there are none
  size_t earlier_runs = 0;           ///< number of runs that the predicted times are based on
  double planning_seconds = 0;       ///< that the plan took
  std::vector<WhatIf> what_if;
  std::vector<Offer> offers = {};  ///< if nothing fits, or only with state outside the device
  std::string shortfall;           ///< the missing memory if nothing fits
  /// The recipe's global batch size. The plan's is different if this one cannot be divided among the ranks.
  std::optional<int64_t> asked_batch;
  std::vector<std::string> unset;                       ///< keys that the command line removes from the recipe
  std::function<Recipe(const std::string& text)> read;  ///< reads TOML as a recipe file in the working directory

  /// The plan's global batch size if it differs from the recipe's, otherwise empty.
  std::optional<int64_t> changed_batch() const;
};

/// The global batch as a product: "micro-batch 8 x 2 ranks x 2 accumulated = 32 sequences of 128 tokens a step".
std::string step_size_text(const Job& job);

/// The text of one screen. `all`: includes candidates that cannot run, with the reason.
/// `why`: also the rule, and what the figures mean and come from.
std::string recommendation_text(const Recommendation& recommendation, bool all, bool why);
/// {chosen: {strategy, options, rule, reason}, candidates: [...]}; chosen is null if nothing fits.
nlohmann::json recommendation_json(const Recommendation& recommendation);
/// A TOML recipe that extends the recommendation's recipe with the overrides of the command line and the recommended
/// values.
std::string recommendation_toml(const Recommendation& recommendation);

}  // namespace runner
