// Checks values of recipe keys.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "runner/config/diagnostics.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

/// A problem of an option as a mistake at `place`.
Diagnostic diagnostic_of(const OptionProblem& problem, const Origin& place = {}, const std::string& section = "");

/// Checks `value`, and converts it to the form that the setter of `key` takes. Returns the mistake, without a location, if any.
std::optional<Diagnostic> check_value(const Key& key, nlohmann::json& value);

}  // namespace runner
