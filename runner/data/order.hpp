// The order of samples in an epoch.
#pragma once
#include <cstdint>

namespace runner {

/// The order of samples in an epoch: a permutation that depends on (seed, epoch) only; the identity without shuffle.
/// Needs no memory per sample (a keyed Feistel network with cycle walking).
class SampleOrder {
 public:
  SampleOrder(int64_t size, bool shuffle, int64_t seed, int64_t epoch);
  int64_t operator[](int64_t position) const;
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  bool shuffle_;
  uint64_t key_;
  int half_bits_;  ///< of each half of the network: it permutes [0, 4^half_bits_)
};

}  // namespace runner
