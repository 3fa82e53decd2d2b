// What `runner recommend` says: the choice, its reason, what else was considered, what would change it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/selection/plan.hpp"
#include "runner/selection/what_if.hpp"

namespace runner {

struct Recommendation {
  const Plan& plan;                  ///< where nothing fits, only recipe, model, request and choice are there
  std::string recipe_file, devices;  ///< "8 x h100-80g"
  double peak_flops = 0;             ///< of one rank's device, for MFU; 0: not known
  std::string peak_name, times;      ///< whose peak; where predicted times come from, or why there are none
  size_t earlier_runs = 0;           ///< behind the predicted times
  std::vector<WhatIf> what_if;
  std::string shortfall;  ///< where nothing fits
  /// The recipe's; the plan's is another where these ranks cannot share it.
  std::optional<int64_t> asked_batch;

  /// The plan's global batch, where the recipe's had to change.
  std::optional<int64_t> changed_batch() const;
};

/// How a step's sequences are shared: "micro-batch 8 x 2 ranks x 2 accumulated = 32 sequences".
std::string batch_text(const Job& job);

/// One screen. `all`: also what cannot run, and why.
std::string recommendation_text(const Recommendation& recommendation, bool all);
/// House: {chosen: {strategy, options, rule, reason}, candidates: [...]}; chosen is null where nothing fits.
nlohmann::json recommendation_json(const Recommendation& recommendation);
/// The sections to paste into the recipe.
std::string recommendation_toml(const Recommendation& recommendation);

}  // namespace runner
