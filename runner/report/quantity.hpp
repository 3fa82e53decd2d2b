// Values of the ledger's JSON, its events, and times, as text for people.
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

/// The event's message, otherwise its values ("step 12, seconds 0.31"), with the first samples of a batch that it names ("(samples 480 to
/// 491)"). Values that only programs need are left out, and without `with_rank` the rank, which a table has in a column.
std::string event_text(const nlohmann::json& event, bool with_rank = true);

}  // namespace runner
