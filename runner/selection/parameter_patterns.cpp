#include "runner/selection/parameter_patterns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runner/base/glob.hpp"
#include "runner/base/text.hpp"
#include "runner/models/adapters.hpp"
#include "runner/models/models.hpp"

namespace runner {

void check_parameter_patterns(const Recipe& recipe, const ModelSpec& model, std::vector<Diagnostic>& diagnostics) {
  const auto parameters = model.parameters();
  const auto earlier = diagnostics.size();
  const auto check = [&](const std::string& pattern, const char* key) {
    if (std::ranges::any_of(parameters, [&](const auto* one) { return glob_matches(pattern, one->name); })) return;
    diagnostics.push_back({.place = recipe.origin(key),
                           .code = "no-match",
                           .message = fmt::format("no parameter matches the pattern `{}` of {}", pattern, key),
                           .allowed = parameter_names(model),
                           .suggestion = nearest(pattern, parameter_names(model))});
  };
  for (const auto& group : recipe.optimizer.groups)
    for (const auto& pattern : group.patterns()) check(pattern, "optimizer.groups");
  for (const auto& pattern : recipe.model.frozen) check(pattern, "model.frozen");
  for (const auto& target : unmatched_targets(recipe, make_base_spec(recipe, model.vocab_size, model.seq_len)))
    diagnostics.push_back({.place = recipe.origin(target.key),
                           .code = "no-match",
                           .message = fmt::format("no module matches `{}` of {}{}", target.name, target.key,
                                                  target.reason.empty() ? "" : ": " + target.reason),
                           .allowed = target.available,
                           .suggestion = nearest(target.name, target.available)});
  if (diagnostics.size() == earlier && std::ranges::none_of(parameters, &ParameterSpec::trainable)) {
    const bool adapts = recipe.fine_tune.adapts();
    diagnostics.push_back(
        {.place = recipe.origin(adapts ? "fine_tune.method" : "model.frozen"),
         .code = "nothing-to-train",
         .message = adapts ? fmt::format("{} has no matrix that fine_tune.targets could adapt, so there is "
                                         "nothing to train",
                                         recipe.model.name)
                           : "model.frozen matches every parameter, so there is nothing to train"});
  }
}

std::vector<std::string> idle_groups(const Recipe& recipe, const ModelSpec& model) {
  std::vector<std::string> notes;
  std::set<const ParameterSpec*> taken;  // by the groups so far: the first group that matches applies
  for (const auto& group : recipe.optimizer.groups) {
    const auto patterns = group.patterns();
    bool trains = false, gets_one = false;
    for (const auto* parameter : model.parameters()) {
      const auto matches = [&](const std::string& pattern) { return glob_matches(pattern, parameter->name); };
      if (!parameter->trainable || std::ranges::none_of(patterns, matches)) continue;
      trains = true;
      gets_one |= taken.insert(parameter).second;
    }
    if (gets_one) continue;
    notes.push_back(fmt::format("the group `{}` of optimizer.groups has no effect: {}", join(patterns, ", "),
                                trains
                                    ? "earlier groups have all its parameters, and the first group that matches applies"
                                : recipe.model.frozen.empty() ? "all its parameters are frozen"
                                                              : "model.frozen matches all its parameters"));
  }
  return notes;
}

}  // namespace runner
