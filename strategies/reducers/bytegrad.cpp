// Bagua's bytegrad: a sum of gradients by two exchanges of 8-bit integers.
//
// A bucket is cut into as many chunks as ranks exchange. Each rank sends its chunks, as bytes, to the ranks that sum them (all-to-all),
// and sends the mean of its own chunk, as bytes, to all (all-gather). So all ranks have the same bits. Source:
// centralized_low_precision_synchronous.rs of bagua-core.
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/bagua.hpp"
#include "strategies/reducers/min_max_codec.hpp"

namespace runner {

namespace {

torch::Tensor message(const torch::Tensor& all, int64_t part, int64_t chunk) {
  return all.narrow(0, part * min_max_bytes(chunk), min_max_bytes(chunk));
}

class ByteGrad : public BaguaReducer {
 public:
  using BaguaReducer::BaguaReducer;

 protected:
  void prepared() override {
    BaguaReducer::prepared();
    pending_.resize(buckets_.size());
  }
  torch::ScalarType dtype_of_values() const override { return wide_dtype(buckets_.front().gradients); }
  void start(size_t b, torch::Tensor& values) override {
    to_means(values);
    start_mean(b, values);
  }
  void complete(size_t b, torch::Tensor& values) override {
    if (b == 0) continue_all();
    if (exchanges()) take_means(b, values);
    if (auto work = start_node_broadcast(values)) work->wait();
  }

  /// Bagua compresses each rank's gradients of the mean over its own rows. With equal parts of the batch these are the gradients here times
  /// the number of ranks.
  void to_means(torch::Tensor& gradients) const { gradients.mul_(static_cast<double>(world_.size)); }
  /// Starts the mean of a bucket's values, or their sum. complete() ends it.
  void start_mean(size_t b, torch::Tensor& values) {
    if (node_)
      pending_[b].work = start_node_sum(values);
    else
      send_chunks(b, values);
  }

 private:
  struct Exchange {
    torch::Tensor sent, received;
    Work work;
  };
  int64_t parts() const { return groups_.nodes; }
  /// Starts the second exchange of all buckets.
  void continue_all() {
    for (size_t b = 0; node_ && b < buckets_.size(); ++b) {
      wait(pending_[b].work);
      if (!exchanges()) continue;
      if (options_.average) values(b).div_(static_cast<double>(groups_.node));
      send_chunks(b, values(b));
    }
    for (size_t b = 0; exchanges() && b < buckets_.size(); ++b) send_mean(b, values(b));
  }

  void send_chunks(size_t b, const torch::Tensor& values) {
    const int64_t chunk = chunk_of(values.numel(), parts());
    auto whole = torch::zeros({parts(), chunk}, values.options().dtype(torch::kFloat32));
    whole.view({-1}).narrow(0, 0, values.numel()).copy_(values);
    auto& exchange = pending_[b];
    exchange.sent = torch::empty({parts() * min_max_bytes(chunk)}, whole.options().dtype(torch::kUInt8));
    for (int64_t part = 0; part < parts(); ++part)
      message(exchange.sent, part, chunk).copy_(encode_min_max(whole[part]));
    exchange.received = torch::empty_like(exchange.sent);
    std::vector<int64_t> equal;
    if (parts() == 1)
      exchange.received.copy_(exchange.sent);
    else
      exchange.work = exchange_->alltoall_base(exchange.received, exchange.sent, equal, equal);
  }

  /// Sends the mean of this rank's chunk.
  void send_mean(size_t b, const torch::Tensor& values) {
    auto& exchange = pending_[b];
    wait(exchange.work);
    const int64_t chunk = chunk_of(values.numel(), parts());
    auto sum = decode_min_max(message(exchange.received, 0, chunk), chunk);
    for (int64_t part = 1; part < parts(); ++part)
      sum.add_(decode_min_max(message(exchange.received, part, chunk), chunk));
    if (options_.average) sum.div_(static_cast<double>(parts()));
    exchange.sent = encode_min_max(sum);
    if (parts() == 1)
      exchange.received.copy_(exchange.sent);
    else
      exchange.work = exchange_->_allgather_base(exchange.received, exchange.sent);
  }

  void take_means(size_t b, const torch::Tensor& values) {
    auto exchange = std::exchange(pending_[b], {});
    wait(exchange.work);
    const int64_t chunk = chunk_of(values.numel(), parts());
    for (int64_t part = 0; part < parts(); ++part) {
      const int64_t begin = part * chunk, count = std::min(chunk, values.numel() - begin);
      if (count > 0)
        values.narrow(0, begin, count).copy_(decode_min_max(message(exchange.received, part, chunk), count));
    }
  }

  std::vector<Exchange> pending_;  ///< of each bucket
};

/// QAdam (Bagua's qadam): Adam that sends its first moment as 8-bit integers after a warm-up.
///
/// During the warm-up gradients are summed. Later each rank takes its own gradient into the first moment, and the means of these moments
/// over the ranks (ByteGrad) are the new one. The second moment then does not change (Moments::first_given). Source: q_adam.py of Bagua;
/// Tang et al., 1-bit Adam (ICML 2021).
class QAdam : public ByteGrad {
 public:
  using ByteGrad::ByteGrad;

 protected:
  void prepared() override {
    ByteGrad::prepared();
    sums_.resize(buckets_.size());
  }

  void start(size_t b, torch::Tensor& values) override {
    if (b == 0) warm_up_ = host_.steps() < *plan_.qadam_warmup;
    if (warm_up_) {
      sums_[b] = start_sum(values);
      return;
    }
    to_means(values);
    host_.to_momentum(b, values);
    start_mean(b, values);
  }

  void complete(size_t b, torch::Tensor& values) override {
    if (warm_up_)
      wait(sums_[b]);
    else
      ByteGrad::complete(b, values);
  }

 private:
  std::vector<Work> sums_;  ///< of each bucket
  bool warm_up_ = true;     ///< in the current step
};

}  // namespace

std::shared_ptr<Reducer> make_bytegrad(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<ByteGrad>(world, plan, job);
}

std::shared_ptr<Reducer> make_qadam(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<QAdam>(world, plan, job);
}

}  // namespace runner
