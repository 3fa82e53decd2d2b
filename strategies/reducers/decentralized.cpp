// Bagua's decentralized: ranks train replicas, and parameters are averaged during the backward of a step.
//
// The average of the parameters before the step takes their place, and the optimizer applies the gradients at the old parameters to it.
// Source: decentralized_full_precision_synchronous.rs of bagua-core.
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/bagua.hpp"

namespace runner {

namespace {

/// The partner of `rank` in exchange number `turn`, among an even number of ranks: it is in the other half, and changes each time.
int64_t partner(int64_t rank, int64_t ranks, int64_t turn) {
  const int64_t half = ranks / 2;
  if (rank < half) return half + (turn + rank) % half;
  return ((rank - half - turn) % half + half) % half;
}

class Decentralized : public BaguaReducer {
 public:
  using BaguaReducer::BaguaReducer;

  nlohmann::json scalars() const override { return {{"steps", steps_}}; }
  void load_scalars(const nlohmann::json& scalars) override {
    if (scalars.is_object()) steps_ = scalars.value("steps", int64_t{0});
  }

 protected:
  void prepared() override {
    BaguaReducer::prepared();
    averages_.resize(buckets_.size());
  }

  void start(size_t b, torch::Tensor&) override {
    if (!averages_now()) return;
    auto& average = averages_[b];
    const auto& parameters = buckets_[b].parameters;
    average.own = parameters.to(wide(parameters), /*non_blocking=*/false, /*copy=*/true);
    if (node_)
      average.work = start_node_sum(average.own);
    else
      start_average(average);
  }

  void complete(size_t b, torch::Tensor& values) override {
    to_own_mean(values);
    if (averages_now()) {
      if (b == 0 && node_)
        for (auto& average : averages_) {
          wait(average.work);
          average.own.div_(static_cast<double>(groups_.node));
          if (exchanges()) start_average(average);
        }
      take(b);
    }
    if (b + 1 == buckets_.size()) ++steps_;
  }

 private:
  struct Average {
    torch::Tensor own, other;
    Work work;
  };

  bool averages_now() const { return world_.size > 1 && steps_ % options_.communication_interval == 0; }

  void start_average(Average& average) {
    if (groups_.nodes == 1) return;
    if (options_.peer_selection_mode == "all") {
      average.work = start_sum(average.own, exchange_);
      return;
    }
    average.other = torch::empty_like(average.own);
    const int64_t peer = partner(node(), groups_.nodes, steps_ / options_.communication_interval);
    average.work = start_exchange(exchange_, peer, average.own, peer, average.other);
  }

  void take(size_t b) {
    auto average = std::exchange(averages_[b], {});
    wait(average.work);
    if (exchanges() && average.other.defined())
      average.own.add_(average.other).div_(2);
    else if (exchanges())
      average.own.div_(static_cast<double>(groups_.nodes));
    if (auto work = start_node_broadcast(average.own)) work->wait();
    buckets_[b].parameters.copy_(average.own);
  }

  std::vector<Average> averages_;  ///< of each bucket, during a step
  int64_t steps_ = 0;              ///< also skipped ones
};

}  // namespace

std::shared_ptr<Reducer> make_decentralized(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<Decentralized>(world, plan, job);
}

}  // namespace runner
