// Transfers between the stages of a pipeline: no deadlock with one message of buffer, equal orders on both sides, values that do not
// depend on delays, and the reports of changed orders.
#include "strategies/pipeline/transfers.hpp"

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>

#include "runner/base/text.hpp"
#include "strategies/pipeline/simulation.hpp"
#include "tests/pipeline/shapes.hpp"

using namespace runner;

namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  return x ^ (x >> 27);
}

/// What a stage learns in a step: its summands of the gradients of weights, in order.
using Gradients = std::vector<std::vector<uint64_t>>;

/// The same without a pipeline: one micro-batch after the other through all stages and back.
Gradients reference(const PipelineShape& shape) {
  Gradients gradients(shape.stages());
  for (int k = 0; k < shape.micro_batches; ++k) {
    std::vector<uint64_t> inputs{mix(k, 1)};
    for (int stage = 0; stage < shape.stages(); ++stage) inputs.push_back(mix(inputs.back(), stage));
    uint64_t gradient = mix(inputs.back(), 2);
    for (int stage = shape.stages() - 1; stage >= 0; --stage) {
      gradients[stage].push_back(mix(gradient, inputs[stage]));
      gradient = mix(gradient, mix(inputs[stage], stage));
    }
  }
  return gradients;
}

/// Ranks that carry out orders with values, like an executor and unlike simulate(): messages carry values and nothing else, and the next
/// rank to act is drawn at random.
class Ranks {
 public:
  Ranks(const PipelineShape& shape, const PipelineOrder& order) : shape_(shape), order_(order) {
    const auto size = static_cast<size_t>(shape.stages()) * shape.micro_batches;
    for (auto* values : {&inputs_, &outputs_, &gradients_, &input_gradients_}) values->resize(size);
    for (int k = 0; k < shape.micro_batches; ++k) inputs_[k] = mix(k, 1);
    next_.resize(shape.ranks);
    result_.resize(shape.stages());
  }

  /// Nullopt if a value is missing, or if ranks wait for each other.
  std::optional<Gradients> run(std::mt19937& random) {
    std::vector<int> ranks(shape_.ranks);
    std::iota(ranks.begin(), ranks.end(), 0);
    bool moved = true;
    while (moved && !wrong_) {
      moved = false;
      std::shuffle(ranks.begin(), ranks.end(), random);
      for (const int rank : ranks)
        for (auto steps = 1 + random() % 4; steps > 0 && !wrong_ && step(rank); --steps) moved = true;
    }
    for (int rank = 0; rank < shape_.ranks; ++rank) wrong_ |= next_[rank] < order_[rank].size();
    for (const auto& [key, channel] : channels_) wrong_ |= !channel.empty();
    return wrong_ ? std::nullopt : std::optional(result_);
  }

 private:
  using Values = std::vector<std::optional<uint64_t>>;

  uint64_t get(const Values& values, size_t at) {
    wrong_ |= !values[at];
    return values[at].value_or(0);
  }

  bool step(int rank) {
    if (next_[rank] == order_[rank].size()) return false;
    const auto& [kind, stage, k] = order_[rank][next_[rank]];
    const size_t at = static_cast<size_t>(stage) * shape_.micro_batches + k, m = shape_.micro_batches;
    const bool last = stage + 1 == shape_.stages(), alone = shape_.ranks == 1;
    const int before = (rank + shape_.ranks - 1) % shape_.ranks, after = (rank + 1) % shape_.ranks;
    switch (kind) {
      case ActionKind::forward:
        outputs_[at] = mix(get(inputs_, at), stage);
        if (last) gradients_[at] = mix(*outputs_[at], 2);
        if (alone && !last) inputs_[at + m] = outputs_[at];
        break;
      case ActionKind::backward:
      case ActionKind::backward_input:
        get(outputs_, at);
        input_gradients_[at] = mix(get(gradients_, at), mix(get(inputs_, at), stage));
        if (alone && stage > 0) gradients_[at - m] = input_gradients_[at];
        if (kind == ActionKind::backward) result_[stage].push_back(mix(get(gradients_, at), get(inputs_, at)));
        break;
      case ActionKind::backward_weight:
        get(input_gradients_, at);
        result_[stage].push_back(mix(get(gradients_, at), get(inputs_, at)));
        break;
      case ActionKind::send_activation:
        if (!send({rank, true}, get(outputs_, at))) return false;
        break;
      case ActionKind::send_gradient:
        if (!send({rank, false}, get(input_gradients_, at))) return false;
        break;
      case ActionKind::receive_activation:
        if (!receive({before, true}, inputs_[at])) return false;
        break;
      case ActionKind::receive_gradient:
        if (!receive({after, false}, gradients_[at])) return false;
        break;
    }
    ++next_[rank];
    return true;
  }

