// A peer of a swarm: it finds the others, counts samples with them, averages values with them, and gives its state to late joiners. This
// header is torch-free.
#pragma once
#include "strategies/hivemind/all_reduce.hpp"
#include "strategies/hivemind/state_transfer.hpp"

namespace runner::swarm {

// How far the swarm is with the samples of its next update.

/// Seconds since the record of a peer arrived are not counted: its samples are those that it has reported.
struct Progress {
  int64_t epoch = 0;     ///< updates that the peer with the most has made
  int64_t samples = 0;   ///< of all peers in that epoch
  int64_t others = 0;    ///< of these, the samples of other peers
  double rate = 0;       ///< samples per second of these peers
  int peers = 1;         ///< that train, with this one
  bool reached = false;  ///< the samples are as many as the target

  /// Seconds until the target; nullopt if no rate is known.
  std::optional<double> seconds_left(int64_t target) const {
    if (samples >= target) return 0;
    if (rate <= 0) return std::nullopt;
    return static_cast<double>(target - samples) / rate;
  }
};

/// `others`: those with the same schema count.
Progress progress_of(const PeerRecord& own, const std::vector<PeerRecord>& others, int64_t target);

/// Decides when the swarm can update: when the samples are there, when another peer has made the update already, or when the time has
/// passed in which they should be there, as of the last report of another peer. Own samples do not move that time: otherwise each step
/// would, and a peer that has become silent would never be noticed. A peer alone knows its samples and does not estimate.
class Readiness {
 public:
  /// estimates: whether a time that has passed counts.
  Readiness(int64_t target, bool estimates) : target_(target), estimates_(estimates) {}
  bool is_ready(const Progress& progress, int64_t own_epoch, Clock::time_point now);

 private:
  int64_t target_;
  bool estimates_;
  int64_t epoch_ = -1, others_ = -1;
  Clock::time_point expected_ = Clock::time_point::max();
};

/// This peer's samples per second: a moving average of steps, corrected for its start.
class Rate {
 public:
  explicit Rate(double alpha) : alpha_(alpha) {}
  void add(int64_t samples, double seconds);
  double value() const { return weight_ > 0 ? seconds_per_sample_to_rate() : 0; }

 private:
  double seconds_per_sample_to_rate() const { return seconds_per_sample_ > 0 ? weight_ / seconds_per_sample_ : 0; }
  double alpha_, weight_ = 0, seconds_per_sample_ = 0;
};

struct SwarmOptions {
  std::string run_id = "runner", secret = "";
  std::string host = "127.0.0.1";  ///< address at which this peer listens
  uint16_t port = 0;               ///< 0: a free one
  /// Where other peers reach this one. Without a host: the address from which they see it connect. Port 0: the one where it listens.
  Endpoint announced = {};
  std::vector<Endpoint> initial_peers = {};
  uint64_t schema = 0;                     ///< PeerRecord::schema
  int64_t target_samples = 1;              ///< of an update, over all peers
  bool estimates = true;                   ///< Readiness
  double rate_alpha = 0.1;                 ///< weight of the last step in the moving average of samples per second
  Milliseconds matchmaking_time{5000};     ///< for finding a group
  Milliseconds averaging_timeout{30'000};  ///< for finding a group and averaging
  Milliseconds reduce_timeout{30'000};     ///< for averaging in a group that is found
  Milliseconds request_timeout{3000};      ///< for an answer of another peer
  Milliseconds sender_timeout{5000};       ///< AllReduce::Options
  Milliseconds load_state_timeout{600'000};
  Milliseconds gossip_interval{1000}, record_lifetime{20'000};
  Server::Limits server = {};
};

/// The members of an average, and those that have no full part in it.
struct AverageResult {
  size_t members = 1;                 ///< of the group; 1: no group was found, and the values are unchanged
  std::vector<PeerId> excluded = {};  ///< their weights do not count in this peer's part
  std::vector<PeerId> failed = {};    ///< their parts have the values of this peer
};

/// All but serve_state() and the getters may be called from one thread only, and wait for other peers, never longer than their timeouts.
class Swarm {
 public:
  /// Listens, and contacts the initial peers. Throws Error(environment) if the port cannot be used, no thread can be started, or initial
  /// peers are given and none of them answers in `averaging_timeout`.
  explicit Swarm(SwarmOptions options);
  /// Tells the others that this peer leaves.
  ~Swarm();
  Swarm(const Swarm&) = delete;
  Swarm& operator=(const Swarm&) = delete;

  const PeerId& id() const { return id_; }
  uint16_t port() const { return server_.port(); }

  // ---- progress
  /// This peer has `samples` of the update after `epoch` updates. `seconds` > 0: the last step took so long, for `stepped` samples.
  void report(int64_t epoch, int64_t samples, int64_t stepped = 0, double seconds = 0);
  Progress progress() const;
  bool is_ready();
  /// Waits until is_ready(), at most so long.
  bool wait_until_ready(Milliseconds patience);
  std::vector<PeerRecord> peers() const { return table_.live(); }

  // ---- averages
  /// Averages values with all peers that call this with the same purpose, weighted. Never longer than averaging_timeout. Values that are
  /// not finite are not sent: they stay as they are, as if there was no group.
  AverageResult average(const std::string& purpose, std::span<float> values, double weight, Compression compression);

  // ---- state
  /// Takes a place in the order of peers, and exchanges records with all of them. Of peers that start together, the first in the order then
  /// keeps its state, and the others load one. Call it before the first load, after report(); participate() does it otherwise.
  void enter();
  /// From now on others may load the state, and wait for this peer when they look for groups.
  void participate();
  /// Makes the state that others wait for. The swarm also calls it while it waits, in the thread that called.
  void serve_state_with(std::function<State()> make_state) { make_state_ = std::move(make_state); }
  void serve_state();
  /// Loads the state of a peer that has made more updates than `epoch`, or that has made as many and has an earlier place. nullopt: there
  /// is no such peer, or `why` says why none sent it.
  std::optional<State> load_state(int64_t epoch, const std::vector<TensorSize>& like, std::string& why);

  /// Loads a state as load_state(), again and again while there is such a peer. Throws Error(environment) if none has sent its state when
  /// load_state_timeout is over; a peer that has begun to answer may take as long once more.
  std::optional<State> load_first_state(int64_t epoch, const std::vector<TensorSize>& like);

  Server::Counts counts() const { return server_.counts(); }

 private:
  PeerRecord own_record() const;
  void contact_initial_peers();
  /// The peers whose state this one loads, the best first.
  std::vector<PeerRecord> sources(int64_t epoch, std::vector<PeerRecord> peers) const;

  SwarmOptions options_;
  Digest key_;
  PeerId id_ = random_peer_id();
  Server server_;
  PeerTable table_;
  Gossip gossip_;
  Matchmaking matchmaking_;
  AllReduce all_reduce_;
  StateTransfer state_transfer_;
  Readiness readiness_;
  Rate rate_;
  std::function<State()> make_state_;
};

}  // namespace runner::swarm
