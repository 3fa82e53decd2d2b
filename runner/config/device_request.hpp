// Device strings as Lightning writes them: k, -1, "-1", "1,3", "0, 1", [1,3], "auto", "free:2".
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/config/recipe.hpp"

namespace runner {

/// nullopt, and `problem` says why, if the value is none of the forms. "3" means three devices, "1," the one with
/// index 1.
std::optional<DeviceRequest> parse_devices(const nlohmann::json& value, std::string& problem);
/// The TOML value that parses back to the request.
std::string write_devices(const DeviceRequest& request);

}  // namespace runner
