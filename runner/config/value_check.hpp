// Values against the key table: types, choices and bounds.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "runner/config/diagnostics.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

/// What is wrong with `value` for `key`, still without a place; else `value` has the form that the key's setter takes.
std::optional<Diagnostic> check_value(const Key& key, nlohmann::json& value);

/// Why a backend that PyTorch knows carries no collectives here; empty: the name is none of those.
std::string unknown_backend(const std::string& name);

/// Whether `value` is an integer of 64 bits; 2e8 is one, and becomes one.
bool to_integer(nlohmann::json& value);

}  // namespace runner
