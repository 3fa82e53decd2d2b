// Spreads records of peers: each peer sends all that it knows to some others, and gets what they know. No peer is special: the initial
// peers are only the first to be asked.
#pragma once
#include <condition_variable>
#include <random>

#include "strategies/hivemind/peer_table.hpp"
#include "strategies/hivemind/server.hpp"

namespace runner::swarm {

class Gossip {
 public:
  struct Options {
    std::vector<Endpoint> initial_peers = {};
    Milliseconds interval{1000};      ///< between rounds if nothing changes
    Milliseconds least_interval{20};  ///< if something changes
    Milliseconds timeout{1000};       ///< of an exchange
    size_t partners = 8;              ///< of a round, chosen at random if there are more peers
  };
  /// Records of a message.
  static constexpr size_t most_records = 128;

  /// Registers its handler at the server, which must outlive it.
  Gossip(PeerTable& table, Server& server, const Digest& key, Options options);
  ~Gossip() { stop(); }
  void start();
  /// Tells the others that this peer leaves.
  void stop();
  /// The own record has changed: others get it soon.
  void wake();
  /// Exchanges records with the initial peers now. Returns the number of them that answered, without this peer itself. The last error is
  /// in `why`.
  int contact_initial_peers(std::string& why);
  /// Exchanges records with all known peers now, and with those that it learns of meanwhile. It may be called while the thread runs.
  void exchange_with_all();

 private:
  void run();
  void make_round(bool contact);
  PeerId exchange(Channel& channel, Deadline deadline);
  void exchange_as(const PeerId& peer, Channel& channel, Deadline deadline);
  void exchange_with(const PeerRecord& peer);
  Bytes records() const;
  PeerId take(const Message& message, const std::string& from);

  PeerTable& table_;
  const Stop& stopping_;
  Digest key_;
  Options options_;
  std::map<PeerId, Channel> channels_;  ///< of the gossip thread
  std::mt19937_64 random_{std::random_device{}()};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false, leaves_ = false;
  std::thread thread_;
};

}  // namespace runner::swarm
