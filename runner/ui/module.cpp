// The library librunner_ui.so: the HTTP server (cpp-httplib) and the files of the page.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/error.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/ui/http.hpp"
#include "runner/ui/limited_stream.hpp"

namespace runner::ui {

std::vector<Asset> embedded_assets();

namespace {

/// The stream of the current connection's thread.
thread_local LimitedStream* current_stream = nullptr;
/// Whether the current request has an answer, and whether the connection must end after it, because bytes of the request are left.
thread_local bool answered = false, end_connection = false;

constexpr size_t requests_of_a_connection = 1000;
constexpr size_t path_bytes_max = 2048;
constexpr int waiting_connections = 128;
/// cpp-httplib would compress every text anew. The page's files are compressed, and other answers stay on this machine, so it does not
/// see what the client accepts; the handler does.
constexpr const char* accepted_encodings = "x-accepted-encodings";

/// A thread for each connection, up to a limit.
class Connections {
 public:
  explicit Connections(size_t most) : most_(most) {}

  /// Null: the connection has a thread now. Otherwise the reason why it has none.
  const char* start(std::function<void()> serve) {
    const std::lock_guard lock(mutex_);
    if (active_ >= most_) return "too many connections";
    const BlockedSignals blocked;
    try {
      std::thread([this, serve = std::move(serve)] {
        serve();
        const std::lock_guard done(mutex_);
        if (--active_ == 0) idle_.notify_all();
      }).detach();
    } catch (const std::system_error&) {
      return "the system has no thread for this connection";
    }
    ++active_;
    return nullptr;
  }
  /// Waits for all connections.
  void wait() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return active_ == 0; });
  }

 private:
  size_t most_, active_ = 0;
  std::mutex mutex_;
  std::condition_variable idle_;
};

Request converted(const httplib::Request& from, std::string body) {
  Request request{.method = from.method, .path = from.path, .query = {}, .headers = {}, .body = std::move(body)};
  for (const auto& [name, value] : from.params) request.query.emplace(name, value);
  for (const auto& [name, value] : from.headers) request.headers.emplace(lower(name), value);
  if (auto accepted = request.headers.extract(accepted_encodings)) {
    accepted.key() = "accept-encoding";
    request.headers.insert(std::move(accepted));
  }
  return request;
}

void answer(Response from, httplib::Response& to) {
  to.status = from.status;
  for (const auto& [name, value] : from.headers) to.set_header(name, value);
  if (!from.stream) {
    to.body = std::move(from.body);
    to.set_header("Content-Type", from.type);
    return;
  }
  to.set_chunked_content_provider(from.type, [next = std::move(from.stream)](size_t, httplib::DataSink& sink) {
    std::string chunk;
    if (!next(chunk)) {
      sink.done();
      return true;
    }
    if (chunk.empty()) return !(current_stream && current_stream->closed());
    return sink.write(chunk.data(), chunk.size());
  });
}

void hide_encodings(httplib::Headers& headers) {
  headers.erase(accepted_encodings);
  const auto given = headers.find("Accept-Encoding");
  if (given == headers.end()) return;
  const std::string value = given->second;
  headers.erase("Accept-Encoding");
  headers.emplace(accepted_encodings, value);
}

struct Refusal {
  int status;
  const char *reason, *text;
  int retry_after_s = 0;  ///< 0: it is of no use to ask again
};
constexpr Refusal refusals[] = {
    {400, "Bad Request", "this is no request of HTTP that the server understands"},
    {408, "Request Timeout", "the request took too long"},
    {413, "Payload Too Large", "the body of the request is too large"},
    {414, "URI Too Long", "the address is too long"},
    {415, "Unsupported Media Type", "the body must be JSON, not a form"},
    {416, "Range Not Satisfiable", "parts of an answer cannot be asked for"},
    {431, "Request Header Fields Too Large", "the head of the request is too large"},
    {503, "Service Unavailable", "too many connections", /*retry_after_s=*/1},
};

