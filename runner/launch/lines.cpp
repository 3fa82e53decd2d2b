// Encodes, decodes and splits lines.
#include "runner/launch/lines.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t line_bytes_max = 1 << 20;
/// Functions that call themselves for each level, here and in the JSON library, would need too much stack for a line of brackets.
constexpr int depth_max = 64;

json encode(json value) {
  if (value.is_object())
    for (auto& field : value) field = encode(std::move(field));
  if (!value.is_number_float() || std::isfinite(value.get<double>())) return value;
  return {{"nonfinite", nonfinite_word(value.get<double>())}};
}

json decode(json value) {
  if (!value.is_object()) return value;
  if (value.size() != 1 || !value.contains("nonfinite") || !value["nonfinite"].is_string()) {
    for (auto& field : value) field = decode(std::move(field));
    return value;
  }
  return std::strtod(value["nonfinite"].get_ref<const std::string&>().c_str(), nullptr);
}

}  // namespace

std::string to_line(json object) {
  for (auto& field : object) field = encode(std::move(field));
  return json_text(object) + "\n";
}

std::optional<json> from_line(std::string_view line) {
  bool deep = false;
  const auto shallow = [&](int depth, json::parse_event_t, json&) { return !(deep = deep || depth > depth_max); };
  json object = json::parse(line, shallow, /*allow_exceptions=*/false);
  if (deep || !object.is_object()) return std::nullopt;
  for (auto& field : object) field = decode(std::move(field));
  return object;
}

int number_in(const json& message, const char* field, int least, int most) {
  const auto found = message.find(field);
  if (found == message.end() || !found->is_number_integer() || *found < least || *found > most) throw BadMessage(field);
  return found->get<int>();
}

bool flag_in(const json& message, const char* field) {
  const auto found = message.find(field);
  if (found == message.end() || !found->is_boolean()) throw BadMessage(field);
  return found->get<bool>();
}

std::string text_in(const json& message, const char* field) {
  constexpr size_t bytes_max = 4096;
  const auto found = message.find(field);
  if (found == message.end() || !found->is_string()) throw BadMessage(field);
  std::string text = found->get<std::string>();
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
  if (text.size() > bytes_max || std::ranges::any_of(text, is_control)) throw BadMessage(field);
  return text;
}

std::vector<std::string> LineReader::feed(std::string_view bytes) {
  std::vector<std::string> lines;
  while (true) {
    size_t end = bytes.find('\n');
    partial_ += bytes.substr(0, end);
    bool too_long = partial_.size() > line_bytes_max;
    if (end != std::string_view::npos || too_long) {
      if (!skipping_ && !partial_.empty()) lines.push_back(std::move(partial_));
      partial_.clear();
      skipping_ = end == std::string_view::npos;
    }
    if (end == std::string_view::npos) return lines;
    bytes.remove_prefix(end + 1);
  }
}

std::string LineReader::finish() {
  std::string rest = skipping_ ? "" : std::move(partial_);
  partial_.clear();
  skipping_ = false;
  return rest;
}

}  // namespace runner
