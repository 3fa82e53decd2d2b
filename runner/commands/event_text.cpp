#include "runner/commands/event_text.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/report/quantity.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr size_t samples_shown = 8;

/// " (samples 480 to 491)"; "" if the event names none.
std::string samples_text(const json& event) {
  const auto found = event.find("samples");
  if (found == event.end() || !found->is_array() || found->empty() ||
      !std::ranges::all_of(*found, [](const json& sample) { return sample.is_number_integer(); }))
    return "";
  std::vector<int64_t> samples = found->get<std::vector<int64_t>>();
  const bool range = std::ranges::adjacent_find(samples, [](auto a, auto b) { return b != a + 1; }) == samples.end();
  if (range && samples.size() > 2) return fmt::format(" (samples {} to {})", samples.front(), samples.back());
  const bool more = samples.size() > samples_shown;
  if (more) samples.resize(samples_shown);
  return fmt::format(" (samples {}{})", fmt::join(samples, ", "), more ? ", ..." : "");
}

}  // namespace

std::string event_text(const json& event, bool with_rank) {
  const std::string samples = samples_text(event);
  if (event.contains("message")) return plain(event["message"]) + samples;
  std::vector<std::string> values;
  for (const auto& [key, value] : event.items())
    if (key != "time" && key != "event" && key != "lost_share" && value.is_primitive() && (with_rank || key != "rank"))
      values.push_back(key + " " + quantity(key, value));
  return join(values, ", ") + samples;
}

}  // namespace runner
