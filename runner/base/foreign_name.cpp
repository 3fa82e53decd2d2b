#include "runner/base/foreign_name.hpp"

#include <algorithm>

#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

ForeignName::Meaning ForeignName::any_value() {
  return [](const json&) { return Values{}; };
}

ForeignName::Meaning ForeignName::same_value_of(std::string key) {
  return [key = std::move(key)](const json& value) { return Values{{key, value}}; };
}

ForeignName::Meaning ForeignName::one_of(std::vector<json> values) {
  for (auto& value : values)
    if (value.is_string()) value = lower(value.get<std::string>());
  return [values = std::move(values)](const json& value) -> std::optional<Values> {
    json wanted = value.is_string() ? json(lower(value.get<std::string>())) : value;
    bool found = std::find(values.begin(), values.end(), wanted) != values.end();
    return found ? std::optional(Values{}) : std::nullopt;
  };
}

ForeignName ForeignName::accepted(std::string name, std::string note) {
  return {.name = std::move(name), .meaning = any_value(), .note = std::move(note)};
}

ForeignName ForeignName::renamed(std::string name, std::string key) {
  return {.name = std::move(name), .key = key, .meaning = same_value_of(key)};
}

ForeignName ForeignName::refused(std::string name, std::string refusal) {
  return {.name = std::move(name), .refusal = std::move(refusal)};
}

}  // namespace runner
