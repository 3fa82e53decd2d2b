// Values of the ledger's JSON as text for people.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// A string without quotes, any other value as JSON.
std::string plain(const nlohmann::json& value);

/// A number of the ledger as text, "-" for null. Its name determines the unit: bytes, seconds, %, W, C (degrees Celsius),
/// MHz or none.
std::string quantity(const std::string& name, const nlohmann::json& value);

/// A value of a metric, with four digits at least: "2.3456", "2.250e-06", "nan" whatever its sign.
std::string metric_text(double value);

}  // namespace runner