  using Key = std::pair<int, bool>;
  bool send(Key key, uint64_t value) {
    if (!channels_[key].empty()) return false;
    channels_[key].push_back(value);
    return true;
  }
  bool receive(Key key, std::optional<uint64_t>& value) {
    if (channels_[key].empty()) return false;
    value = channels_[key].front();
    channels_[key].pop_front();
    return true;
  }

  const PipelineShape& shape_;
  const PipelineOrder& order_;
  std::vector<size_t> next_;
  Values inputs_, outputs_, gradients_, input_gradients_;
  std::map<Key, std::deque<uint64_t>> channels_;  ///< of a sender, activations or gradients; one message each
  Gradients result_;
  bool wrong_ = false;
};

/// The messages of a rank of one kind: the stages between which they go, and their micro-batches.
std::vector<std::pair<int, int>> messages(const std::vector<PipelineAction>& actions, ActionKind kind, int to_sender) {
  std::vector<std::pair<int, int>> list;
  for (const auto& action : actions)
    if (action.kind == kind) list.emplace_back(action.stage + to_sender, action.micro_batch);
  return list;
}

PipelineOrder with_all(const PipelineShape& shape) { return with_transfers(shape, training_order(shape)); }

}  // namespace

TEST_CASE("transfers stand beside the computations that need them") {
  const auto texts = [](const PipelineShape& shape) {
    std::vector<std::string> list;
    for (const auto& actions : with_all(shape)) list.push_back(to_text(actions, shape));
    return list;
  };
  CHECK(texts({.ranks = 3, .micro_batches = 2}) == std::vector<std::string>{"F0 A0 F1 A1 g0 B0 g1 B1",
                                                                            "a0 F0 A0 a1 F1 A1 g0 B0 G0 g1 B1 G1",
                                                                            "a0 F0 B0 G0 a1 F1 B1 G1"});
  CHECK(texts({.schedule = PipelineSchedule::zb_h1, .ranks = 2, .micro_batches = 2}) ==
        std::vector<std::string>{"F0 A0 F1 A1 g0 I0 W0 g1 I1 W1", "a0 F0 I0 G0 a1 F1 I1 G1 W0 W1"});
  CHECK(texts({.schedule = PipelineSchedule::interleaved_1f1b, .virtual_stages = 2, .micro_batches = 1}) ==
        std::vector<std::string>{"F0a F0b B0b B0a"});
}

TEST_CASE("with groups larger than the number of ranks, messages are received before the next one comes") {
  const PipelineShape shape{
      .schedule = PipelineSchedule::interleaved_1f1b, .ranks = 2, .virtual_stages = 2, .micro_batches = 4, .group = 4};
  const auto order = with_all(shape);
  CHECK(
      to_text(order[0], shape) ==
      "F0a A0a F1a A1a F2a a0b A2a F3a a1b A3a F0b a2b A0b F1b A1b F2b A2b g0b B0b G0b a3b F3b A3b g1b B1b G1b g2b B2b "
      "G2b g3b B3b G3b g0a B0a g1a B1a g2a B2a g3a B3a");
}

TEST_CASE("one message of buffer suffices, and costs no time") {
  for (const auto& shape : all_shapes()) {
    INFO(describe(shape));
    const auto order = with_all(shape);
    const auto played = simulate(shape, order, {.buffer = 1});
    REQUIRE(played.problems.empty());
    CHECK(played.end == simulate(shape, order, {.buffer = unlimited_buffer}).end);
    for (int rank = 0; rank < shape.ranks; ++rank) CHECK(played.ranks[rank].size() == order[rank].size());
    CHECK(simulate(shape, with_transfers(shape, forward_order(shape)), {.buffer = 1}).problems.empty());
  }
}

