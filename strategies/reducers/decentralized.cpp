// Bagua's decentralized: ranks train replicas, and parameters are averaged during the backward of a step.
//
// The average of the parameters before the step takes their place, and the optimizer applies the gradients at the old parameters to it.
// Source: decentralized_full_precision_synchronous.rs of bagua-core.
#include <fmt/format.h>

#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/bagua.hpp"
#include "strategies/reducers/min_max_codec.hpp"

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
    average.own = parameters.to(wide_dtype(parameters), /*non_blocking=*/false, /*copy=*/true);
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

/// Bagua's low_precision_decentralized: ranks on a ring train replicas, and send the changes of their parameters to both neighbours as
/// 8-bit integers.
///
/// A rank keeps w, what it has published, and L and R, what its neighbours have. After an update to x it publishes
/// d = x + L/3 + R/3 - 5/3 w: w += Q(d), and neighbours add Q(d) to their copies, so these have the same bits as w. Then x = w. Source:
/// decentralized_low_precision_synchronous.rs of bagua-core.
class LowPrecisionDecentralized : public BaguaReducer {
 public:
  using BaguaReducer::BaguaReducer;

  std::vector<StateTensor> state() override {
    std::vector<StateTensor> list;
    for (size_t b = 0; b < states_.size(); ++b) {
      list.push_back(own_piece(fmt::format("published/{}", b), states_[b].own));
      list.push_back(own_piece(fmt::format("left/{}", b), states_[b].left));
      list.push_back(own_piece(fmt::format("right/{}", b), states_[b].right));
    }
    return list;
  }
  nlohmann::json scalars() const override {
    return {{"updates", updates_}, {"published", published_}, {"ranks_of_node", groups_.node}};
  }
  /// Values that were published among other nodes do not count.
  void load_scalars(const nlohmann::json& scalars) override {
    if (!scalars.is_object()) return;
    updates_ = scalars.value("updates", int64_t{0});
    published_ = scalars.value("published", false) && scalars.value("ranks_of_node", int64_t{0}) == groups_.node;
  }

  void after_update() override {
    if (world_.size == 1 || updates_++ % options_.communication_interval != 0) return;
    torch::NoGradGuard no_grad;
    for (size_t b = 0; b < buckets_.size(); ++b) {
      auto x = buckets_[b].parameters.to(wide_dtype(buckets_[b].parameters));
      if (auto work = start_node_sum(x)) work->wait();
      if (groups_.node > 1) x.div_(static_cast<double>(groups_.node));
      if (exchanges()) x.copy_(publish(states_[b], x));
      if (auto work = start_node_broadcast(x)) work->wait();
      if (!x.is_same(buckets_[b].parameters)) buckets_[b].parameters.copy_(x);
    }
  }

 protected:
  void prepared() override {
    BaguaReducer::prepared();
    if (world_.size == 1) return;
    for (const auto& bucket : buckets_) {
      const auto zeros = [&] { return torch::zeros_like(bucket.parameters, wide_dtype(bucket.parameters)); };
      states_.push_back({.own = zeros(), .left = zeros(), .right = zeros()});
    }
  }

  /// At first, ranks have published their parameters. Those of a resumed run may differ, so neighbours send them.
  void start(size_t b, torch::Tensor&) override {
    if (published_ || world_.size == 1) return;
    auto& state = states_[b];
    for (auto* copy : {&state.own, &state.left, &state.right}) copy->copy_(buckets_[b].parameters);
    if (host_.steps() == 0 || !exchanges() || groups_.nodes == 1) return;
    start_shift(state.left, state.own, 1)->wait();
    start_shift(state.right, state.own, -1)->wait();
  }

  void complete(size_t b, torch::Tensor& values) override {
    to_own_mean(values);
    if (b + 1 == buckets_.size()) published_ = world_.size > 1;
  }

 private:
  struct State {
    torch::Tensor own, left, right;
  };

  /// The new published parameters.
  const torch::Tensor& publish(State& state, const torch::Tensor& x) {
    if (groups_.nodes == 1) return state.own.copy_(x);
    auto change = state.left + state.right;
    change.div_(3).add_(x).sub_(state.own, 5.0 / 3);
    const auto sent = encode_min_max(change.to(torch::kFloat32));
    change.reset();
    auto from_left = torch::empty_like(sent), from_right = torch::empty_like(sent);
    start_shift(from_left, sent, 1)->wait();
    start_shift(from_right, sent, -1)->wait();
    const int64_t elements = x.numel();
    state.left.add_(decode_min_max(from_left, elements));
    state.right.add_(decode_min_max(from_right, elements));
    return state.own.add_(decode_min_max(sent, elements));
  }

  std::vector<State> states_;  ///< of each bucket
  int64_t updates_ = 0;
  bool published_ = false;
};

}  // namespace

std::shared_ptr<Reducer> make_decentralized(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<Decentralized>(world, plan, job);
}

std::shared_ptr<Reducer> make_low_precision_decentralized(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<LowPrecisionDecentralized>(world, plan, job);
}

}  // namespace runner
