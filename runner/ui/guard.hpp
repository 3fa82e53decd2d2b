// Which requests are answered: those of this machine's own page, and writing ones only with the token.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/ui/http.hpp"

namespace runner::ui {

class Guard {
 public:
  /// `host`, `port`: where the server listens. An empty `token` permits no writing.
  Guard(std::string host, int port, std::string token);

  /// An error, if the request must not be answered. Host: otherwise a page of another site could read answers with a name of its own
  /// that resolves to this address (DNS rebinding). Origin: browsers send it with every request that another site's page makes.
  std::optional<Response> refusal(const Request& request) const;
  /// An error, unless the request has the token in the header X-Runner-Token.
  std::optional<Response> writing_refusal(const Request& request) const;
  /// Adds the headers that every answer has.
  void protect(Response& response) const;
  const std::string& token() const { return token_; }

 private:
  bool known_host(const std::string& host) const;
  int port_;
  bool any_address_;
  std::vector<std::string> hosts_;
  std::string token_;
};

/// 32 hexadecimal digits from the system's random numbers.
std::string random_token();

/// {"error": message}.
Response error_response(int status, const std::string& message);

}  // namespace runner::ui
