#include "runner/tokenizers/json_place.hpp"

#include <algorithm>

#include "runner/base/foreign_json.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/unicode.hpp"

namespace runner {

namespace {

/// A key as JSON pointers (RFC 6901) write it, shortened for a message.
std::string pointer_step(std::string_view key) {
  std::string text = "/";
  for (char c : shortened_text(std::string(key))) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

/// A value, shortened for a message.
std::string shown(const JsonPlace::Json& value) {
  if (value.is_array() || value.is_object()) return value.type_name();
  return shortened_text(json_text(value));
}

}  // namespace

void JsonPlace::refuse(const std::string& reason) const {
  throw usage_error("{}: {}: {}", file_->string(), pointer_.empty() ? "/" : pointer_, reason);
}

void JsonPlace::expected(const char* what) const { refuse(fmt::format("{} instead of {}", shown(*value_), what)); }

bool JsonPlace::has(std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonPlace JsonPlace::operator[](std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  auto found = value_->find(key);
  if (found == value_->end()) {
    std::vector<std::string> keys;
    for (const auto& [name, value] : value_->items()) keys.push_back(name);
    auto near = nearest(key, keys);
    refuse(fmt::format("`{}` is missing{}", shortened_text(std::string(key)),
                       near ? "; did you mean `" + shortened_text(*near) + "`?" : ""));
  }
  return {file_, &*found, pointer_ + pointer_step(key)};
}

JsonPlace JsonPlace::at(size_t index) const {
  if (!value_->is_array()) expected("a list");
  if (index >= value_->size()) refuse(fmt::format("a list of {} instead of {} or more", value_->size(), index + 1));
  return {file_, &(*value_)[index], fmt::format("{}/{}", pointer_, index)};
}

std::vector<JsonPlace> JsonPlace::items() const {
  if (!value_->is_array()) expected("a list");
  std::vector<JsonPlace> list;
  list.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) list.push_back(at(i));
  return list;
}

std::string JsonPlace::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->get<std::string>();
}

bool JsonPlace::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

int64_t JsonPlace::integer(int64_t least, int64_t most) const {
  if (!value_->is_number_integer()) expected("an integer");
  const auto number = value_->get<int64_t>();
  if (number < least || number > most) refuse(fmt::format("{} is not between {} and {}", shown(*value_), least, most));
  return number;
}

double JsonPlace::number() const {
  if (!value_->is_number()) expected("a number");
  return value_->get<double>();
}

std::string JsonPlace::string_or(std::string_view key, std::string otherwise) const {
  return has(key) ? (*this)[key].string() : std::move(otherwise);
}

bool JsonPlace::boolean_or(std::string_view key, bool otherwise) const {
  return has(key) ? (*this)[key].boolean() : otherwise;
}

char32_t JsonPlace::character() const {
  const auto text = string();
  size_t end = 0;
  if (text.empty()) expected("one character");
  const char32_t c = unicode::next(text, end);
  if (end != text.size()) expected("one character");
  return c;
}

size_t JsonPlace::choice(const std::vector<std::string>& choices) const {
  const auto text = string();
  const auto found = std::ranges::find(choices, text);
  if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
  const auto near = nearest(text, choices);
  refuse(fmt::format("\"{}\" instead of {}{}", shortened_text(text), join_or(choices),
                     near ? "; did you mean " + *near + "?" : ""));
}

void check_tokenizer_size(const fs::path& file, size_t bytes) {
  if (bytes > tokenizer_bytes_max)
    throw usage_error("{} has {}; at most {} are read", file.string(), format_bytes(bytes),
                      format_bytes(tokenizer_bytes_max));
}

nlohmann::json read_json_file(const fs::path& file) {
  const std::string text = read_model_file(file);
  check_tokenizer_size(file, text.size());
  JsonFault fault;
  auto json = foreign_json(text, &fault);
  if (!json.is_discarded()) return json;
  if (fault.byte == 0) throw usage_error("{}: this is not JSON: {}", file.string(), fault.reason);
  const size_t offset = std::min(fault.byte - 1, text.size());
  const auto before = std::string_view(text).substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  throw usage_error("{}:{}:{}: this is not JSON: {}", file.string(), line, offset - line_begin + 1,
                    first_line(fault.reason));
}

}  // namespace runner
