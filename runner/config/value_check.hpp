// Values against the key table: types, choices and bounds.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "runner/config/diagnostics.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

/// What is wrong with `value` for `key`, still without a place; else `value` has the form that the key's setter takes.
std::optional<Diagnostic> check_value(const Key& key, nlohmann::json& value);

/// Whether `value` is an integer of 64 bits; 2e8 is one, and becomes one.
bool to_integer(nlohmann::json& value);

}  // namespace runner
