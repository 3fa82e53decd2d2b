// Checks values against the key table: types, choices and bounds.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "runner/config/diagnostics.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

/// Checks `value`, and converts it to the form that the setter of `key` takes. Returns the mistake, without a location, if any.
std::optional<Diagnostic> check_value(const Key& key, nlohmann::json& value);

/// Why a backend of PyTorch is not supported here; empty if `name` is not such a backend.
std::string unknown_backend(const std::string& name);

/// Whether `value` is an integer of 64 bits. A float without a fraction (2e8) is converted to one.
bool to_integer(nlohmann::json& value);

}  // namespace runner
