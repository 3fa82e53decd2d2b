// Chooses a strategy: by the documented rules, unless their form does not fit, or by another policy.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/selection/candidate.hpp"

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
  /// Seconds of a step; nullopt: not known.
  std::function<std::optional<double>(const Candidate&)> step_seconds = [](const Candidate&) { return std::nullopt; };
  /// Relative standard deviation of measured times from the prediction.
  std::function<double(const Candidate&)> error = [](const Candidate&) { return 0.1; };
  /// Why the time of a job is not known: "not known: ...".
  std::function<std::string(const Job&)> why_unknown = [](const Job&) { return "not known"; };
};

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

/// The candidate of a strategy that the recipe names, with the largest micro-batch that the recipe allows and that fits. Its job points into
/// `part`, which is what a rank has of the model.
Candidate fit_named(const SelectionRequest& request, const Entry& entry, const ModelSpec& part);

}  // namespace runner