const Refusal& refusal_of(int status) {
  const auto* found = std::ranges::find(refusals, status, &Refusal::status);
  return found == std::end(refusals) ? refusals[0] : *found;
}

/// The length of the body that a request announces; nothing if it is no number.
std::optional<uint64_t> announced_length(const httplib::Request& request) {
  if (!request.has_header("Content-Length")) return 0;
  return parse_number<uint64_t>(request.get_header_value("Content-Length"));
}

class Server final : public HttpServer, private httplib::Server {
 public:
  Server(const std::string& host, int port, ui::Handler handler, ui::Headers refusal_headers,
         const ServerLimits& limits)
      : handler_(std::move(handler)),
        refusal_headers_(std::move(refusal_headers)),
        limits_(limits),
        connections_(limits.connections) {
    // Not SO_REUSEPORT, with which two programs could share a port.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_tcp_nodelay(true);
    set_keep_alive_max_count(requests_of_a_connection);
    set_keep_alive_timeout(static_cast<time_t>(limits.idle_seconds));
    set_payload_max_length(limits.body_bytes);
    set_pre_routing_handler(
        [this](const httplib::Request& from, httplib::Response& to) { return pre_route(from, to); });
    set_error_handler(HandlerWithResponse([this](const httplib::Request&, httplib::Response& to) {
      on_error(to);
      return HandlerResponse::Handled;
    }));
    Post(".*", [this](const httplib::Request& from, httplib::Response& to, const httplib::ContentReader& read) {
      read_body(from, to, read);
    });
    bind(host, port);
  }
  ~Server() override { ::close(svr_sock_); }

  int port() const override { return port_; }
  /// Not cpp-httplib's loop, which ends for good when the system has no descriptors or memory for a connection.
  void run() override {
    while (!stopping_) {
      pollfd one{.fd = svr_sock_, .events = POLLIN, .revents = 0};
      constexpr int look_every_ms = 200;
      if (::poll(&one, 1, look_every_ms) <= 0) continue;
      const int socket = ::accept4(svr_sock_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket >= 0)
        take(socket);
      else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the client waits in the queue
    }
    connections_.wait();
  }
  void stop() override { stopping_ = true; }

 private:
  void bind(const std::string& host, int port) {
    errno = 0;
    port_ = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
    if (port_ <= 0)
      throw environment_error("cannot listen on {}:{}: {}", host, port,
                              errno ? std::strerror(errno) : "the host is not an address of this machine");
    // The queue of five of cpp-httplib would make the sixth of many tabs that are opened together wait for a second.
    ::listen(svr_sock_, waiting_connections);
  }

  /// All requests are answered before cpp-httplib routes them: its patterns are regular expressions, whose cost depends on the client. Only
  /// those with a body go on to read_body().
  HandlerResponse pre_route(const httplib::Request& from, httplib::Response& to) {
    const auto length = announced_length(from);
    if (from.path.size() > path_bytes_max)
      to.status = 414;
    else if (!length || *length > limits_.body_bytes)
      to.status = length ? 413 : 400;
    else if (from.method == "POST")
      return HandlerResponse::Unhandled;
    else
      answer(handler_(converted(from, "")), to);
    end_connection = end_connection || (to.status >= 400 && to.body.empty());
    return HandlerResponse::Handled;
  }

  /// Refusals by cpp-httplib and by the handlers here have no body yet.
  void on_error(httplib::Response& to) {
    answered = true;
    if (!to.body.empty()) return;
    end_connection = true;
    if (current_stream && current_stream->exceeded()) to.status = current_stream->exceeded();
    answer(refusal(to.status), to);
  }

  void read_body(const httplib::Request& from, httplib::Response& to, const httplib::ContentReader& read) {
    std::string body;
    const bool whole = !from.is_multipart_form_data() && read([&](const char* bytes, size_t size) {
      if (body.size() + size > limits_.body_bytes) return false;
      body.append(bytes, size);
      return true;
    });
    if (!whole)
      to.status = from.is_multipart_form_data() ? 415 : current_stream->exceeded() ? current_stream->exceeded() : 413;
    else
      answer(handler_(converted(from, std::move(body))), to);
  }

