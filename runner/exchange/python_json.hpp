// JSON as Python's json module writes it: with the numbers NaN, Infinity and -Infinity, which JSON does not have.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace runner {

/// The value, in which "NaN", "Infinity" and "-Infinity" are texts (as json_number() writes them). Nothing if it is no JSON.
std::optional<nlohmann::json> parse_python_json(std::string_view text);

/// The value of a number, of true (1) and false (0), and of the texts "NaN", "Infinity" and "-Infinity".
std::optional<double> number_of_json(const nlohmann::json& value);

}  // namespace runner
