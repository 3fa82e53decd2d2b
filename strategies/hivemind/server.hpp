// The listening side of a peer: a thread for each connection, with limits on their number, their time and the size of messages.
//
// What a connection may ask in a second is bounded, in messages and in bytes. Beyond that, its next message is read when the second is over,
// so whoever sends more waits, and the others do not notice. With request_payload_limit for each message, all connections together hold at
// most Limits::connections MiB of requests. The messages of a conversation that a handler leads (values, state) are bounded by the handler.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <thread>

#include "strategies/hivemind/ban_list.hpp"
#include "strategies/hivemind/channel.hpp"

namespace runner::swarm {

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
  /// What a connection has sent in the counted second.
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
