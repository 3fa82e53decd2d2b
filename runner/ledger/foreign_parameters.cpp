// Parameters of runs of other programs as settings with types.
#include <algorithm>
#include <cmath>

#include "runner/base/text.hpp"
#include "runner/ledger/foreign_runs.hpp"

namespace runner {

using nlohmann::json;

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether a text has the form in which programs write numbers: -12, 0.5, 1e-05, not 007, 12345e7 or a number with more digits than
/// a double has.
bool is_written_number(std::string_view text) {
  constexpr size_t most_digits = 17;
  if (text.starts_with('-')) text.remove_prefix(1);
  const auto take_digits = [&] {
    const auto digits = text.substr(0, static_cast<size_t>(std::ranges::find_if_not(text, is_digit) - text.begin()));
    text.remove_prefix(digits.size());
    return digits;
  };
  const auto whole = take_digits();
  size_t digits = whole == "0" ? 0 : whole.size();
  if (whole.empty() || (whole.size() > 1 && whole.front() == '0')) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const auto fraction = take_digits();
    if (fraction.empty()) return false;
    digits +=
        digits > 0 ? fraction.size() : fraction.size() - std::min(fraction.find_first_not_of('0'), fraction.size());
  }
  if (digits > most_digits) return false;
  if (text.empty()) return true;
  if (text.front() != 'e' && text.front() != 'E') return false;
  text.remove_prefix(1);
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return whole.size() == 1 && !take_digits().empty() && text.empty();
}

json typed(const std::string& text) {
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (const auto whole = parse_number<int64_t>(text); whole && std::to_string(*whole) == text) return *whole;
  if (!is_written_number(text)) return text;
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) ? json(*number) : json(text);
}

/// The values below `object`, under names with dots, at `place`.
void put_flat(json& place, const std::string& name, const json& object) {
  for (const auto& [key, value] : object.items())
    if (value.is_object() && !value.empty())
      put_flat(place, name + "." + key, value);
    else
      place[name + "." + key] = value;
}

}  // namespace

void set_parameter(json& config, const std::string& name, const json& value) {
  json* place = &config;
  const auto parts = split(name, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    auto& next = (*place)[parts[i]];
    if (next.is_null()) next = json::object();
    if (!next.is_object()) {
      (*place)[join({parts.begin() + static_cast<std::ptrdiff_t>(i), parts.end()}, ".")] = value;
      return;
    }
    place = &next;
  }
  auto& last = (*place)[parts.back()];
  const json before = std::exchange(last, value);
  if (before.is_object() && !value.is_object()) put_flat(*place, parts.back(), before);
}

void add_settings(json& config, const json& later) {
  if (!config.is_object() || !later.is_object()) {
    config = later;
    return;
  }
  for (const auto& [name, value] : later.items()) add_settings(config[name], value);
}

void set_parameter(json& config, const std::string& name, const std::string& value) {
  set_parameter(config, name, typed(value));
}

}  // namespace runner
