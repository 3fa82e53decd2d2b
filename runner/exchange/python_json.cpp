#include "runner/exchange/python_json.hpp"

#include <cmath>

#include "runner/base/foreign_json.hpp"

namespace runner {

using nlohmann::json;

std::optional<json> parse_python_json(std::string_view text) {
  std::string standard;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\' && i + 1 < text.size()) {
      standard += text.substr(i++, 2);
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (!quoted) {
      std::string_view word;
      for (const std::string_view one : {"NaN", "Infinity", "-Infinity"})
        if (text.substr(i).starts_with(one)) word = one;
      if (!word.empty()) {
        standard.append("\"").append(word).append("\"");
        i += word.size() - 1;
        continue;
      }
    }
    standard += c;
  }
  json value = foreign_json(standard);
  return value.is_discarded() ? std::nullopt : std::optional(std::move(value));
}

std::optional<double> number_of_json(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value == "NaN") return std::nan("");
  if (value == "Infinity") return INFINITY;
  if (value == "-Infinity") return -INFINITY;
  return std::nullopt;
}

}  // namespace runner
