#include "runner/config/value_check.hpp"

#include "runner/config/foreign_names.hpp"
#include "runner/config/mesh_sizes.hpp"

namespace runner {

Diagnostic diagnostic_of(const OptionProblem& problem, const Origin& place, const std::string& section) {
  return {.place = place,
          .code = problem.code,
          .message = problem.message,
          .allowed = problem.allowed,
          .suggestion = problem.suggestion,
          .section = section};
}

std::optional<Diagnostic> check_value(const Key& key, nlohmann::json& value) {
  const auto problem = check_option(key, value);
  if (!problem) return std::nullopt;
  auto diagnostic = diagnostic_of(*problem, {}, key.section);
  const auto* foreign = problem->unknown_field.empty() ? nullptr : find_foreign_name(problem->unknown_field);
  if (foreign && !foreign->refusal.empty()) {
    diagnostic.message += ": " + foreign->refusal;
    diagnostic.suggestion.reset();
  }
  if (const auto axis = key.dotted() == "devices.mesh" ? axis_called(problem->unknown_field) : std::nullopt)
    diagnostic.suggestion = axis;
  return diagnostic;
}

}  // namespace runner
