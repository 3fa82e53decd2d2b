#include "runner/launch/line_seal.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "runner/base/error.hpp"
#include "runner/launch/lines.hpp"

namespace runner {

namespace {

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
