// The communication of a strategy that does not sum gradients as its plan says: of gradients during backward, and of parameters
// after the update.
#pragma once
#include <optional>

#include "strategies/contract/extension.hpp"

namespace runner {

/// An extension that also reduces the gradients.
class Reducer : public Extension {
 public:
  /// Starts the reduction of a bucket, while the backward of earlier blocks continues.
  virtual void begin(size_t bucket) = 0;
  /// Called for every bucket in order, after begin() of the last one. The sums must be there when it returns.
  virtual void finish(size_t bucket) = 0;
  /// Called after finish() of all buckets. False: gradients are still being collected, so this step makes no update. Its loss and its norm
  /// are reported, and it counts as skipped.
  virtual bool makes_update() { return true; }
  /// Which update the next one is, from 1 on, if others than this rank's steps count: the schedule of the learning rate follows it.
  virtual std::optional<int64_t> update_number() const { return std::nullopt; }
};

}  // namespace runner
