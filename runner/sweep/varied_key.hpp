// Keys of the recipe that trials may set, and values for them.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/config/diagnostics.hpp"

namespace runner::sweep {

/// What is wrong with `name` as a dotted key, without a place; nothing where it is one. Options of strategies
/// (`strategy.NAME`) and of hooks (`hooks.HOOK.NAME`) pass: the trial's recipe is held against them.
std::optional<Diagnostic> unknown_key(const std::string& name);

/// {key: value} of one trial, checked against the table of recipe keys and in the form that the keys take. Sections may
/// be tables: {"optimizer": {"lr": 0.1}}. Throws lua::ScriptMistake that begins with `what`.
nlohmann::json checked_parameters(const nlohmann::json& given, const std::string& what);

}  // namespace runner::sweep
