// The listening side of a peer: a thread for each connection, with limits on their number, their time and the size of messages.
//
// The requests of a connection in a second are bounded, in messages and in bytes. Beyond that, its next message is read when the second is
// over, so whoever sends more waits, and the others do not notice. With request_payload_limit for each message, all connections together
// hold at most Limits::connections MiB of requests. The messages of a conversation that a handler leads (values, state) are bounded by the
// handler.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "strategies/hivemind/channel.hpp"

namespace runner::swarm {

/// Addresses that sent messages which no peer sends. Each further offence doubles the time for which connections are refused.
///
/// An address that peers have too (`shared`) is not banned, because that would shut them out. It is refused only until a second is over in
/// which it has sent very many such messages.
class BanList {
 public:
  struct Limits {
    int offences_before =
        3;  ///< so many do not lead to a ban, because a peer may have been started with a wrong secret
    Milliseconds first{1000}, longest{600'000};
    size_t addresses = 4096;      ///< of more, those whose bans end first are forgotten
    int shared_per_second = 100;  ///< offences of a shared address
  };
  explicit BanList(Limits limits) : limits_(limits) {}
  BanList() : BanList(Limits()) {}

  void offend(const std::string& address, Clock::time_point now, bool shared = false);
  /// An authentic message from the address: its offences count no more, but a ban goes on.
  void forgive(const std::string& address);
  bool is_banned(const std::string& address, Clock::time_point now, bool shared = false) const;
  size_t size() const;

 private:
  struct Entry {
    int offences = 0;
    Clock::time_point until = {};
    int in_second = 0;
    Clock::time_point second = {};        ///< when the counted second began
    Clock::time_point shared_until = {};  ///< `until` of a shared address
  };
  Limits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

class Server {
 public:
  struct Limits {
    size_t connections = 256;            ///< a quarter of them only for addresses of peers
    size_t strangers_of_address = 16;    ///< connections of an address from which no authentic message came yet
    Milliseconds greeting{3000};         ///< until the first message is complete
    Milliseconds idle{60'000};           ///< between messages
    int messages_per_second = 200;       ///< of a connection, without those that its handlers receive
    size_t bytes_per_second = 16 << 20;  ///< of the payloads of these messages; the one that reaches it is still taken
    BanList::Limits bans = {};
  };
  /// Since the start.
  struct Counts {
    int64_t accepted = 0;
    int64_t refused = 0;    ///< too many connections, a banned address, or no thread for it
    int64_t offences = 0;   ///< connections that were closed because of a message that no peer sends
    int64_t messages = 0;   ///< authentic ones
    int64_t delayed = 0;    ///< seconds in which a connection has sent all that it may, and had to wait
    int64_t most_open = 0;  ///< connections at the same time
  };
  /// Answers a message, and may receive more on the channel. It runs in the thread of the connection. It throws ProtocolError for a wrong
  /// message, which counts as an offence.
  using Handler = std::function<void(const Message& message, Channel& channel)>;

  Server(const std::string& host, uint16_t port, const Digest& key, Limits limits);
  ~Server() { stop(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Before start(), as on(). Which addresses are those of peers; others are so while a connection with authentic messages is open.
  void spare(std::function<bool(const std::string& address)> is_of_peer) { is_of_peer_ = std::move(is_of_peer); }
  void on(MessageType type, Handler handler) { handlers_[type] = std::move(handler); }
  void start();
  /// Ends all connections, also in the middle of a message, and waits for their threads.
  void stop();
  /// Waits until no handler runs, at most until the deadline.
  void wait_until_quiet(Deadline deadline) const;
  uint16_t port() const { return listener_.port(); }
  Counts counts() const;
  const Stop& stopping() const { return stop_; }

 private:
  /// The messages and bytes that a connection has sent in the counted second.
  struct Share {
    Clock::time_point began = Clock::now();
    int messages = 0;
    size_t bytes = 0;
  };
  struct Connection {
    std::thread thread = {};
    std::string address = "";
    std::atomic<bool> known = false;  ///< an authentic message has arrived
    std::atomic<bool> ended = false;
  };
  void accept_connections();
  bool is_shared(const std::string& address) const;
  bool admits(const std::string& address);
  void start_thread(Connection& connection, Socket socket);
  void authentic(Connection& connection);
  void wait_for_share(Share& share);
  void handle(const Message& message, Channel& channel);
  void ended(Connection& connection);
  void reap(bool all);
  void serve(Socket socket, Connection& connection);

  Digest key_;
  Limits limits_;
  Stop stop_ = false;
  Listener listener_;
  BanList bans_;
  std::map<MessageType, Handler> handlers_;
  std::function<bool(const std::string& address)> is_of_peer_;
  std::thread acceptor_;
  std::list<Connection> connections_;  ///< of the accepting thread
  std::atomic<int> busy_ = 0;          ///< handlers that run
  mutable std::mutex mutex_;
  Counts counts_;
  std::map<std::string, int> known_;  ///< open connections with authentic messages, by address
};

}  // namespace runner::swarm
