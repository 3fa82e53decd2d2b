// Chooses a strategy: by the documented rules, unless their form does not fit, or by another policy.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/selection/candidate.hpp"
#include "runner/selection/step_time.hpp"

namespace runner {

/// The input of the choice.
struct SelectionRequest {
  Recipe recipe;                           ///< resolved, except for strategy, micro-batch and accumulation
  std::shared_ptr<const ModelSpec> model;  ///< all of it
  Topology topology;
  nlohmann::json given = nlohmann::json::object();  ///< options in [strategy] with name = "auto"
  std::optional<Form> own = {};                     ///< additional candidate; the rules choose it only if no form fits
};

/// Predicts the time of a step.
struct StepClock {
  /// The time of a step; nullopt: not known.
  std::function<std::optional<StepTime>(const Candidate&)> step_time = [](const Candidate&) { return std::nullopt; };
  /// Relative standard deviation of measured times from the prediction.
  std::function<double(const Job&, const StepTime&)> error = [](const Job&, const StepTime&) { return 0.1; };
  /// The rates for jobs of this kind, from which the search for meshes estimates; nullptr: not known.
  std::function<const Rates*(const Job&)> rates = [](const Job&) { return nullptr; };
  /// Why the time of a job is not known: "not known: ...".
  std::function<std::string(const Job&)> why_unknown = [](const Job&) { return "not known"; };
};

/// Sets the predicted time of a candidate that can run.
void set_time(Candidate& candidate, const StepClock& clock);

struct Choice {
  std::shared_ptr<const ModelSpec> part;  ///< what a rank has of the model; the jobs of the candidates point into it
  std::vector<Candidate> candidates;      ///< the best of each form, in the order of the rule book; refused ones too
  int chosen = -1;                        ///< -1: nothing fits
  std::string rule, source, differs;      ///< the rule, its source, and how it differs from the source
  std::string reason;                     ///< one sentence
  std::vector<std::string> advice;        ///< faster plans that the policy did not take
  MemoryLimit limit;

  bool fits() const { return chosen >= 0; }
  const Candidate& plan() const { return candidates.at(static_cast<size_t>(chosen)); }
};

/// Policy "fastest" without predicted times.
class SpeedNotKnown : public Error {
 public:
  explicit SpeedNotKnown(const std::string& why_unknown);
};

/// Chooses by recipe.selection, among the forms that have all the given options. Throws SpeedNotKnown.
Choice choose(const SelectionRequest& request, const StepClock& clock);

}  // namespace runner
