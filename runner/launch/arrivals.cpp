// Accepts connections without waiting.
#include "runner/launch/arrivals.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/launch/shared_resources.hpp"

namespace runner {

namespace {

constexpr double hello_seconds = 30;  ///< a client that says nothing for so long is no supervisor
constexpr size_t strangers_max = 64;

/// Why a connection could not be accepted.
std::string shortage_of(int error) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format(
      "the supervisor of rank 0 cannot accept another connection: {}; it may open {} files (ulimit -n), and needs one "
      "for each other supervisor",
      std::strerror(error), limit.rlim_cur);
}

}  // namespace

Arrivals::Arrivals(const std::string& address, int port, std::string secret, WhenFull when_full)
    : listener_(listen_on(address, port)), secret_(std::move(secret)), when_full_(when_full) {
  ::fcntl(listener_.get(), F_SETFL, ::fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
}

/// A connection that cannot be accepted would end every wait at once, so it is left to the next take().
void Arrivals::watch(std::vector<pollfd>& watched) const {
  if (!full_) watched.push_back({listener_.get(), POLLIN, 0});
  for (const auto& stranger : strangers_) watched.push_back({stranger.socket.fd(), POLLIN, 0});
}

/// Accepts a connection; the result is closed if there is none.
Descriptor Arrivals::accept() {
  Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int error = connection.is_open() ? 0 : errno;
  full_ = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
  if (!full_) return connection;
  if (when_full_ == WhenFull::fail) throw environment_error("{}", shortage_of(error));
  if (!std::exchange(warned_, true)) log::warning("{}", shortage_of(error));
  return connection;
}

/// Closes those that have waited longest, except for the newest strangers_max. A supervisor among them connects again.
void Arrivals::close_oldest() {
  while (strangers_.size() > strangers_max) strangers_.pop_front();
}

std::vector<Arrival> Arrivals::take() {
  while (true) {
    Descriptor connection = accept();
    if (!connection.is_open()) break;
    strangers_.push_back({MessageSocket(std::move(connection), secret_), steady_seconds()});
  }
  std::vector<Arrival> arrivals;
  for (auto& [socket, since] : strangers_) {
    if (auto hello = socket.receive())
      arrivals.push_back({std::exchange(socket, {}), std::move(*hello)});
    else if (steady_seconds() - since > hello_seconds)
      socket.close();
  }
  std::erase_if(strangers_, [](const Stranger& stranger) { return !stranger.socket.is_open(); });
  if (when_full_ == WhenFull::warn) close_oldest();
  return arrivals;
}

}  // namespace runner
