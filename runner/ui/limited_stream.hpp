// The connection of one client with limits: bytes and seconds of a request, seconds of a write.
#pragma once
#include <arpa/inet.h>
#include <httplib.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "runner/base/clock.hpp"
#include "runner/ui/http.hpp"

namespace runner::ui {

/// cpp-httplib reads a line byte by byte and limits only each line and each wait. Here the head of a request is limited as a whole, so a
/// client can neither fill memory with headers nor keep a thread with one byte a second.
class LimitedStream final : public httplib::Stream {
 public:
  LimitedStream(socket_t socket, const ServerLimits& limits) : socket_(socket), limits_(limits) {}

  /// The head of the current request has been read: what follows is its body.
  void begin_body() { in_body_ = true; }
  /// Waits for the first byte of the next request. False: the client is gone, idle for too long, or `stopping` has become true.
  bool wait_for_request(const std::atomic<bool>& stopping) {
    request_bytes_ = 0;
    in_body_ = false;
    exceeded_ = 0;
    const double end = steady_seconds() + limits_.idle_seconds;
    while (begin_ == end_) {
      if (stopping || steady_seconds() > end) return false;
      if (!wait(POLLIN, 0.2)) continue;
      const ssize_t got = ::recv(socket_, buffer_, sizeof buffer_, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
    }
    deadline_ = steady_seconds() + limits_.request_seconds;
    return true;
  }

  bool is_readable() const override {
    return begin_ < end_ || wait(POLLIN, std::max(0.001, deadline_ - steady_seconds()));
  }
  bool is_writable() const override { return wait(POLLOUT, limits_.write_seconds); }
  ssize_t read(char* bytes, size_t size) override {
    // A body in chunks has more bytes than its content.
    if (!in_body_ && request_bytes_ >= limits_.head_bytes) exceeded_ = 431;
    if (in_body_ && request_bytes_ >= limits_.head_bytes + 2 * limits_.body_bytes) exceeded_ = 413;
    if (steady_seconds() > deadline_) exceeded_ = 408;
    if (exceeded_) return -1;
    if (begin_ == end_) {
      if (!wait(POLLIN, std::max(0.001, deadline_ - steady_seconds()))) {
        exceeded_ = 408;
        return -1;
      }
      const ssize_t got = ::recv(socket_, buffer_, sizeof buffer_, 0);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
    }
    const size_t taken = std::min(size, end_ - begin_);
    std::memcpy(bytes, buffer_ + begin_, taken);
    begin_ += taken;
    request_bytes_ += taken;
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* bytes, size_t size) override {
    size_t written = 0;
    while (written < size) {
      const ssize_t sent = ::send(socket_, bytes + written, size - written, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        written += static_cast<size_t>(sent);
      } else if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (!wait(POLLOUT, limits_.write_seconds)) return -1;
      } else {
        return -1;
      }
    }
    return static_cast<ssize_t>(written);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    read_address(::getpeername, socket_, ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    read_address(::getsockname, socket_, ip, port);
  }
  socket_t socket() const override { return socket_; }
  /// Whether the client has closed the connection.
  bool closed() const {
    char byte;
    const ssize_t got = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  }
  /// Why reading was ended by a limit: 408, 413 or 431; 0: it was not.
  int exceeded() const { return exceeded_; }

 private:
  bool wait(short events, double seconds) const {
    const double end = steady_seconds() + seconds;
    while (true) {
      const double left = end - steady_seconds();
      if (left <= 0) return false;
      pollfd one{.fd = socket_, .events = events, .revents = 0};
      const int ready = ::poll(&one, 1, std::max(1, static_cast<int>(left * 1000)));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }
  static void read_address(int (*ask)(int, sockaddr*, socklen_t*), int socket, std::string& ip, int& port) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    char text[INET6_ADDRSTRLEN] = "";
    port = 0;
    if (ask(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
        port = ntohs(v4.sin_port);
      } else if (address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
        port = ntohs(v6.sin6_port);
      }
    }
    ip = text;
  }

  socket_t socket_;
  const ServerLimits& limits_;
  char buffer_[4096];
  size_t begin_ = 0, end_ = 0;
  size_t request_bytes_ = 0;  ///< of the head, or of all after begin_body()
  bool in_body_ = false;
  double deadline_ = 0;
  int exceeded_ = 0;
};

}  // namespace runner::ui
