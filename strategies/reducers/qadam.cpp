// Bagua's qadam: Adam that sends its first moment as 8-bit integers after a warm-up.
//
// During the warm-up gradients are summed. Later each rank takes its own gradient into the first moment, and the means of these moments
// over the ranks (bytegrad.hpp) are the new one. The second moment then does not change (Moments::first_given). Source: q_adam.py of Bagua;
// Tang et al., 1-bit Adam (ICML 2021).
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/bytegrad.hpp"

namespace runner {

namespace {

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

std::shared_ptr<Reducer> make_qadam(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<QAdam>(world, plan, job);
}

}  // namespace runner
