// The simulation of a pipeline: published times and numbers of live activations, waits, deadlocks, and orders that are not allowed.
#include "strategies/pipeline/simulation.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <random>

#include "strategies/pipeline/transfers.hpp"
#include "tests/pipeline/shapes.hpp"

using namespace runner;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

/// Every stage takes these times.
PipelineTiming same(const PipelineShape& shape, double forward, double input, double weight) {
  const StageTime time{
      .forward = forward, .backward = input + weight, .backward_input = input, .backward_weight = weight};
  return {.stages = std::vector(shape.stages(), time)};
}

PipelineSimulation play(const PipelineShape& shape, const PipelineTiming& timing) {
  return simulate(shape, with_transfers(shape, training_order(shape)), timing);
}

using Starts = std::vector<std::pair<double, double>>;

Starts times_of(const std::vector<PlayedAction>& played) {
  Starts times;
  for (const auto& [action, start, end] : played) times.emplace_back(start, end);
  return times;
}

PipelineAction action(ActionKind kind, int stage, int micro_batch) {
  return {.kind = kind, .stage = stage, .micro_batch = micro_batch};
}

/// Two ranks, and as many micro-batches as the tests need.
const PipelineShape two{.ranks = 2, .micro_batches = 3};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("the time of a step is as published") {
  for (const auto& shape : all_shapes()) {
    INFO(describe(shape));
    const int p = shape.ranks, v = shape.virtual_stages, m = shape.micro_batches;
    for (const auto& [f, i, w] :
         {std::tuple(1., 1., 1.), std::tuple(3., 4., 2.), std::tuple(2., 1., 1.), std::tuple(5., 1., 1.)}) {
      // Buffers without limit, as in the formulas.
      auto timing = same(shape, f, i, w);
      timing.buffer = unlimited_buffer;
      const double end = play(shape, timing).end, step = m * v * (f + i + w);
      if (shape.schedule == PipelineSchedule::zb_h1) {
        if (m >= p)
          CHECK_THAT(end, WithinAbs(step + (p - 1) * (f + i - w), 1e-9));
        else
          CHECK(end <= step + (p - 1) * (f + i + w));
      } else if (m >= p || v == 1) {
        CHECK_THAT(end, WithinAbs(step + (p - 1) * (f + i + w), 1e-9));
      } else {
        // All of a micro-batch's stages in turn, and m - 1 micro-batches behind the first.
        CHECK_THAT(end, WithinAbs((v * p + m - 1) * (f + i + w), 1e-9));
      }
    }
  }
}

TEST_CASE("the bubble of zb_h1 is a third of that of 1f1b if all parts take the same time") {
  for (const int m : {4, 6, 11}) {
    const PipelineShape plain{.schedule = PipelineSchedule::one_f_one_b, .ranks = 4, .micro_batches = m};
    const PipelineShape split{.schedule = PipelineSchedule::zb_h1, .ranks = 4, .micro_batches = m};
    const double bubble = play(plain, same(plain, 1, 1, 1)).end - 3 * m;
    CHECK(bubble == 9);
    CHECK(play(split, same(split, 1, 1, 1)).end - 3 * m == bubble / 3);
  }
}

TEST_CASE("as many micro-batches are in flight as published") {
  for (const auto& shape : all_shapes()) {
    INFO(describe(shape));
    const int p = shape.ranks, v = shape.virtual_stages, m = shape.micro_batches;
    const auto played = play(shape, {});
    for (int i = 0; i < p; ++i) {
      INFO("rank " << i);
      switch (shape.schedule) {
        case PipelineSchedule::gpipe:
          CHECK(played.rank_peak[i] == m);
          break;
        case PipelineSchedule::one_f_one_b:
          CHECK(played.rank_peak[i] == std::min(p - i, m));
          break;
        case PipelineSchedule::zb_h1:
          CHECK(played.rank_peak[i] == std::min(p, m));
          break;
        case PipelineSchedule::interleaved_1f1b:
          CHECK(played.rank_peak[i] == std::min(2 * (p - 1 - i) + (v - 1) * shape.groups()[0] + 1, v * m));
          break;
      }
      int sum = 0;
      for (int stage = i; stage < shape.stages(); stage += p) {
        CHECK(played.stage_peak[stage] >= 1);
        sum += played.stage_peak[stage];
      }
      CHECK(sum >= played.rank_peak[i]);
    }
  }
}

TEST_CASE("interleaved_1f1b with four ranks and two virtual stages holds 11, 9, 7 and 5 activations") {
  const PipelineShape shape{
      .schedule = PipelineSchedule::interleaved_1f1b, .ranks = 4, .virtual_stages = 2, .micro_batches = 8};
  const auto played = play(shape, {});
  CHECK(played.rank_peak == std::vector<int>{11, 9, 7, 5});
  CHECK(played.stage_peak == std::vector<int>{8, 8, 7, 5, 4, 4, 3, 1});
}

