#include "runner/report/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

constexpr std::pair<const char*, const char*> units[] = {
    {"percent", "%"}, {"_watts", "W"}, {"_celsius", "C"}, {"_mhz", "MHz"}};

constexpr size_t event_samples_shown = 8;

/// " (samples 480 to 491)"; "" if the event names none.
std::string samples_text(const nlohmann::json& event) {
  const auto found = event.find("samples");
  if (found == event.end() || !found->is_array() || found->empty() ||
      !std::ranges::all_of(*found, [](const nlohmann::json& sample) { return sample.is_number_integer(); }))
    return "";
  std::vector<int64_t> samples = found->get<std::vector<int64_t>>();
  const bool range = std::ranges::adjacent_find(samples, [](auto a, auto b) { return b != a + 1; }) == samples.end();
  if (range && samples.size() > 2) return fmt::format(" (samples {} to {})", samples.front(), samples.back());
  const bool more = samples.size() > event_samples_shown;
  if (more) samples.resize(event_samples_shown);
  return fmt::format(" (samples {}{})", fmt::join(samples, ", "), more ? ", ..." : "");
}

}  // namespace

std::string plain(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string quantity(const std::string& name, const nlohmann::json& value) {
  if (!value.is_number()) return value.is_null() ? "-" : plain(value);
  const double number = value.get<double>();
  if (name.ends_with("bytes_per_s")) return format_bytes(number) + "/s";
  if (name.find("bytes") != std::string::npos) return format_bytes(number);
  for (const auto& [ending, unit] : units)
    if (name.ends_with(ending)) return fmt::format("{:.0f} {}", number, unit);
  if (name.ends_with("_s") && !name.ends_with("per_s")) return format_duration(number);
  if (name.ends_with("seconds")) return format_duration(number);
  return value.is_number_integer() ? std::to_string(value.get<int64_t>()) : fmt::format("{:.6g}", number);
}

std::string format_ago(double time, double now) {
  if (time == 0) return "-";  // an imported run whose source does not say it
  const double seconds = now - time;
  constexpr double minute = 60, hour = 60 * minute, day = 24 * hour;
  if (seconds < 5) return "just now";
  if (seconds < minute) return fmt::format("{:.0f} s ago", seconds);
  if (seconds < hour) return fmt::format("{} min ago", static_cast<int>(seconds / minute));
  if (seconds < 2 * day) return fmt::format("{} h ago", static_cast<int>(seconds / hour));
  if (seconds < 30 * day) return fmt::format("{} days ago", static_cast<int>(seconds / day));
  return format_time(time).substr(0, 10);
}

std::string event_text(const nlohmann::json& event, bool with_rank) {
  const std::string samples = samples_text(event);
  if (event.contains("message")) return plain(event["message"]) + samples;
  std::vector<std::string> values;
  for (const auto& [key, value] : event.items())
    if (key != "time" && key != "event" && key != "lost_share" && value.is_primitive() && (with_rank || key != "rank"))
      values.push_back(key + " " + quantity(key, value));
  return join(values, ", ") + samples;
}

}  // namespace runner
