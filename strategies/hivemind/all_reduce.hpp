// The butterfly all-reduce of a group: the values are cut into one part for each member. Each member averages its part with the weights of
// the senders, and answers.
//
// Without compression the answer is the average, so that all members get equal bits. With compression it is the difference between the
// average and what the sender has sent, which the sender adds to its own value. A member that sends nothing in time, sends values that are
// not finite, or breaks the protocol is excluded: its weight does not count. The part of a member that does not answer keeps the values of
// each receiver. Source: allreduce.py and partition.py of hivemind.
#pragma once
#include <set>

#include "strategies/hivemind/compression.hpp"
#include "strategies/hivemind/matchmaking.hpp"

namespace runner::swarm {

/// One member's part of a butterfly all-reduce: it collects the values of all members, piece by piece, and averages
/// them with their weights. Thread-safe. The sums are made in the order of the members, in double precision, so they do
/// not depend on the order of arrival.
class PartAverage {
 public:
  /// `patience`: after the first values of a piece, the others must arrive in this time. Otherwise their senders are excluded from this
  /// piece and all later ones.
  PartAverage(size_t members, Milliseconds patience) : members_(members), patience_(patience), next_(members) {}

  /// A member's values of a piece. Waits for the others and returns the weighted average. A member sends its pieces in order, from 0 on.
  /// Throws ConnectionError if the member is excluded, or at the deadline.
  std::shared_ptr<const std::vector<float>> contribute(size_t member, size_t piece, std::vector<float> values,
                                                       double weight, Deadline deadline);
  /// The member has failed: nobody waits for it any more.
  void exclude(size_t member);
  std::set<size_t> excluded() const;

 private:
  struct Contribution {
    std::vector<float> values;
    double weight;
  };
  struct Piece {
    std::map<size_t, Contribution> arrived;
    Clock::time_point first;  ///< when the first values arrived
    std::shared_ptr<const std::vector<float>> average;
  };
  void complete(Piece& piece);
  bool is_complete(const Piece& piece) const;

  size_t members_;
  Milliseconds patience_;
  std::vector<size_t> next_;  ///< piece of each member
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, std::shared_ptr<Piece>> pieces_;  ///< without those that are averaged
  std::set<size_t> excluded_;
};

/// The result of an all-reduce.
struct ReduceResult {
  size_t members = 1;
  std::set<size_t> excluded = {};  ///< members whose values this member has left out of its part, from some piece on
  std::set<size_t> failed = {};    ///< members whose parts keep own values, at least in some pieces
  bool complete() const { return failed.empty() && excluded.empty(); }
};

class AllReduce {
 public:
  struct Options {
    Milliseconds sender_timeout{5000};   ///< for values of a member, after those of another one
    Milliseconds request_timeout{3000};  ///< for an answer, beyond the sender timeout
    size_t piece = 1 << 17;              ///< values that are sent at once
  };
  AllReduce(Server& server, const Digest& key, Options options);

  /// Averages `values`, which all members of the group have in the same number. Never longer than until the deadline. It throws nothing:
  /// what fails keeps own values. `weight` >= 0.
  ReduceResult run(const Group& group, std::span<float> values, double weight, Compression compression,
                   Deadline deadline);

 private:
  /// An all-reduce that this peer takes part in.
  struct Round {
    Round(const Group& of, size_t count, Compression kind, Deadline until, Milliseconds patience)
        : group(of), values(count), compression(kind), deadline(until), part(of.members.size(), patience) {}
    Group group;
    size_t values;
    Compression compression;
    Deadline deadline;
    PartAverage part;
  };
  /// A range of values.
  struct Range {
    size_t begin, end;
    size_t size() const { return end - begin; }
  };
  static Range part_of(size_t values, size_t members, size_t member);
  Range piece_of(const Range& part, size_t piece) const;
  size_t pieces_in(const Range& part) const { return (part.size() + options_.piece - 1) / options_.piece; }
  /// The most bytes of a message with the values of a piece; other members hold no more than that here.
  size_t most_bytes_of_piece() const { return options_.piece * sizeof(float) + codebook_bytes; }

  void on_reduce(const Message& message, Channel& channel);
  std::shared_ptr<Round> wait_for_round(const PeerId& group);
  void serve_member(Round& round, size_t member, double weight, Channel& channel);
  bool average_own_part(Round& round, std::span<float> values, double weight);
  bool send_part(const Round& round, size_t member, std::span<float> values, double weight) const;

  const Stop& stopping_;
  Digest key_;
  Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<PeerId, std::shared_ptr<Round>> rounds_;
};

}  // namespace runner::swarm
