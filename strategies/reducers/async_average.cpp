// Bagua's async: ranks train replicas, and parameters are averaged from time to time while training goes on.
//
// A round takes a copy c of the parameters and starts the sum of the copies over all ranks. When the sum is there, after a later step,
// the parameters w become w + mean - c, so the updates since the copy are kept. The next round begins when all ranks have done so and
// `sync_interval_ms` are over. Bagua does this in its own thread. Here the ranks agree after each step whether a round begins. A
// round that has not ended is not in checkpoints. Source: async_model_average.py of Bagua.
#include <algorithm>
#include <chrono>

#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/bagua_plan.hpp"
#include "strategies/reducers/base_reducer.hpp"

namespace runner {

namespace {

class AsyncAverage : public BaseReducer {
 public:
  AsyncAverage(World& world, const ReducerPlan& plan)
      : BaseReducer(world, plan), options_(bagua_options().read(plan.options)) {}

  void after_update() override {
    if (world_.size == 1 || host_.steps() < warmup_steps(options_)) return;
    torch::NoGradGuard no_grad;
    if (in_flight_ && std::ranges::all_of(rounds_, [](const auto& round) { return is_done(round.work); })) apply();
    if (begins()) start_round();
  }

  void teardown() override {
    for (auto& round : rounds_) wait(round.work);
  }

 protected:
  void prepared() override {
    sums_.resize(buckets_.size());
    if (world_.size == 1) return;
    std::vector<int> everybody;
    for (int rank = 0; rank < world_.size; ++rank) everybody.push_back(rank);
    averages_ = world_.make_subgroup(everybody, "bagua_async");
    for (const auto& bucket : buckets_) {
      const auto copy = [&] { return torch::zeros_like(bucket.parameters, wide_dtype(bucket.parameters)); };
      rounds_.push_back({.copy = copy(), .sum = copy()});
    }
  }

  void start(size_t b, torch::Tensor& values) override {
    if (b == 0) warm_up_ = host_.steps() < warmup_steps(options_);
    if (warm_up_) sums_[b] = start_sum(values);
  }

  void complete(size_t b, torch::Tensor& values) override {
    if (warm_up_) return wait(sums_[b]);
    to_own_mean(values);
  }

 private:
  struct Round {
    torch::Tensor copy, sum;
    Work work = {};
  };
  using Clock = std::chrono::steady_clock;

  static bool is_done(const Work& work) { return !work || work->isCompleted(); }

  /// Whether a round begins, on all ranks.
  bool begins() const {
    const auto interval = std::chrono::milliseconds(options_.sync_interval_ms);
    auto ready = torch::full({1}, !in_flight_ && Clock::now() - ended_ >= interval ? 1 : 0, torch::kInt32);
    std::vector<at::Tensor> tensors{ready};
    world_.control->allreduce(tensors, {c10d::ReduceOp::MIN})->wait();
    return ready.item<int32_t>() == 1;
  }

  void start_round() {
    in_flight_ = true;
    for (size_t b = 0; b < buckets_.size(); ++b) {
      rounds_[b].copy.copy_(buckets_[b].parameters);
      rounds_[b].sum.copy_(rounds_[b].copy);
      rounds_[b].work = start_sum(rounds_[b].sum, averages_);
    }
  }

  void apply() {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      auto& round = rounds_[b];
      wait(round.work);
      round.sum.div_(static_cast<double>(world_.size)).sub_(round.copy);
      buckets_[b].parameters.add_(round.sum);
    }
    in_flight_ = false;
    ended_ = Clock::now();
  }

  BaguaOptions options_;
  std::vector<Work> sums_;     ///< of each bucket, during the warm-up
  std::vector<Round> rounds_;  ///< of each bucket
  ProcessGroup averages_;      ///< all ranks
  Clock::time_point ended_ = Clock::now();
  bool in_flight_ = false, warm_up_ = false;
};

}  // namespace

std::shared_ptr<Reducer> make_async_average(World& world, const ReducerPlan& plan) {
  return std::make_shared<AsyncAverage>(world, plan);
}

}  // namespace runner
