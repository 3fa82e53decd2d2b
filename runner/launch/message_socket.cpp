// Sockets with time limits for connecting and sending, and with keepalive.
#include "runner/launch/message_socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "runner/base/error.hpp"

namespace runner {

namespace {

template <typename Value>
void set_option(int fd, int level, int option, Value value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

/// `ask`: getpeername or getsockname.
std::string address_of(int fd, decltype(::getpeername)* ask) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ask(fd, reinterpret_cast<sockaddr*>(&address), &size);
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6))
      ::inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof text);
    else
      ::inet_ntop(AF_INET6, &v6, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  }
  return text;
}

/// Connects within `seconds`. Returns 0 or an errno. The socket is in blocking mode again afterwards.
int connect_within(int fd, const addrinfo& target, double seconds) {
  int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  int problem = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 ? 0 : errno;
  if (problem == EINPROGRESS) {
    pollfd writable{fd, POLLOUT, 0};
    int ready = ::poll(&writable, 1, static_cast<int>(seconds * 1000));
    socklen_t size = sizeof problem;
    if (ready <= 0)
      problem = ETIMEDOUT;
    else
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size);
  }
  ::fcntl(fd, F_SETFL, flags);
  return problem;
}

}  // namespace

MessageSocket::MessageSocket(Descriptor connection, const std::string& secret, bool accepted)
    : connection_(std::move(connection)) {
  int fd = connection_.get();
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000u);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_SNDTIMEO, timeval{10, 0});
  if (secret.empty() || !connection_.is_open()) return;
  seal_.emplace(secret, accepted);
  write(seal_->greeting());
}

MessageSocket MessageSocket::connect(const std::string& address, int port, double seconds, std::string& problem,
                                     const std::string& secret) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int failed = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed == EAI_NONAME) throw environment_error("there is no host \"{}\" (the address of rank 0)", address);
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> targets(found, [](addrinfo* list) {
    if (list) ::freeaddrinfo(list);
  });
  if (failed != 0) problem = ::gai_strerror(failed);
  for (addrinfo* target = found; target; target = target->ai_next) {
    Descriptor connection(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int refused = connection.is_open() ? connect_within(connection.get(), *target, seconds) : errno;
    if (refused == 0) return MessageSocket(std::move(connection), secret, /*accepted=*/false);
    problem = std::strerror(refused);
  }
  return {};
}

void MessageSocket::send(const nlohmann::json& message) {
  std::string line = to_line(message);
  if (!seal_) return write(line);
  if (seal_->is_open()) return write(seal_->seal(line));
  unsealed_.push_back(std::move(line));
}

void MessageSocket::write(std::string_view rest) {
  while (connection_.is_open() && !rest.empty()) {
    ssize_t n = ::send(fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      ::shutdown(fd(), SHUT_WR);  // the line may be incomplete, so nothing more is sent; receiving is still possible
      return;
    }
  }
}

void MessageSocket::close() {
  connection_.close();
  received_.clear();
}

std::optional<nlohmann::json> MessageSocket::receive() {
  if (received_.empty()) read();
  if (received_.empty()) return std::nullopt;
  nlohmann::json message = std::move(received_.front().message);
  received_bytes_ = received_.front().bytes;
  received_.pop_front();
  return message;
}

/// Reads what has arrived, at most 1 MiB.
void MessageSocket::read() {
  char buffer[65536];
  for (int reads = 0; reads < 16 && connection_.is_open(); ++reads) {
    ssize_t n = ::recv(fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return connection_.close();
    for (const std::string& line : lines_.feed({buffer, static_cast<size_t>(n)})) take(line);
  }
}

void MessageSocket::take(std::string_view line) {
  if (!connection_.is_open()) return;
  std::optional<std::string_view> text = line;
  if (seal_ && !seal_->is_open()) {
    if (!seal_->take_greeting(line)) return connection_.close();
    for (const auto& waiting : std::exchange(unsealed_, {})) write(seal_->seal(waiting));
    return;
  }
  if (seal_) text = seal_->open(line);
  if (!text) return connection_.close();
  if (auto message = from_line(*text)) received_.push_back({std::move(*message), text->size()});
}

std::string MessageSocket::peer_address() const { return address_of(fd(), ::getpeername); }
std::string MessageSocket::own_address() const { return address_of(fd(), ::getsockname); }

}  // namespace runner
