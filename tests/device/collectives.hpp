// Collectives between simulated devices, ordered as NCCL's: on a stream of their own, which waits for the current
// stream at the call; Work::wait() makes the current stream wait for the end. Sums are those of the project's
// transports, bit for bit.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "tests/device/machine.hpp"
#include "tests/device/view.hpp"

namespace runner::simulated {

/// One call of all ranks.
struct Collective {
  enum class Kind { all_gather, reduce_scatter, all_reduce, reduce, broadcast, all_to_all } kind = Kind::all_gather;
  c10d::ReduceOp::RedOpType reduction = c10d::ReduceOp::SUM;
  int root = 0;
  std::vector<View> in = {}, out = {};  ///< by rank; `out` may overlap `in`
  /// Of an all-to-all, by rank: the elements for each rank, and from each rank. As its caller gives it, with one rank.
  struct Splits {
    std::vector<int64_t> to, from;
  };
  std::vector<Splits> splits = {};

  const char* name() const;
  /// That it takes in simulated time, if a rank has these tensors.
  double seconds(const View& in, const View& out, const Speeds& speeds) const;
  /// Moves the bytes.
  void run() const;
  void run_all_to_all() const;
};

/// Where the members of a group meet. Used under the machine's lock.
class Communicator {
 public:
  explicit Communicator(int size) : size_(size) {}

  int size() const { return size_; }
  /// `rank`'s next collective: returns the task that it enters into `stream`. Throws if other ranks have called another
  /// collective.
  Task join(int rank, Stream& stream, const Collective& mine, const View& in, const View& out);
  /// A rank has failed: the others wait for nothing more, and their calls throw.
  void abort();
  void require_alive() const;

 private:
  struct Call {
    std::shared_ptr<Collective> collective;
    std::shared_ptr<Meeting> meeting;
    int joined = 0;
  };
  int size_;
  std::vector<uint64_t> calls_of_rank_ = std::vector<uint64_t>(static_cast<size_t>(size_), 0);
  std::map<uint64_t, Call> calls_;  ///< that not all ranks have joined
  bool aborted_ = false;
};

c10::intrusive_ptr<c10d::Backend> make_backend(std::shared_ptr<Communicator> communicator, int rank, int device);

}  // namespace runner::simulated