TEST_CASE("transfers change no order of computations") {
  for (const auto& shape : all_shapes()) {
    auto order = with_all(shape);
    for (auto& actions : order) std::erase_if(actions, [](const auto& action) { return is_transfer(action.kind); });
    CHECK(order == training_order(shape));
  }
}

TEST_CASE("sender and receiver agree about the order of messages") {
  using enum ActionKind;
  for (const auto& shape : all_shapes()) {
    INFO(describe(shape));
    const auto order = with_all(shape);
    const int p = shape.ranks;
    size_t count = 0;
    for (int rank = 0; rank < p; ++rank) {
      const auto& here = order[rank];
      const auto activations = messages(here, send_activation, 0), gradients = messages(here, send_gradient, 0);
      CHECK(activations == messages(order[(rank + 1) % p], receive_activation, -1));
      CHECK(gradients == messages(order[(rank + p - 1) % p], receive_gradient, 1));
      count += activations.size() + gradients.size();
    }
    CHECK(count == (p == 1 ? 0 : 2 * static_cast<size_t>(shape.micro_batches) * (shape.stages() - 1)));
  }
}

TEST_CASE("values and the order of sums do not depend on delays, and are those of one micro-batch after the other") {
  std::mt19937 random(7);
  for (const auto& shape : all_shapes()) {
    if (shape.ranks > 4 && shape.micro_batches != shape.ranks + 1) continue;
    INFO(describe(shape));
    const auto order = with_all(shape);
    const auto expected = reference(shape);
    for (int i = 0; i < 3; ++i) CHECK(Ranks(shape, order).run(random) == expected);
  }
}

TEST_CASE("random durations change neither the order of actions nor end in a deadlock") {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> duration(0.01, 3);
  for (const auto& shape : small_shapes()) {
    const auto order = with_all(shape);
    for (int i = 0; i < 20; ++i) {
      PipelineTiming timing{.latency = duration(random)};
      for (int stage = 0; stage < shape.stages(); ++stage)
        timing.stages.push_back({.forward = duration(random),
                                 .backward = duration(random),
                                 .backward_input = duration(random),
                                 .backward_weight = duration(random)});
      const auto played = simulate(shape, order, timing);
      REQUIRE(played.problems.empty());
      for (int rank = 0; rank < shape.ranks; ++rank) {
        double time = 0;
        REQUIRE(played.ranks[rank].size() == order[rank].size());
        for (size_t n = 0; n < order[rank].size(); ++n) {
          const auto& [action, start, end] = played.ranks[rank][n];
          CHECK(action == order[rank][n]);
          CHECK((time <= start && start <= end));
          time = end;
        }
      }
    }
  }
}

TEST_CASE("two swapped actions are reported, unless the result stays right") {
  std::mt19937 random(3);
  int right = 0;
  std::map<std::string, int> reported;
  for (const auto& shape : small_shapes()) {
    const auto order = with_all(shape);
    auto expected = reference(shape);
    const auto swap_and_compare = [&](int rank, size_t a, size_t b) {
      auto changed = order;
      std::swap(changed[rank][a], changed[rank][b]);
      INFO(describe(shape) << " rank " << rank << ": " << to_text(changed[rank], shape));
      const auto problems = simulate(shape, changed, {.buffer = 1}).problems;
      auto values = Ranks(shape, changed).run(random);
      // A swap of two backwards may change the order of a sum, but not its terms.
      if (values)
        for (auto* gradients : {&*values, &expected})
          for (auto& terms : *gradients) std::ranges::sort(terms);
      CHECK(problems.empty() == (values == expected));
      if (problems.empty())
        ++right;
      else if (problems[0].find("next message") != std::string::npos)
        ++reported["other message"];
      else
        ++reported[problems[0].find(" waits to ") != std::string::npos ? "deadlock" : "not allowed"];
    };
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (size_t a = 0; a < order[rank].size(); ++a) {
        const auto rest = std::span(order[rank]).subspan(a + 1);
        if (!rest.empty()) swap_and_compare(rank, a, a + 1);
        const auto same_kind = std::ranges::find(rest, order[rank][a].kind, &PipelineAction::kind);
        if (same_kind != rest.end()) swap_and_compare(rank, a, a + 1 + (same_kind - rest.begin()));
      }
  }
  CHECK(right > 50);
  CHECK(reported["not allowed"] > 50);
  CHECK(reported["deadlock"] > 0);
  CHECK(reported["other message"] > 10);
}
