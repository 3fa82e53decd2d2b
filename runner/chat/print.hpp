// Values as text: str() and repr() of Python, and JSON as json.dumps writes it.
#pragma once
#include <optional>
#include <string>

#include "runner/chat/value.hpp"

namespace runner::jinja {

std::string to_text(const Value& value);
void append_text(std::string& text, const Value& value);
std::string to_repr(const Value& value);
std::string repr_of_text(std::string_view text);
/// repr() of a float: the shortest digits that give the same number.
std::string float_text(double number);

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  ///< of one level; nothing: everything in one line
  std::string between_items = ", ";
  std::string after_key = ": ";
};
/// A Fault for values that JSON does not have.
std::string to_json(const Value& value, const JsonStyle& style);

/// No text or list of a template may become larger than template_value_bytes_max. A Fault otherwise.
void check_size(size_t bytes);

}  // namespace runner::jinja
