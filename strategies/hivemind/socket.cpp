#include "strategies/hivemind/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "runner/base/error.hpp"

namespace runner::swarm {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Null if the name is unknown.
Addresses resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0)
    list = nullptr;
  return {list, ::freeaddrinfo};
}

std::string reason() { return std::generic_category().message(errno); }

/// Polls in short intervals, so that `stop` ends it.
bool poll_until(int fd, short events, Deadline deadline, const Stop& stop) {
  constexpr Milliseconds slice{100};
  for (;;) {
    if (stop) throw ConnectionError("this peer leaves the swarm");
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp(left, Milliseconds(0), slice).count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw ConnectionError("poll: " + reason());
    if (left <= Milliseconds(0)) return false;
  }
}

void set_non_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

std::string to_text(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

std::optional<Endpoint> parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size() || text.size() > 255) return std::nullopt;
  std::string host = text.substr(0, colon);
  const std::string digits = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find_first_of(":/[] ") != std::string::npos)
    return std::nullopt;
  if (digits.size() > 5 || digits.find_first_not_of("0123456789") != std::string::npos || host.empty())
    return std::nullopt;
  const int port = std::stoi(digits);
  if (port < 1 || port > UINT16_MAX) return std::nullopt;
  return Endpoint{host, static_cast<uint16_t>(port)};
}

Socket::Socket(Descriptor fd, const Stop& stop) : fd_(std::move(fd)), stop_(&stop) {
  set_non_blocking(fd_.get());
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Socket::wait(short events, Deadline deadline) const {
  if (!poll_until(fd_.get(), events, deadline, *stop_)) throw ConnectionError("no answer in time");
}

size_t Socket::read_some(std::span<uint8_t> bytes) {
  const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
  if (got == 0) throw ConnectionError("the other end has closed the connection");
  if (got > 0) return static_cast<size_t>(got);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) throw ConnectionError("reading: " + reason());
  return 0;
}

void Socket::read(std::span<uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    bytes = bytes.subspan(read_some(bytes));
    if (!bytes.empty()) wait(POLLIN, deadline);
  }
}

void Socket::write(std::span<const uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes = bytes.subspan(static_cast<size_t>(sent));
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      throw ConnectionError("writing: " + reason());
    if (!bytes.empty()) wait(POLLOUT, deadline);
  }
}

bool Socket::closed_by_peer() const {
  uint8_t byte = 0;
  const ssize_t got = ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

std::string Socket::peer_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = "";
  if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  const std::string text = host, mapped = "::ffff:";  // an IPv4 address at a port for both
  return text.starts_with(mapped) ? text.substr(mapped.size()) : text;
}

Socket connect_to(const Endpoint& endpoint, Deadline deadline, const Stop& stop) {
  const auto addresses = resolve(endpoint.host, endpoint.port, AI_ADDRCONFIG);
  std::string why = "unknown host";
  for (const addrinfo* one = addresses.get(); one; one = one->ai_next) {
    Descriptor fd(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.is_open()) continue;
    set_non_blocking(fd.get());
    int error = 0;
    if (::connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS && poll_until(fd.get(), POLLOUT, deadline, stop)) {
        socklen_t size = sizeof error;
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (error == 0) return Socket(std::move(fd), stop);
    why = error == EINPROGRESS ? "no answer in time" : std::generic_category().message(error);
  }
  throw ConnectionError(to_text(endpoint) + ": " + why);
}

Listener::Listener(const std::string& host, uint16_t port, const Stop& stop) : stop_(stop) {
  const auto addresses = resolve(host, port, AI_PASSIVE | AI_NUMERICSERV);
  if (!addresses)
    throw environment_error("strategy.host = \"{}\" is no address of this machine; \"0.0.0.0\" is all of them", host);
  fd_ = Descriptor(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd_.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 || ::listen(fd_.get(), 64) != 0)
    throw environment_error("cannot listen at {}: {}; strategy.port = 0 takes a free port", to_text({host, port}),
                            reason());
  set_non_blocking(fd_.get());
  port_ = port_of(fd_.get());
}

std::optional<Socket> Listener::accept(Milliseconds patience) {
  if (!poll_until(fd_.get(), POLLIN, Clock::now() + patience, stop_)) return std::nullopt;
  Descriptor fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.is_open()) return std::nullopt;  // the other end has closed it again, or there are no descriptors left
  return Socket(std::move(fd), stop_);
}

}  // namespace runner::swarm
