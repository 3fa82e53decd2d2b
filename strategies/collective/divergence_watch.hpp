// Detects ranks that wait for each other in different collectives. It is for transports that do not detect this (Gloo,
// NCCL).
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/trace.hpp"

namespace runner {

/// A thread on each rank. When a rank has made no new call for a while, it raises an alarm in the store. All ranks
/// answer with their last calls. Rank 0 compares the answers that arrive and, if they differ, stores a verdict that
/// every rank reads. Ranks that are only slow do not differ. The cost is one read of the store per tick.
class DivergenceWatch {
 public:
  struct Options {
    int rank = 0, size = 1;
    std::chrono::milliseconds patience{3000};
    /// Called with the verdict, on the watch's thread. It must end the process, because a rank that waits in Gloo or
    /// NCCL cannot be woken.
    std::function<void(const std::string& verdict)> found;
  };
  /// `store`: the connection is cloned, so that the watch never waits for another user of it.
  DivergenceWatch(std::shared_ptr<const CollectiveTrace> trace, const c10::intrusive_ptr<c10d::Store>& store,
                  Options options);
  ~DivergenceWatch();
  DivergenceWatch(const DivergenceWatch&) = delete;
  DivergenceWatch& operator=(const DivergenceWatch&) = delete;

  /// Call this when a collective has failed on this rank. It raises the alarm immediately and waits `patience` for
  /// answers. It returns if there is no verdict.
  void ask();

 private:
  void run();
  void look();
  void judge();
  std::chrono::milliseconds tick() const { return options_.patience / 4; }

  std::shared_ptr<const CollectiveTrace> trace_;
  c10::intrusive_ptr<c10d::Store> store_;
  Options options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false, asked_ = false;

  // used by the watch's thread only
  uint64_t count_ = 0;  ///< calls at the last look
  double unchanged_since_ = 0;
  bool raised_ = false;    ///< an alarm, for this count
  int64_t answered_ = 0;   ///< alarms so far
  double open_until_ = 0;  ///< answers and a verdict may still come

  std::thread thread_;
};

}  // namespace runner