TEST_CASE("idle time of 1f1b") {
  const PipelineShape shape{.ranks = 4, .micro_batches = 6};
  const auto played = play(shape, {});
  CHECK(played.end == 27);
  for (const double idle : played.idle) CHECK_THAT(idle, WithinAbs(1 - 18. / 27, 1e-12));
}

TEST_CASE("starts and ends of each action, with different stages and a latency") {
  const PipelineShape shape{.ranks = 2, .micro_batches = 2};
  const auto order = with_transfers(shape, training_order(shape));
  REQUIRE(to_text(order[0], shape) == "F0 A0 F1 A1 g0 B0 g1 B1");
  REQUIRE(to_text(order[1], shape) == "a0 F0 B0 G0 a1 F1 B1 G1");
  const auto played =
      simulate(shape, order,
               {.stages = {{.forward = 1, .backward = 3}, {.forward = 2, .backward = 4}}, .latency = 0.5, .buffer = 1});
  CHECK(played.problems.empty());
  CHECK(times_of(played.ranks[0]) == Starts{{0, 1}, {1, 1}, {1, 2}, {2, 2}, {2, 8}, {8, 11}, {11, 14}, {14, 17}});
  CHECK(times_of(played.ranks[1]) ==
        Starts{{0, 1.5}, {1.5, 3.5}, {3.5, 7.5}, {7.5, 7.5}, {7.5, 7.5}, {7.5, 9.5}, {9.5, 13.5}, {13.5, 13.5}});
  CHECK(played.end == 17);
  CHECK_THAT(played.idle[0], WithinAbs(1 - 8. / 17, 1e-12));
  CHECK_THAT(played.idle[1], WithinAbs(1 - 12. / 17, 1e-12));
}

TEST_CASE("a send waits until the buffer of its channel has a place") {
  const PipelineShape shape{.schedule = PipelineSchedule::gpipe, .ranks = 2, .micro_batches = 3};
  const auto order = with_transfers(shape, forward_order(shape));
  const std::vector<StageTime> stages{{.forward = 1}, {.forward = 5}};
  const auto sends = [&](int buffer) {
    const auto played = simulate(shape, order, {.stages = stages, .buffer = buffer});
    std::vector<double> ends;
    for (const auto& [action, start, end] : played.ranks[0])
      if (is_transfer(action.kind)) ends.push_back(end);
    return ends;
  };
  CHECK(sends(1) == std::vector<double>{1, 2, 6});
  CHECK(sends(2) == std::vector<double>{1, 2, 3});
  CHECK(sends(unlimited_buffer) == std::vector<double>{1, 2, 3});
}

TEST_CASE("a deadlock names both sides of each wait") {
  using enum ActionKind;
  // Rank 0 waits for the gradient before it sends the activation from which the gradient comes.
  CHECK(simulate(two,
                 {{action(forward, 0, 2), action(receive_gradient, 0, 2), action(send_activation, 0, 2)},
                  {action(receive_activation, 1, 2), action(forward, 1, 2)}},
                 {})
            .problems ==
        Lines{"stage 0 waits to receive the gradient of micro-batch 2 from stage 1, which waits to receive the "
              "activation of micro-batch 2 from stage 0",
              "stage 1 waits to receive the activation of micro-batch 2 from stage 0, which waits to receive the "
              "gradient of micro-batch 2 from stage 1"});
  // Rank 1 receives less than rank 0 sends.
  const PipelineOrder order{
      {action(forward, 0, 0), action(send_activation, 0, 0), action(forward, 0, 1), action(send_activation, 0, 1)}, {}};
  CHECK(simulate(two, order, {}).problems ==
        Lines{"stage 0 waits to send the activation of micro-batch 1 to stage 1, which has finished"});
  CHECK(simulate(two, order, {.buffer = 2}).problems ==
        Lines{"stage 1 does not receive the activation of micro-batch 0 from stage 0",
              "stage 1 does not receive the activation of micro-batch 1 from stage 0"});
}

