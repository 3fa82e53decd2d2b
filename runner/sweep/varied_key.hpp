// Checks the recipe keys that trials set, and their values.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/config/diagnostics.hpp"

namespace runner::sweep {

/// The mistake if `name` is not a dotted recipe key, without a position; nothing if it is one. Options of strategies
/// (`strategy.NAME`) and of hooks (`hooks.HOOK.NAME`) are accepted here and checked with the trial's recipe.
std::optional<Diagnostic> unknown_key(const std::string& name);

/// Checks one trial's {key: value} against the table of recipe keys and converts each value to the type of its key.
/// Sections may be tables: {"optimizer": {"lr": 0.1}}. Throws lua::ScriptMistake; its message begins with `what`.
nlohmann::json checked_parameters(const nlohmann::json& given, const std::string& what);

}  // namespace runner::sweep
