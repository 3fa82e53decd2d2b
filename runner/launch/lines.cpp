// Encodes, decodes and splits lines.
#include "runner/launch/lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "runner/base/error.hpp"
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

constexpr size_t code_digits = 32;

std::string in_hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string code_of(Hmac& hmac, uint64_t number, std::string_view line) {
  hmac.add(bytes_of_text(fmt::format("{} ", number)));
  hmac.add(bytes_of_text(line));
  return in_hex(hmac.finish()).substr(0, code_digits);
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

std::string nodes_secret() {
  const char* value = std::getenv(nodes_secret_variable);
  const std::string secret = value ? value : "";
  if (!secret.empty() && secret.size() < least_secret)
    throw usage_error("the secret in {} has {} characters; {} or more are needed", nodes_secret_variable, secret.size(),
                      least_secret);
  return secret;
}

LineSeal::LineSeal(std::string_view secret, bool accepts) : secret_(secret), accepts_(accepts) {}

std::string LineSeal::greeting() const { return to_line({{"say", "greeting"}, {"nonce", in_hex(own_)}}); }

bool LineSeal::take_greeting(std::string_view line) {
  const auto greeting = from_line(line).value_or(nlohmann::json::object());
  const auto nonce = greeting.find("nonce");
  if (nonce == greeting.end() || !nonce->is_string()) return false;
  const std::string &there = nonce->get_ref<const std::string&>(), here = in_hex(own_);
  if (there.size() != here.size()) return false;
  Hmac key(bytes_of_text(secret_));
  key.add(bytes_of_text("supervisors"));
  const Digest common = key.finish();
  const auto of_direction = [&](const char* direction) {
    return key_of_direction(common, direction, bytes_of_text(accepts_ ? here : there),
                            bytes_of_text(accepts_ ? there : here));
  };
  out_ = of_direction(accepts_ ? "to client" : "to server");
  in_ = of_direction(accepts_ ? "to server" : "to client");
  return true;
}

std::string LineSeal::seal(std::string_view line) {
  return fmt::format("{} {}", code_of(*out_, sent_++, line.substr(0, line.find('\n'))), line);
}

std::optional<std::string_view> LineSeal::open(std::string_view line) {
  if (line.size() <= code_digits) return std::nullopt;
  const std::string_view text = line.substr(code_digits + 1);
  const std::string code = code_of(*in_, received_++, text);
  return equal_in_constant_time(bytes_of_text(code), bytes_of_text(line.substr(0, code_digits))) ? std::optional(text)
                                                                                                 : std::nullopt;
}

}  // namespace runner
