// Accepts connections without waiting.
#include "runner/launch/arrivals.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/launch/shared_resources.hpp"

namespace runner {

namespace {

constexpr double hello_seconds = 5;  ///< a client that says nothing for so long is no supervisor
constexpr int accepted_at_once = 64, rounds_of_take = 16;

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

Arrivals::Arrivals(const std::string& address, int port, std::string secret, WhenFull when_full, size_t most_strangers)
    : listener_(listen_on(address, port)),
      secret_(std::move(secret)),
      when_full_(when_full),
      most_strangers_(most_strangers) {
  ::fcntl(listener_.get(), F_SETFL, ::fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
}

/// A connection that cannot be accepted would end every wait at once, so it is left to the next take().
void Arrivals::watch(std::vector<pollfd>& watched) const {
  if (!full_) watched.push_back({listener_.get(), POLLIN, 0});
  for (const auto& stranger : strangers_) watched.push_back({stranger.socket.fd(), POLLIN, 0});
}

/// Accepts a connection; the result is closed if there is none. Strangers give up their descriptors for it.
Descriptor Arrivals::accept() {
  while (true) {
    Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int error = connection.is_open() ? 0 : errno;
    full_ = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    if (!full_) return connection;
    if (!strangers_.empty()) {
      close_one();
      continue;
    }
    if (when_full_ == WhenFull::fail) throw environment_error("{}", shortage_of(error));
    if (!std::exchange(warned_, true)) log::warning("{}", shortage_of(error));
    return connection;
  }
}

/// Returns whether there may be more.
bool Arrivals::accept_some() {
  for (int i = 0; i < accepted_at_once; ++i) {
    Descriptor connection = accept();
    if (!connection.is_open()) return false;
    MessageSocket socket(std::move(connection), secret_);
    std::string address = socket.peer_address();
    strangers_.push_back({std::move(socket), std::move(address), steady_seconds()});
  }
  return true;
}

/// Moves those that have spoken to `arrivals`, and closes those that are silent for too long.
void Arrivals::hear(std::vector<Arrival>& arrivals) {
  for (auto& stranger : strangers_) {
    if (auto hello = stranger.socket.receive())
      arrivals.push_back({std::exchange(stranger.socket, {}), std::move(*hello)});
    else if (steady_seconds() - stranger.since > hello_seconds)
      stranger.socket.close();
  }
  std::erase_if(strangers_, [](const Stranger& stranger) { return !stranger.socket.is_open(); });
}

/// Closes the oldest stranger of the address that has most of them, so that it does not push out those of other addresses.
void Arrivals::close_one() {
  std::map<std::string, size_t> counts;
  for (const auto& stranger : strangers_) ++counts[stranger.address];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  strangers_.erase(std::ranges::find(strangers_, most->first, &Stranger::address));
}

std::vector<Arrival> Arrivals::take() {
  std::vector<Arrival> arrivals;
  bool more = true;
  for (int round = 0; more && round < rounds_of_take; ++round) {
    more = accept_some();
    hear(arrivals);
    while (strangers_.size() > most_strangers_) close_one();
  }
  return arrivals;
}

}  // namespace runner