  /// Serves the client in a thread, or tells it that there is none.
  void take(int socket) {
    const char* problem = connections_.start([this, socket] {
      try {
        LimitedStream stream(socket, limits_);
        serve(stream);
        if (end_connection || stream.exceeded()) return finish(socket, /*wait_s=*/1);
      } catch (const std::exception&) {  // no memory: this client is disconnected
      }
      finish(socket, /*wait_s=*/0);
    });
    if (!problem) return;
    LimitedStream stream(socket, limits_);
    refuse(stream, 503, problem);
    finish(socket, /*wait_s=*/0);
  }

  /// Closes the socket. The client must be able to read the answer: bytes of its request that are left would make it lose that. So they
  /// are read, for at most `wait_s` seconds.
  static void finish(int socket, double wait_s) {
    ::shutdown(socket, SHUT_WR);
    constexpr size_t most = 4 << 20;
    const double end = steady_seconds() + wait_s;
    char bytes[16384];
    for (size_t total = 0; total < most;) {
      const ssize_t got = ::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
      if (got > 0) {
        total += static_cast<size_t>(got);
        continue;
      }
      const double left = end - steady_seconds();
      pollfd one{.fd = socket, .events = POLLIN, .revents = 0};
      if (left <= 0 || ::poll(&one, 1, 1 + static_cast<int>(1000 * left)) == 0) break;
    }
    ::close(socket);
  }

  void serve(LimitedStream& stream) {
    current_stream = &stream;
    end_connection = false;
    for (size_t count = 1; stream.wait_for_request(stopping_); ++count) {
      bool closed = false;
      answered = false;
      // Ranges would let a client ask for the same bytes a thousand times.
      const bool good =
          process_request(stream, count == requests_of_a_connection, closed, [&](httplib::Request& request) {
            stream.begin_body();
            request.ranges.clear();
            hide_encodings(request.headers);
            answered = true;
          });
      if (!answered && stream.exceeded()) refuse(stream, stream.exceeded());
      if (!good || closed || end_connection || stream.exceeded() || count == requests_of_a_connection) break;
    }
    current_stream = nullptr;
  }

  /// An error in the form of the API's errors.
  Response refusal(int status, const char* text = nullptr) const {
    const Refusal& known = refusal_of(status);
    Response response{.status = status,
                      .body = json_text(nlohmann::json{{"schema", 1}, {"error", text ? text : known.text}}),
                      .headers = refusal_headers_};
    if (known.retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(known.retry_after_s));
    return response;
  }

  void refuse(LimitedStream& stream, int status, const char* text = nullptr) const {
    const auto response = refusal(status, text);
    std::string answer =
        fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nConnection: close\r\nContent-Length: {}\r\n", status,
                    refusal_of(status).reason, response.type, response.body.size());
    for (const auto& [name, value] : response.headers) answer += name + ": " + value + "\r\n";
    answer += "\r\n" + response.body;
    static_cast<httplib::Stream&>(stream).write(answer.data(), answer.size());
  }

  ui::Handler handler_;
  ui::Headers refusal_headers_;
  ServerLimits limits_;
  std::atomic<bool> stopping_ = false;
  Connections connections_;
  int port_ = -1;
};

std::unique_ptr<HttpServer> start_listening(const std::string& host, int port, Handler handler, Headers refusal_headers,
                                            const ServerLimits& limits) {
  return std::make_unique<Server>(host, port, std::move(handler), std::move(refusal_headers), limits);
}

}  // namespace

}  // namespace runner::ui

extern "C" const runner::ui::UiModule* runner_ui_module() {
  static const runner::ui::UiModule module{.version = runner::ui::UiModule::current_version,
                                           .listen = runner::ui::start_listening,
                                           .assets = runner::ui::embedded_assets};
  return &module;
}
