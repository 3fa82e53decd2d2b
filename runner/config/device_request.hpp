// Device strings as Lightning writes them: k, -1, "-1", "1,3", "0, 1", [1,3], "auto", "free:2".
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/config/recipe.hpp"

namespace runner {

/// "3" means three devices; "1," means the device with index 1. If the value has none of the forms, the result is nullopt and
/// `problem` is the reason.
std::optional<DeviceRequest> parse_devices(const nlohmann::json& value, std::string& problem);
/// The TOML value that parses back to the request.
std::string write_devices(const DeviceRequest& request);

}  // namespace runner
