#include "strategies/hivemind/server.hpp"

#include <algorithm>
#include <system_error>

namespace runner::swarm {

void BanList::offend(const std::string& address, Clock::time_point now, bool shared) {
  std::lock_guard lock(mutex_);
  if (entries_.size() >= limits_.addresses && !entries_.contains(address))
    entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& entry) { return entry.second.until; }));
  Entry& entry = entries_[address];
  if (shared) {
    constexpr std::chrono::seconds counted{1};
    if (now - entry.second >= counted) {
      entry.second = now;
      entry.in_second = 0;
    }
    if (++entry.in_second > limits_.shared_per_second) entry.shared_until = entry.second + counted;
    return;
  }
  const int beyond = ++entry.offences - limits_.offences_before;
  if (beyond <= 0) return;
  const auto doubled = limits_.first * (int64_t{1} << std::min(beyond - 1, 20));
  entry.until = now + std::min<Milliseconds>(doubled, limits_.longest);
}

void BanList::forgive(const std::string& address) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(address);
  if (found != entries_.end()) found->second.offences = 0;
}

bool BanList::is_banned(const std::string& address, Clock::time_point now, bool shared) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(address);
  return found != entries_.end() && now < (shared ? found->second.shared_until : found->second.until);
}

size_t BanList::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

Server::Server(const std::string& host, uint16_t port, const Digest& key, Limits limits)
    : key_(key), limits_(limits), listener_(host, port, stop_), bans_(limits.bans) {}

void Server::start() {
  acceptor_ = std::thread([this] { accept_connections(); });
}

void Server::stop() {
  stop_ = true;
  if (acceptor_.joinable()) acceptor_.join();
}

void Server::wait_until_quiet(Deadline deadline) const {
  while (busy_ > 0 && Clock::now() < deadline) std::this_thread::sleep_for(Milliseconds(5));
}

Server::Counts Server::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

void Server::accept_connections() {
  try {
    while (!stop_) {
      auto socket = listener_.accept(Milliseconds(100));
      reap(false);
      if (!socket) continue;
      const std::string address = socket->peer_address();
      bool admitted = admits(address);
      if (admitted) {
        auto& connection = connections_.emplace_back();
        connection.address = address;
        try {
          start_thread(connection, std::move(*socket));
        } catch (const std::system_error&) {  // the system gives no more threads
          connections_.pop_back();
          admitted = false;
        }
      }
      std::lock_guard lock(mutex_);  // if it is not admitted, the socket closes
      ++(admitted ? counts_.accepted : counts_.refused);
      counts_.most_open = std::max<int64_t>(counts_.most_open, std::ssize(connections_));
    }
  } catch (const ConnectionError&) {  // the peer leaves
  }
  reap(true);
}

void Server::start_thread(Connection& connection, Socket socket) {
  connection.thread = std::thread(
      [this, &connection, own = std::make_shared<Socket>(std::move(socket))] { serve(std::move(*own), connection); });
}

/// Whether peers have this address.
bool Server::is_shared(const std::string& address) const {
  if (is_of_peer_ && is_of_peer_(address)) return true;
  std::lock_guard lock(mutex_);
  return known_.contains(address);
}

bool Server::admits(const std::string& address) {
  const bool shared = is_shared(address);
  const size_t kept_free = shared ? 0 : limits_.connections / 4;
  if (connections_.size() + kept_free >= limits_.connections) return false;
  if (bans_.is_banned(address, Clock::now(), shared)) return false;
  const auto strangers = std::ranges::count_if(
      connections_, [&](const auto& one) { return !one.known && !one.ended && one.address == address; });
  return static_cast<size_t>(strangers) < limits_.strangers_of_address;
}

void Server::reap(bool all) {
  for (auto one = connections_.begin(); one != connections_.end();) {
    if (!all && !one->ended) {
      ++one;
      continue;
    }
    one->thread.join();
    one = connections_.erase(one);
  }
}

void Server::handle(const Message& message, Channel& channel) {
  const auto handler = handlers_.find(message.type);
  if (handler == handlers_.end())
    throw ProtocolError("a message of unknown type " + std::to_string(type_number(message.type)));
  ++busy_;
  struct Busy {
    std::atomic<int>& count;
    ~Busy() { --count; }
  } const busy{busy_};
  handler->second(message, channel);
}

/// Waits if the connection has sent all that it may in this second. Meanwhile its bytes stay with the system, and then with the sender.
void Server::wait_for_share(Share& share) {
  constexpr std::chrono::seconds counted{1};
  constexpr Milliseconds slice{20};
  const bool used_up = share.messages >= limits_.messages_per_second || share.bytes >= limits_.bytes_per_second;
  if (used_up && Clock::now() - share.began < counted) {
    std::lock_guard lock(mutex_);
    ++counts_.delayed;
  }
  while (used_up && Clock::now() - share.began < counted && !stop_) std::this_thread::sleep_for(slice);
  if (Clock::now() - share.began >= counted) share = {};
}

void Server::serve(Socket socket, Connection& connection) {
  try {
    const auto greeting_ends = Clock::now() + limits_.greeting;
    Channel channel = Channel::accept(std::move(socket), key_, greeting_ends);
    for (Share share; !stop_;) {
      wait_for_share(share);
      const Message message =
          channel.receive(channel.is_authentic() ? Clock::now() + limits_.idle : greeting_ends, request_payload_limit);
      authentic(connection);
      ++share.messages;
      share.bytes += message.payload.size();
      handle(message, channel);
    }
  } catch (const ProtocolError&) {
    bans_.offend(connection.address, Clock::now(), is_shared(connection.address));
    std::lock_guard lock(mutex_);
    ++counts_.offences;
  } catch (const std::exception&) {  // the connection ended, or did not send in time
  }
  ended(connection);
}

void Server::authentic(Connection& connection) {
  const bool first = !connection.known.exchange(true);
  if (first) bans_.forgive(connection.address);
  std::lock_guard lock(mutex_);
  if (first) ++known_[connection.address];
  ++counts_.messages;
}

void Server::ended(Connection& connection) {
  if (connection.known) {
    std::lock_guard lock(mutex_);
    if (--known_[connection.address] == 0) known_.erase(connection.address);
  }
  connection.ended = true;
}

}  // namespace runner::swarm
