// The prefetching loader: the batches of each step for one rank.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runner/data/data.hpp"
#include "strategies/engine/host_batch.hpp"

namespace runner {

/// The position of a run in its data: after the global batches that are already consumed.
struct DataPosition {
  int64_t epoch = 0;
  int64_t sample = 0;  ///< samples of this epoch already consumed, over all ranks
};

/// The data of one optimizer step on one rank.
struct StepBatch {
  std::vector<HostBatch> micro_batches;  ///< of this rank; always as many as the accumulation factor
  int64_t first_row = 0;                 ///< index of this rank's first row in the global batch
  int64_t global_rows = 0;               ///< over all ranks and micro-batches
  int64_t weight = 0;                    ///< of the global batch: the sum of Dataset::weight() of all its samples
  int64_t rank_weight = 0;               ///< the sum of Dataset::weight() of this rank's samples
  int64_t units = 0;                     ///< of the global batch: the sum of Dataset::units()
  DataPosition at;                       ///< position of its first sample
  DataPosition after;                    ///< position after this step
  int64_t epoch = 0;
  bool epoch_end = false;  ///< this is the last step of its epoch
};

/// Batches of a split for one rank. Background threads prepare them in advance; their number changes neither the batches nor their
/// order.
///
/// A global batch takes `global_batch_size` samples in SampleOrder (the last one of an epoch may be short); data rank r of W
/// takes the contiguous slice [r*G/W, (r+1)*G/W) of them and cuts it into G/W/micro_batch_size micro-batches. A short
/// last batch is divided as evenly as possible, first among ranks, then into the same number of micro-batches. The
/// first parts get one more row; a rank may get empty micro-batches. For any W and micro_batch_size, the rows in order
/// of rank and micro-batch are the global batch in order.
class Loader {
 public:
  struct Options {
    int64_t global_batch_size = 1, micro_batch_size = 1;
    int data_rank = 0, data_ranks = 1;  ///< the part of each global batch that is read, and the number of parts
    bool shuffle = true;
    bool drop_last = false;  ///< the last batch of an epoch is left out if it would be short
    int64_t seed = 0;
    int64_t prefetch = 2;  ///< steps prepared in advance; 0: a step is prepared while next() waits
    int64_t workers = 1;   ///< threads that read samples; 0: next() reads, and nothing is prepared in advance
    /// First batch. A loader that starts here returns the same batches as one that reached this position.
    DataPosition start = {};
    bool repeat = true;  ///< false: stops after one epoch (validation)
  };
  /// Throws Error(usage) if `start` is beyond the end of the data. Every global batch size must be a multiple of
  /// micro_batch_size * data_ranks. Reading begins with the first next().
  Loader(const Dataset& dataset, Options options);
  ~Loader();  ///< waits at most until the current samples are read
  /// False at the end (repeat = false). Rethrows an exception of a background thread, after the steps before it; of several samples
  /// of a step, that of the first one. Throws Error(usage) if drop_last leaves no batch.
  bool next(StepBatch& out);
  /// Seconds that next() has waited for data so far.
  double waited_seconds() const;
  /// Replaces Options::global_batch_size by a function, which is called at the start of each epoch (for accumulation
  /// schedules). Must be set before the first next().
  void set_batch_size_of_epoch(std::function<int64_t(int64_t epoch)> batch_size_of_epoch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
