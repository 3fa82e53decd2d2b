// The choice of a strategy: the documented rules, overruled only where their form does not fit, or another policy.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/selection/candidate.hpp"

namespace runner {

/// What is to be planned.
struct SelectionRequest {
  Recipe recipe;  ///< resolved but for strategy, micro-batch and accumulation
  std::shared_ptr<const ModelSpec> model;
  Topology topology;
  nlohmann::json given = nlohmann::json::object();  ///< options in [strategy] beside name = "auto"
  std::optional<Form> own = {};  ///< one more candidate beside the book's forms, taken where none of those fits
};

/// How long a step takes.
struct StepClock {
  /// Seconds of a step; nullopt where they cannot be told.
  std::function<std::optional<double>(const Candidate&)> step_seconds = [](const Candidate&) { return std::nullopt; };
  /// Standard deviation of the measured time around that, over that.
  std::function<double(const Candidate&)> error = [](const Candidate&) { return 0.1; };
  /// Why those of such jobs cannot be told: "not known: ...".
  std::function<std::string(const Job&)> why_unknown = [](const Job&) { return "not known"; };
};

struct Choice {
  std::shared_ptr<const ModelSpec> model;  ///< what the candidates' jobs point to
  std::vector<Candidate> candidates;       ///< the best of each form, in the order of the rule book; refused ones too
  int chosen = -1;                         ///< -1: nothing fits
  std::string rule, source, differs;       ///< the documented row, and how the rule departs from it
  std::string reason;                      ///< one sentence
  std::vector<std::string> advice;         ///< faster plans that the policy did not take
  MemoryLimit limit;

  bool fits() const { return chosen >= 0; }
  const Candidate& plan() const { return candidates.at(static_cast<size_t>(chosen)); }
};

/// Policy "fastest" where no times can be told.
class SpeedNotKnown : public Error {
 public:
  explicit SpeedNotKnown(const std::string& why_unknown);
};

/// Among the forms that take all the options given, by recipe.selection. Throws SpeedNotKnown.
Choice choose(const SelectionRequest& request, const StepClock& clock);

/// Of a strategy that the recipe names, at the largest micro-batch that the recipe allows and that fits.
Candidate fit_named(const SelectionRequest& request, const Entry& entry);

}  // namespace runner
