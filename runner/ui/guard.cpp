#include "runner/ui/guard.hpp"

#include <arpa/inet.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runner/base/error.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"

namespace runner::ui {

namespace {

/// Whether the texts are equal, in a time that does not depend on where they differ.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

/// "192.168.0.7" or "[fe80::1]". Names may consist of the same characters ("bad.de").
bool is_address(const std::string& host) {
  in6_addr unused{};
  if (host.starts_with('[') && host.ends_with(']'))
    return ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &unused) == 1;
  return ::inet_pton(AF_INET, host.c_str(), &unused) == 1;
}

/// The page runs only its own scripts and styles, loads nothing from elsewhere, and cannot be embedded in another page. Charts are saved
/// from blobs.
constexpr const char* content_security_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'";

constexpr const char* loopback_hosts[] = {"localhost", "127.0.0.1", "[::1]"};

constexpr const char* needs_token =
    "this needs the token of the address that `runner ui` printed: open that address again";
constexpr const char* wrong_token =
    "the token is wrong: it is not that of the address that this `runner ui` printed, as after a start with a new one";

/// The token that came with a request; empty: none.
std::string given_token(const Request& request) {
  const auto header = request.header("x-runner-token");
  return request.path == "/api/1/events" ? request.parameter("token", header) : header;
}

/// The error of a request without the token.
Response token_refusal(const Request& request) {
  return error_response(403, given_token(request).empty() ? needs_token : wrong_token);
}

}  // namespace

Response error_response(int status, const std::string& message, int retry_after_s) {
  Response response{.status = status, .body = json_text(nlohmann::json{{"schema", 1}, {"error", message}})};
  if (retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(retry_after_s));
  return response;
}

bool is_any_address(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

std::string machine_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? lower(name) : "";
}

std::string random_token() {
  std::string bytes(16, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw environment_error("the system has no random numbers");
  return to_hex(bytes);
}

Guard::Guard(std::string host, int port, std::string token, Access access)
    : port_(port), any_address_(is_any_address(host)), access_(access), token_(std::move(token)) {
  const bool v6 = host.find(':') != std::string::npos;
  for (const char* loopback : loopback_hosts) hosts_.emplace_back(loopback);
  if (!any_address_) hosts_.push_back(lower(v6 ? "[" + host + "]" : host));
  if (const auto name = machine_name(); any_address_ && !name.empty()) {
    hosts_.push_back(name);
    hosts_.push_back(name.substr(0, name.find('.')));
  }
}

std::string Guard::known_hosts() const {
  std::vector<std::string> list;
  for (const auto& host : hosts_)
    if (std::ranges::find(list, host) == list.end()) list.push_back(host);
  for (auto& host : list) host += ":" + std::to_string(port_);
  if (any_address_) list.push_back("any address of this machine");
  return join(list, ", ");
}

bool Guard::known_host(const std::string& text) const {
  const std::string host = lower(text);
  const size_t colon = host.find(':', host.starts_with('[') ? host.find(']') : 0);
  const std::string name = host.substr(0, colon), port = colon < host.size() ? host.substr(colon + 1) : "80";
  if (port.empty() || port.find_first_not_of("0123456789") != std::string::npos) return false;
  if (std::ranges::find(loopback_hosts, name) != std::end(loopback_hosts)) return true;
  if (port != std::to_string(port_)) return false;
  return std::ranges::find(hosts_, name) != hosts_.end() ||
         (any_address_ && is_address(name));  // an address cannot be made to resolve to another one
}

std::optional<Response> Guard::refusal(const Request& request) const {
  const auto host = request.header("host");
  if (request.headers.count("host") != 1 || !known_host(host))
    return error_response(
        403,
        fmt::format("this server does not answer to \"{}\", only to {}; for another name of this machine, start it "
                    "with runner ui --host NAME; behind a tunnel, use localhost with the tunnel's port",
                    host.substr(0, 100), known_hosts()));
  const auto origin = request.header("origin");
  const bool foreign = !origin.empty() && lower(origin) != "http://" + lower(host);
  if (foreign || (request.header("sec-fetch-site") == "cross-site" && request.header("sec-fetch-mode") != "navigate"))
    return error_response(403, "a page of another site may not use this server");
  return {};
}

bool Guard::has_token(const Request& request) const {
  return !token_.empty() && same_secret(given_token(request), token_);
}

std::optional<Response> Guard::reading_refusal(const Request& request) const {
  if (access_.open_read || has_token(request)) return {};
  return token_refusal(request);
}

std::optional<Response> Guard::writing_refusal(const Request& request) const {
  if (access_.read_only) return error_response(403, "nothing can be changed here: it is runner ui --read-only");
  if (has_token(request)) return {};
  return token_refusal(request);
}

void Guard::protect(Response& response) {
  auto& headers = response.headers;
  headers.emplace_back("Content-Security-Policy", content_security_policy);
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  headers.emplace_back("X-Frame-Options", "DENY");
  headers.emplace_back("Referrer-Policy", "no-referrer");
  headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  const auto cached =
      std::any_of(headers.begin(), headers.end(), [](const auto& header) { return header.first == "Cache-Control"; });
  if (!cached) headers.emplace_back("Cache-Control", "no-store");
}

}  // namespace runner::ui