TEST_CASE("a deadlock of ranks with several stages names the stage that waits") {
  using enum ActionKind;
  const PipelineShape shape{
      .schedule = PipelineSchedule::interleaved_1f1b, .ranks = 2, .virtual_stages = 2, .micro_batches = 2};
  CHECK(simulate(shape, {{action(receive_activation, 2, 0)}, {action(receive_gradient, 1, 1)}}, {}).problems ==
        Lines{"stage 2 waits to receive the activation of micro-batch 0 from stage 1, which waits to receive the "
              "gradient of micro-batch 1 from stage 2",
              "stage 1 waits to receive the gradient of micro-batch 1 from stage 2, which waits to receive the "
              "activation of micro-batch 0 from stage 1"});
  CHECK(simulate(shape, {{action(receive_activation, 2, 0)}, {action(receive_activation, 3, 1)}}, {}).problems ==
        Lines{"stage 2 waits to receive the activation of micro-batch 0 from stage 1, whose rank waits, on stage 3, to "
              "receive the activation of micro-batch 1 from stage 2",
              "stage 3 waits to receive the activation of micro-batch 1 from stage 2, which waits to receive the "
              "activation of micro-batch 0 from stage 1"});
}

TEST_CASE("a message of another stage of the sender is reported") {
  using enum ActionKind;
  const PipelineShape shape{
      .schedule = PipelineSchedule::interleaved_1f1b, .ranks = 2, .virtual_stages = 2, .micro_batches = 2};
  CHECK(
      simulate(shape, {{action(forward, 0, 0), action(send_activation, 0, 0)}, {action(receive_activation, 3, 0)}}, {})
          .problems == Lines{"stage 3 waits to receive the activation of micro-batch 0 from stage 2, but the next "
                             "message is of micro-batch 0 and from stage 0"});
}

TEST_CASE("an order that is not allowed is reported at its first wrong action") {
  using enum ActionKind;
  struct Row {
    PipelineOrder order;
    std::string text;
  };
  for (const auto& [order, text] :
       {Row{{{}, {action(forward, 1, 0)}}, "stage 1: forward of micro-batch 0 comes before its input"},
        Row{{{action(forward, 0, 0), action(backward, 0, 0)}, {}},
            "stage 0: backward of micro-batch 0 comes before the gradient of its output"},
        Row{{{action(backward_weight, 0, 1)}, {}},
            "stage 0: backward_weight of micro-batch 1 comes before the gradient of its input"},
        Row{{{action(send_activation, 0, 1)}, {}},
            "stage 0: send the activation of micro-batch 1 to stage 1 comes before its forward"},
        Row{{{action(forward, 0, 0), action(forward, 0, 0)}, {}}, "stage 0: forward of micro-batch 0 comes twice"},
        Row{{{action(forward, 1, 0)}, {}}, "rank 0 cannot do this on stage 1: forward of micro-batch 0"},
        Row{{{action(forward, 0, 3)}, {}}, "rank 0 cannot do this on stage 0: forward of micro-batch 3"},
        Row{{{action(receive_activation, 0, 0)}, {}},
            "rank 0 cannot do this on stage 0: receive the activation of micro-batch 0 from stage -1"},
        Row{{{action(forward, 0, 0), action(send_activation, 0, 0)}, {action(receive_activation, 1, 1)}},
            "stage 1 waits to receive the activation of micro-batch 1 from stage 0, but the next message is of "
            "micro-batch 0 and from stage 0"}})
    CHECK(simulate(two, order, {}).problems == Lines{text});
}

TEST_CASE("512 ranks with 64 micro-batches are simulated") {
  for (const int v : {1, 2}) {
    const auto schedule = v == 1 ? PipelineSchedule::one_f_one_b : PipelineSchedule::interleaved_1f1b;
    const PipelineShape shape{.schedule = schedule, .ranks = 512, .virtual_stages = v, .micro_batches = 64};
    const auto played = play(shape, {});
    CHECK(played.problems.empty());
    CHECK(played.end == 3 * (512 * v + 63));
  }
}

TEST_CASE("a step with many micro-batches is as long as its play") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> around(0.7, 1.3);
  for (int p = 2; p <= 8; ++p)
    for (const int v : {1, 2, 3})
      for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1,
                                  PipelineSchedule::interleaved_1f1b}) {
        if ((v > 1) != (schedule == PipelineSchedule::interleaved_1f1b)) continue;
        for (const int m : {p, 4 * p, 5 * p + 1, 16 * p, 16 * p + 3}) {
          const PipelineShape shape{.schedule = schedule, .ranks = p, .virtual_stages = v, .micro_batches = m};
          INFO(describe(shape));
          CHECK_THAT(step_length(shape, same(shape, 1, 1, 1)), WithinAbs(play(shape, same(shape, 1, 1, 1)).end, 1e-9));
          PipelineTiming uneven = same(shape, 1, 1, 1);
          for (auto& time : uneven.stages) {
            time.forward = around(random);
            time.backward_input = around(random), time.backward_weight = around(random);
            time.backward = time.backward_input + time.backward_weight;
          }
          CHECK_THAT(step_length(shape, uneven), WithinRel(play(shape, uneven).end, 0.02));
        }
      }
}
