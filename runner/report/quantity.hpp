// Values of the ledger's JSON, and times, as text for people.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// A string without quotes, any other value as JSON.
std::string plain(const nlohmann::json& value);

/// A number of the ledger as text, "-" for null. Its name determines the unit: bytes, seconds, %, W, C (degrees Celsius),
/// MHz or none.
std::string quantity(const std::string& name, const nlohmann::json& value);

/// "just now", "42 s ago", "5 min ago", "3 h ago", "2 days ago"; after 30 days the date. Arguments are Unix seconds.
std::string format_ago(double time, double now);

}  // namespace runner
