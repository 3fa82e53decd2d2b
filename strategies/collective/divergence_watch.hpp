// Detects ranks that wait for each other in different collectives, for transports that do not detect this (Gloo, NCCL), and ranks that
// others wait for in vain.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "strategies/collective/divergence.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/trace.hpp"

namespace runner {

/// A thread on each rank. When a rank has made no new call for a while, it raises an alarm in the store. All ranks
/// answer with their last calls. Rank 0 compares the answers that arrive and, if they differ, stores a verdict that
/// every rank reads. Ranks that are only slow do not differ. The cost is one read of the store per tick.
///
/// After a longer time without a call, rank 0 reports which ranks the others wait for. That does not end the run, because a rank may
/// have much to do alone. A process that has not answered an alarm in that time does: it is stopped, or its host hangs. (If that is
/// rank 0, which hosts the store, its supervisor notices it.) Times are counted in ticks of rank 0, so that a pause of the whole run
/// does not count.
class DivergenceWatch {
 public:
  struct Options {
    int rank = 0, size = 1;
    bool compares = true;  ///< calls of different ranks; the transport does not do it
    std::chrono::milliseconds patience{3000};
    std::chrono::milliseconds late_after{120'000};
    /// Called with the verdict, on the watch's thread. It must end the process, because a rank that waits in Gloo or
    /// NCCL cannot be woken.
    std::function<void(const std::string& verdict)> found;
    /// Called on rank 0 with a description of late ranks, on the watch's thread, once for each stall. May be null.
    std::function<void(const std::string& text)> late = {};
  };
  /// `store`: the connection is cloned, so that the watch never waits for another user of it.
  DivergenceWatch(std::shared_ptr<const CollectiveTrace> trace, const c10::intrusive_ptr<c10d::Store>& store,
                  Options options);
  ~DivergenceWatch();
  DivergenceWatch(const DivergenceWatch&) = delete;
  DivergenceWatch& operator=(const DivergenceWatch&) = delete;

  /// Call this when a collective has failed on this rank. It raises the alarm immediately and waits `patience` for
  /// answers. It returns if there is no verdict, and at once if this watch does not compare calls.
  void ask();
  /// The description of late ranks, if this rank has made no call since rank 0 reported them, otherwise "".
  std::string late() const;

 private:
  /// How long this rank has made no call: shorter than `patience`, at least so long, or at least `late_after`.
  enum class Stall { none, begun, long_lasting };
  void run();
  void look();
  void answer(int64_t alarm);
  // On rank 0:
  void judge(Stall stall);
  bool read_answers();
  void report_silence(const std::vector<int>& silent);
  std::chrono::milliseconds tick() const { return options_.patience / 4; }

  std::shared_ptr<const CollectiveTrace> trace_;
  c10::intrusive_ptr<c10d::Store> store_;
  Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string late_;
  bool stop_ = false, asked_ = false;

  // used by the watch's thread only
  uint64_t count_ = 0;  ///< calls at the last look
  double unchanged_since_ = 0;
  Stall raised_{};         ///< the alarm for this count
  int64_t answered_ = 0;   ///< alarms so far
  double open_until_ = 0;  ///< answers and a verdict may still come

  // ... on rank 0
  std::vector<History> histories_;
  std::vector<int64_t> answers_;       ///< the alarm that each rank has answered
  std::vector<int64_t> silent_ticks_;  ///< of each rank, since the first alarm that it has not answered
  int64_t silent_ = 0;                 ///< ranks that will not read the verdict
  bool reported_ = false;              ///< late ranks, for this count

  std::thread thread_;
};

}  // namespace runner
