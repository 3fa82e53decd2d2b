#include "runner/ui/limited_stream.hpp"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace runner::ui {

bool LimitedStream::wait(short events, double seconds) const {
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

bool LimitedStream::wait_for_request(const std::atomic<bool>& stopping) {
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

bool LimitedStream::is_readable() const {
  return begin_ < end_ || wait(POLLIN, std::max(0.001, deadline_ - steady_seconds()));
}
bool LimitedStream::is_writable() const { return wait(POLLOUT, limits_.write_seconds); }

ssize_t LimitedStream::read(char* bytes, size_t size) {
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

ssize_t LimitedStream::write(const char* bytes, size_t size) {
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

bool LimitedStream::closed() const {
  char byte;
  const ssize_t got = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

namespace {

void read_address(int (*ask)(int, sockaddr*, socklen_t*), int socket, std::string& ip, int& port) {
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

}  // namespace

void LimitedStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  read_address(::getpeername, socket_, ip, port);
}
void LimitedStream::get_local_ip_and_port(std::string& ip, int& port) const {
  read_address(::getsockname, socket_, ip, port);
}

}  // namespace runner::ui
