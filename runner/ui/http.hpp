// Requests, responses and the server of `runner ui`, as its API and its page see them.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace runner::ui {

struct Request {
  std::string method;  ///< GET, HEAD, POST ...
  std::string path;    ///< without the query; percent-encoding is decoded
  std::multimap<std::string, std::string> query;
  std::multimap<std::string, std::string> headers;  ///< names in lower case
  std::string body;

  /// The first value; empty if there is none.
  std::string header(const std::string& lower_name) const {
    const auto found = headers.find(lower_name);
    return found == headers.end() ? "" : found->second;
  }
  std::string parameter(const std::string& name, const std::string& otherwise = "") const {
    const auto found = query.find(name);
    return found == query.end() ? otherwise : found->second;
  }
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  Headers headers = {};
  /// Instead of a body: fills `chunk` with the next bytes, or returns false at the end. It may wait for up to a second; an empty chunk
  /// only asks whether the client is still there.
  std::function<bool(std::string& chunk)> stream = {};
};

/// Called by several threads. Exceptions are the handler's own business: none may leave it.
using Handler = std::function<Response(const Request&)>;

/// The limits of what a client may use of the server. A client that exceeds one is answered with an error, or disconnected.
struct ServerLimits {
  size_t head_bytes = 32 << 10;  ///< request line and headers
  size_t body_bytes = 1 << 20;
  double request_seconds = 10;  ///< from the first byte of a request to its last
  double idle_seconds = 30;     ///< between two requests of a connection
  double write_seconds = 30;    ///< for which a client may read nothing
  size_t connections = 128;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  /// Serves until stop() is called, from any thread.
  virtual void run() = 0;
  virtual void stop() = 0;
};

/// A file of the page, compressed with gzip.
struct Asset {
  std::string_view name, gzip;
};

struct UiModule {
  static constexpr int current_version = 3;  ///< to be raised with every change of this file
  int version;
  /// Binds the address. port 0: any free one. `refusal_headers`: those of the answers that the server gives without the handler.
  /// Throws Error(environment) if that fails.
  std::unique_ptr<HttpServer> (*listen)(const std::string& host, int port, Handler handler, Headers refusal_headers,
                                        const ServerLimits& limits);
  std::vector<Asset> (*assets)();
};

}  // namespace runner::ui

extern "C" const runner::ui::UiModule* runner_ui_module();
