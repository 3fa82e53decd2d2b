// The guard decides which requests are answered: requests of the page that this server wrote, with its token.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/ui/http.hpp"

namespace runner::ui {

struct Access {
  bool read_only = false;  ///< nothing can be changed, also with the token
  bool open_read = false;  ///< reading needs no token
};

class Guard {
 public:
  /// `host`, `port`: where the server listens.
  Guard(std::string host, int port, std::string token, Access access = {});

  /// An error, if the request must not be answered. Host: otherwise a page of another site could read answers with a name of its own
  /// that resolves to this address (DNS rebinding). The names of the loopback address may have any port, as behind a tunnel. Origin:
  /// browsers send it with every request that another page makes, also one of another port.
  std::optional<Response> refusal(const Request& request) const;
  /// An error, unless reading is open or the request has the token: in the header X-Runner-Token, or for streams, whose headers a page
  /// cannot set, as the parameter `token`. Other users of the machine reach the port, too.
  std::optional<Response> reading_refusal(const Request& request) const;
  /// An error, unless the request has the token in the header X-Runner-Token.
  std::optional<Response> writing_refusal(const Request& request) const;
  bool has_token(const Request& request) const;
  /// Adds the headers that every answer has.
  static void protect(Response& response);

 private:
  bool known_host(const std::string& host) const;
  /// "localhost:8787, 127.0.0.1:8787": what known_host() accepts.
  std::string known_hosts() const;
  int port_;
  bool any_address_;
  Access access_;
  std::vector<std::string> hosts_;
  std::string token_;
};

/// Whether a server on this host listens on all addresses of the machine.
bool is_any_address(const std::string& host);
/// The name of this machine, in lower case; empty if it has none.
std::string machine_name();

/// 32 hexadecimal digits from the system's random numbers.
std::string random_token();

/// {"error": message}. `retry_after_s`: the seconds after which it may be of use to ask again; 0: it is of none.
Response error_response(int status, const std::string& message, int retry_after_s = 0);

}  // namespace runner::ui
