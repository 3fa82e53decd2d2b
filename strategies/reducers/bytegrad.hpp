// Bagua's bytegrad: a sum of gradients by two exchanges of 8-bit integers.
//
// A bucket is cut into as many chunks as ranks exchange. Each rank sends its chunks, as bytes, to the ranks that sum them (all-to-all),
// and sends the mean of its own chunk, as bytes, to all (all-gather). So all ranks have the same bits. Source:
// centralized_low_precision_synchronous.rs of bagua-core.
#pragma once
#include "strategies/reducers/bagua.hpp"

namespace runner {

class ByteGrad : public BaguaReducer {
 public:
  using BaguaReducer::BaguaReducer;

 protected:
  void prepared() override;
  torch::ScalarType dtype_of_values() const override { return wide(buckets_.front().gradients); }
  void start(size_t b, torch::Tensor& values) override;
  void complete(size_t b, torch::Tensor& values) override;

  /// Bagua compresses each rank's gradients of the mean over its own rows. With equal parts of the batch these are the gradients here times
  /// the number of ranks.
  void to_means(torch::Tensor& gradients) const { gradients.mul_(static_cast<double>(world_.size)); }
  /// Starts the mean of a bucket's values, or their sum. complete() ends it.
  void start_mean(size_t b, torch::Tensor& values);

 private:
  struct Exchange {
    torch::Tensor sent, received;
    Work work;
  };
  int64_t parts() const { return groups_.nodes; }
  /// Starts the second exchange of all buckets.
  void continue_all();
  void send_chunks(size_t b, const torch::Tensor& values);
  /// Sends the mean of this rank's chunk.
  void send_mean(size_t b, const torch::Tensor& values);
  void take_means(size_t b, const torch::Tensor& values);

  std::vector<Exchange> pending_;  ///< of each bucket
};

}  // namespace runner
