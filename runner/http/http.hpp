// HTTP and HTTPS requests to servers that a recipe names. The system's libcurl makes them. It is loaded when a recipe asks for
// requests, so that programs start without it.
#pragma once
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace runner {

struct HttpRequest {
  std::string method = "POST";
  std::string url;
  std::string body = {};
  std::vector<std::string> headers = {};      ///< "Content-Type: application/json"
  std::string user = {}, password = {};       ///< for basic authentication; empty: none
  std::chrono::milliseconds timeout{10'000};  ///< of the whole request
};

struct HttpReply {
  int status = 0;       ///< 0: there is no reply
  std::string body;     ///< at most 16 MiB; a longer one is no reply
  std::string problem;  ///< why there is none: "Could not connect to server"; empty: there is one
  bool ok() const { return status >= 200 && status < 300; }
  /// Whether the same request may succeed later: no reply, 408, 429, or an error of the server.
  bool may_recover() const { return status == 0 || status == 408 || status == 429 || status >= 500; }
};

/// A client that keeps its connections open. Follows the variables http_proxy, https_proxy and no_proxy, and no redirections. HTTPS
/// needs a certificate that the system trusts.
class HttpClient {
 public:
  /// Throws Error(environment) if libcurl is not installed.
  HttpClient();
  ~HttpClient();
  /// Waits for the reply. One call at a time.
  HttpReply send(const HttpRequest& request);
  /// Ends the call in progress within a second, and all later ones at once. For other threads.
  void stop() { stopped_ = true; }

 private:
  void* handle_;
  std::atomic<bool> stopped_ = false;
};

/// "https://localhost:80" of "https://localhost:80/path?query": what may be shown to people, because paths and queries may have secrets.
std::string origin_of_url(const std::string& url);
/// The address with the path: "https://localhost:80/path".
std::string page_of_url(const std::string& url);

}  // namespace runner
