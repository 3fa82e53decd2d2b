// The choice of a strategy: the documented rules, overruled only where their form does not fit, or another policy.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/selection/candidate.hpp"

namespace runner {

/// What is to be planned.
struct SelectionRequest {
  Recipe recipe;  ///< resolved but for strategy, micro-batch and accumulation
  std::shared_ptr<const ModelSpec> model;
  Topology topology;
  nlohmann::json given = nlohmann::json::object();  ///< options in [strategy] beside name = "auto"
};

/// How long a step takes.
struct StepClock {
  /// Seconds of a step; nullopt where they cannot be told.
  std::function<std::optional<double>(const Candidate&)> step_seconds = [](const Candidate&) { return std::nullopt; };
  double error = 0.1;  ///< part by which they may be wrong
};

struct Choice {
  std::shared_ptr<const ModelSpec> model;  ///< what the candidates' jobs point to
  std::vector<Candidate> candidates;       ///< the best of each form, in the order of the rule book; refused ones too
  int chosen = -1;                         ///< -1: nothing fits
  std::string rule, source;                ///< the documented row
  std::string reason;                      ///< one sentence
  std::vector<std::string> advice;         ///< faster plans that the policy did not take
  MemoryLimit limit;

  bool fits() const { return chosen >= 0; }
  const Candidate& plan() const { return candidates.at(static_cast<size_t>(chosen)); }
};

/// Among the forms that take all the options given, by recipe.selection. Throws Error(usage) for policy "fastest" where
/// no times can be told.
Choice choose(const SelectionRequest& request, const StepClock& clock);

/// Of a strategy that the recipe names, at the largest micro-batch that the recipe allows and that fits.
Candidate fit_named(const SelectionRequest& request, const Entry& entry);

}  // namespace runner
