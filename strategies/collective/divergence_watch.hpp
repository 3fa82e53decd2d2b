// Finds ranks that wait for one another in different collectives where the transport cannot tell them so (Gloo, NCCL).
#pragma once
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "strategies/collective/trace.hpp"

namespace runner {

/// A thread of each rank. When a rank has called nothing new for a while it raises an alarm in the store; all ranks
/// answer with their last calls; rank 0 compares them (the others may be past answering) and, where they differ, leaves
/// a verdict that every rank reads. Ranks that are only slow differ in nothing. Costs one look into the store a tick.
class DivergenceWatch {
 public:
  struct Options {
    int rank = 0, size = 1;
    std::chrono::milliseconds patience{3000};
    /// Told the verdict, on the watch's thread: it ends the process, since a rank that waits in Gloo or NCCL cannot be
    /// woken.
    std::function<void(const std::string& verdict)> found;
  };
  /// `store`: this rank's connection is cloned, so that the watch never waits for another user of it.
  DivergenceWatch(std::shared_ptr<const CollectiveTrace> trace, const c10::intrusive_ptr<c10d::Store>& store,
                  Options options);
  ~DivergenceWatch();
  DivergenceWatch(const DivergenceWatch&) = delete;
  DivergenceWatch& operator=(const DivergenceWatch&) = delete;

  /// A collective has failed on this rank: raises the alarm at once and gives the ranks `patience` to answer. Returns
  /// when there is no verdict.
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

  // of the watch's thread
  uint64_t count_ = 0;  ///< calls at the last look
  double unchanged_since_ = 0;
  bool raised_ = false;    ///< an alarm, for this count
  int64_t answered_ = 0;   ///< alarms so far
  double open_until_ = 0;  ///< answers and a verdict may still come

  std::thread thread_;
};

}  // namespace runner
