// Late joiners load the complete state from a peer.
#pragma once
#include <memory>

#include "strategies/hivemind/gossip.hpp"

namespace runner::swarm {

/// A tensor in host memory.
struct NamedBytes {
  std::string name = "";
  Bytes bytes = {};
};
struct TensorSize {
  std::string name = "";
  size_t bytes = 0;
};
struct State {
  int64_t epoch = 0;
  std::string scalars = "";  ///< JSON, at most 65,535 bytes
  std::vector<NamedBytes> tensors = {};
};

/// Throws Error(usage) if the message that begins a state with these tensors would be too long (payload_limit).
void check_head(const std::vector<TensorSize>& tensors);

class StateTransfer {
 public:
  struct Options {
    Milliseconds request_timeout{3000};  ///< for each message after the first one
    Milliseconds load_timeout{600'000};  ///< until the other peer, which may be in the middle of a step, begins to send
  };
  StateTransfer(PeerTable& table, Server& server, const Digest& key, Options options);

  /// Whether another peer waits for the state of this one. Then give() it.
  bool is_wanted() const { return waiting_ > 0; }
  void give(State state);
  /// Whether this peer has a state that others may load. Until then it rejects their requests, and they ask another peer.
  void set_available(bool available) { available_ = available; }

  /// Loads the state of the first of the peers that sends one. It has tensors with the names and sizes of `like`, in the same order.
  /// `why`: why none of the peers sent one. A peer that has no state yet is not counted as one that failed.
  std::optional<State> load(const std::vector<PeerRecord>& from, const std::vector<TensorSize>& like,
                            std::string& why) const;

 private:
  void on_want(const Message& message, Channel& channel);
  std::shared_ptr<const State> wait_for_state(Channel& channel);
  State load_from(const PeerRecord& peer, const std::vector<TensorSize>& like) const;

  PeerTable& table_;
  const Stop& stopping_;
  Digest key_;
  Options options_;
  std::atomic<int> waiting_ = 0;
  std::atomic<bool> available_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const State> given_;
  int64_t gifts_ = 0;
};

}  // namespace runner::swarm
