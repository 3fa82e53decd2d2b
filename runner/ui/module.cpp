// The library librunner_ui.so: the HTTP server (cpp-httplib) and the files of the page.
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/ui/http.hpp"
#include "runner/ui/limited_stream.hpp"

namespace runner::ui {

std::vector<Asset> embedded_assets();

namespace {

/// Of the current connection's thread.
thread_local LimitedStream* current_stream = nullptr;

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

class Server final : public HttpServer, private httplib::Server {
 public:
  Server(const std::string& host, int port, ui::Handler handler, const ServerLimits& limits)
      : handler_(std::move(handler)), limits_(limits), connections_(limits.connections) {
    // Not SO_REUSEPORT, with which two programs could share a port.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_tcp_nodelay(true);
    set_keep_alive_max_count(requests_of_a_connection);
    set_keep_alive_timeout(static_cast<time_t>(limits.idle_seconds));
    set_payload_max_length(limits.body_bytes);
    // All requests are answered before cpp-httplib routes them: its patterns are regular expressions, whose cost depends on the client.
    set_pre_routing_handler([this](const httplib::Request& from, httplib::Response& to) {
      if (from.path.size() > path_bytes_max)
        to.status = 414;
      else if (from.method == "POST")
        return HandlerResponse::Unhandled;  // the body is still to be read
      else
        answer(handler_(converted(from, "")), to);
      return HandlerResponse::Handled;
    });
    Post(".*", [this](const httplib::Request& from, httplib::Response& to, const httplib::ContentReader& read) {
      std::string body;
      const bool whole = !from.is_multipart_form_data() && read([&](const char* bytes, size_t size) {
        if (body.size() + size > limits_.body_bytes) return false;
        body.append(bytes, size);
        return true;
      });
      if (!whole)
        to.status = from.is_multipart_form_data() ? 415 : 413;
      else
        answer(handler_(converted(from, std::move(body))), to);
    });
    errno = 0;
    port_ = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
    if (port_ <= 0)
      throw environment_error("cannot listen on {}:{}: {}", host, port,
                              errno ? std::strerror(errno) : "the host is not an address of this machine");
    // Its queue of five would make the sixth of many tabs that are opened together wait for a second.
    ::listen(svr_sock_, waiting_connections);
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
  /// Serves the client in a thread, or tells it that there is none.
  void take(int socket) {
    const char* problem = connections_.start([this, socket] {
      try {
        LimitedStream stream(socket, limits_);
        serve(stream);
      } catch (const std::exception&) {  // no memory: this client is disconnected
      }
      finish(socket);
    });
    if (!problem) return;
    LimitedStream stream(socket, limits_);
    refuse(stream, "503 Service Unavailable\r\nRetry-After: 1", problem);
    finish(socket);
  }

  /// Closes the socket. The client must be able to read the answer, also if bytes of its request are left.
  static void finish(int socket) {
    ::shutdown(socket, SHUT_WR);
    char rest[1024];
    for (int i = 0; i < 8 && ::recv(socket, rest, sizeof rest, MSG_DONTWAIT) > 0; ++i) {
    }
    ::close(socket);
  }

  void serve(LimitedStream& stream) {
    current_stream = &stream;
    for (size_t count = 1; stream.wait_for_request(stopping_); ++count) {
      bool closed = false;
      bool answered = false;
      // Ranges would let a client ask for the same bytes a thousand times.
      const bool good =
          process_request(stream, count == requests_of_a_connection, closed, [&](httplib::Request& request) {
            request.ranges.clear();
            hide_encodings(request.headers);
            answered = true;
          });
      if (!answered && stream.exceeded())
        refuse(stream, "408 Request Timeout", "the request took too long or is too large");
      if (!good || closed || stream.exceeded() || count == requests_of_a_connection) break;
    }
    current_stream = nullptr;
  }

  static void refuse(LimitedStream& stream, const std::string& status, const std::string& text) {
    const std::string answer =
        "HTTP/1.1 " + status +
        "\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: " + std::to_string(text.size()) +
        "\r\n\r\n" + text;
    static_cast<httplib::Stream&>(stream).write(answer.data(), answer.size());
  }

  ui::Handler handler_;
  ServerLimits limits_;
  std::atomic<bool> stopping_ = false;
  Connections connections_;
  int port_ = -1;
};

std::unique_ptr<HttpServer> start_listening(const std::string& host, int port, Handler handler,
                                            const ServerLimits& limits) {
  return std::make_unique<Server>(host, port, std::move(handler), limits);
}

}  // namespace

}  // namespace runner::ui

extern "C" const runner::ui::UiModule* runner_ui_module() {
  static const runner::ui::UiModule module{.version = runner::ui::UiModule::current_version,
                                           .listen = runner::ui::start_listening,
                                           .assets = runner::ui::embedded_assets};
  return &module;
}
