// Pipeline schedules: the printed orders, their properties, and shapes that are refused.
#include "strategies/pipeline/schedule.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "runner/base/error.hpp"
#include "tests/pipeline/shapes.hpp"

using namespace runner;

namespace {

std::vector<std::string> texts(const PipelineShape& shape) {
  std::vector<std::string> list;
  for (const auto& actions : training_order(shape)) list.push_back(to_text(actions, shape));
  return list;
}

}  // namespace

TEST_CASE("gpipe computes all forwards, then all backwards") {
  const std::string order = "F0 F1 F2 B0 B1 B2";
  CHECK(texts({.schedule = PipelineSchedule::gpipe, .ranks = 2, .micro_batches = 3}) ==
        std::vector<std::string>{order, order});
}

TEST_CASE("1f1b on four ranks with six micro-batches") {
  CHECK(texts({.schedule = PipelineSchedule::one_f_one_b, .ranks = 4, .micro_batches = 6}) ==
        std::vector<std::string>{"F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5", "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5",
                                 "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"});
}

TEST_CASE("zb_h1 on four ranks with six micro-batches") {
  CHECK(texts({.schedule = PipelineSchedule::zb_h1, .ranks = 4, .micro_batches = 6}) ==
        std::vector<std::string>{"F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5",
                                 "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5",
                                 "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 I5 W3 W4 W5",
                                 "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5"});
}

TEST_CASE("interleaved_1f1b on two ranks with two virtual stages and four micro-batches in groups of two") {
  CHECK(texts({.schedule = PipelineSchedule::interleaved_1f1b,
               .ranks = 2,
               .virtual_stages = 2,
               .micro_batches = 4,
               .group = 2}) ==
        std::vector<std::string>{"F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a",
                                 "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"});
}

TEST_CASE("fewer micro-batches than ranks") {
  CHECK(texts({.schedule = PipelineSchedule::one_f_one_b, .ranks = 4, .micro_batches = 2}) ==
        std::vector<std::string>{"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"});
  CHECK(texts({.schedule = PipelineSchedule::zb_h1, .ranks = 4, .micro_batches = 2}) ==
        std::vector<std::string>{"F0 F1 I0 W0 I1 W1", "F0 F1 I0 I1 W0 W1", "F0 F1 I0 I1 W0 W1", "F0 I0 F1 I1 W0 W1"});
  CHECK(texts({.schedule = PipelineSchedule::interleaved_1f1b, .ranks = 2, .virtual_stages = 2, .micro_batches = 1}) ==
        std::vector<std::string>{"F0a F0b B0b B0a", "F0a F0b B0b B0a"});
}

TEST_CASE("groups of micro-batches are as equal as possible, and have at least the asked size") {
  const auto groups = [](int p, int m, int g) {
    return PipelineShape{
        .schedule = PipelineSchedule::interleaved_1f1b, .ranks = p, .virtual_stages = 2, .micro_batches = m, .group = g}
        .groups();
  };
  CHECK(groups(4, 8, 0) == std::vector<int>{4, 4});
  CHECK(groups(4, 8, 8) == std::vector<int>{8});
  CHECK(groups(4, 11, 0) == std::vector<int>{6, 5});
  CHECK(groups(4, 14, 4) == std::vector<int>{5, 5, 4});
  CHECK(groups(4, 3, 0) == std::vector<int>{3});
  CHECK(groups(4, 6, 9) == std::vector<int>{6});
  CHECK(PipelineShape{.ranks = 4, .micro_batches = 9}.groups() == std::vector<int>{9});
}

TEST_CASE(
    "every computation occurs once, after those that it needs, and gradients are summed in the order of "
    "micro-batches") {
  for (const auto& shape : all_shapes()) {
    INFO(describe(shape));
    const bool splits = shape.schedule == PipelineSchedule::zb_h1;
    const auto order = training_order(shape);
    REQUIRE(std::ssize(order) == shape.ranks);
    std::map<std::tuple<ActionKind, int, int>, size_t> places;
    std::map<std::pair<ActionKind, int>, std::vector<int>> of_stage;
    size_t count = 0;
    for (int rank = 0; rank < shape.ranks; ++rank)
      for (size_t place = 0; place < order[rank].size(); ++place, ++count) {
        const auto& [kind, stage, k] = order[rank][place];
        REQUIRE(stage % shape.ranks == rank);
        places[{kind, stage, k}] = place;
        of_stage[{kind, stage}].push_back(k);
      }
    CHECK(count == static_cast<size_t>(shape.stages()) * shape.micro_batches * (splits ? 3 : 2));
    CHECK(places.size() == count);
    std::vector<int> ascending;
    for (int k = 0; k < shape.micro_batches; ++k) ascending.push_back(k);
    const auto backward = splits ? ActionKind::backward_input : ActionKind::backward;
    bool in_order = true;
    for (int stage = 0; stage < shape.stages(); ++stage) {
      for (const auto kind : {ActionKind::forward, backward}) in_order &= of_stage[{kind, stage}] == ascending;
      if (splits) in_order &= of_stage[{ActionKind::backward_weight, stage}] == ascending;
      for (int k = 0; k < shape.micro_batches; ++k) {
        in_order &= places.at({ActionKind::forward, stage, k}) < places.at({backward, stage, k});
        if (splits) in_order &= places.at({backward, stage, k}) < places.at({ActionKind::backward_weight, stage, k});
      }
    }
    CHECK(in_order);
  }
}

TEST_CASE("an evaluation computes the forwards of the schedule alone") {
  const PipelineShape shape{
      .schedule = PipelineSchedule::interleaved_1f1b, .ranks = 2, .virtual_stages = 2, .micro_batches = 4};
  for (const auto& actions : forward_order(shape)) CHECK(to_text(actions, shape) == "F0a F1a F0b F1b F2a F3a F2b F3b");
}

TEST_CASE("a shape without a schedule is refused with the nearest value that has one") {
  struct Row {
    PipelineShape shape;
    std::string text;
  };
  using enum PipelineSchedule;
  for (const auto& [shape, text] :
       {Row{{.ranks = 0}, "a pipeline with 0 ranks: at least 1"},
        Row{{.virtual_stages = -1}, "a pipeline with -1 virtual stages a rank: at least 1"},
        Row{{.micro_batches = 0}, "a pipeline with 0 micro-batches: at least 1"},
        Row{{.virtual_stages = 2}, "1f1b has 1 virtual stage a rank, not 2; interleaved_1f1b can have 2"},
        Row{{.schedule = zb_h1, .group = 4}, "zb_h1 has no groups of micro-batches; interleaved_1f1b has them"},
        Row{{.schedule = interleaved_1f1b, .ranks = 2},
            "interleaved_1f1b needs 2 or more virtual stages a rank (strategy.virtual_stages); with 1, use 1f1b"},
        Row{{.schedule = interleaved_1f1b, .virtual_stages = 2, .group = -1}, "groups of -1 micro-batches: at least 1"},
        Row{{.schedule = interleaved_1f1b, .ranks = 4, .virtual_stages = 2, .micro_batches = 8, .group = 3},
            "groups of 3 are too small for 4 ranks; use groups of 4 or more micro-batches"},
        Row{{.schedule = interleaved_1f1b, .ranks = 4, .virtual_stages = 2, .micro_batches = 3, .group = 2},
            "groups of 2 are too small for 4 ranks; use groups of 3 or more micro-batches"}}) {
    CHECK(refuse_pipeline(shape) == text);
    CHECK_THROWS_MATCHES(training_order(shape), Error, says(text));
    CHECK_THROWS_MATCHES(forward_order(shape), Error, says(text));
  }
  for (const auto& shape : all_shapes()) CHECK(refuse_pipeline(shape) == std::nullopt);
}

TEST_CASE("too few micro-batches get a note") {
  CHECK(pipeline_notes({.ranks = 4, .micro_batches = 4}).empty());
  CHECK(pipeline_notes({.ranks = 4, .micro_batches = 3}) ==
        std::vector<std::string>{
            "3 micro-batches do not fill a pipeline of 4 ranks, which wait for each other; use 4 or more, with a "
            "smaller train.micro_batch_size or a larger train.accumulate_grad_batches"});
  CHECK(pipeline_notes({.ranks = 2, .micro_batches = 1}) ==
        std::vector<std::string>{
            "1 micro-batch does not fill a pipeline of 2 ranks, which wait for each other; use 2 or more, with a "
            "smaller train.micro_batch_size or a larger train.accumulate_grad_batches"});
}

TEST_CASE("names of schedules") {
  for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                              PipelineSchedule::interleaved_1f1b, PipelineSchedule::zb_h1})
    CHECK(pipeline_schedule(name_of(schedule)) == schedule);
  CHECK_THROWS_MATCHES(pipeline_schedule("zb_h2"), Error,
                       says("there is no pipeline schedule \"zb_h2\"; it can be gpipe, 1f1b, interleaved_1f1b or "
                            "zb_h1 (did you mean zb_h1?)"));
  CHECK_THROWS_MATCHES(pipeline_schedule("alternating"), Error,
                       says("there is no pipeline schedule \"alternating\"; it can be gpipe, 1f1b, interleaved_1f1b "
                            "or zb_h1"));
}

TEST_CASE("activations go to the next stage, and gradients to the previous one") {
  CHECK(peer_stage({.kind = ActionKind::send_activation, .stage = 3}) == 4);
  CHECK(peer_stage({.kind = ActionKind::receive_activation, .stage = 3}) == 2);
  CHECK(peer_stage({.kind = ActionKind::send_gradient, .stage = 3}) == 2);
  CHECK(peer_stage({.kind = ActionKind::receive_gradient, .stage = 3}) == 4);
}

TEST_CASE("names of actions") {
  const PipelineShape many{.schedule = PipelineSchedule::interleaved_1f1b, .ranks = 2, .virtual_stages = 30};
  CHECK(to_text({{.kind = ActionKind::receive_activation, .stage = 2, .micro_batch = 11},
                 {.kind = ActionKind::send_activation, .stage = 3, .micro_batch = 0},
                 {.kind = ActionKind::receive_gradient, .stage = 51, .micro_batch = 1},
                 {.kind = ActionKind::send_gradient, .stage = 52, .micro_batch = 2}},
                many) == "a11b A0b g1z G2.26");
  CHECK(std::string(name_of(ActionKind::backward_weight)) == "backward_weight");
  CHECK(std::string(name_of(ActionKind::send_gradient)) == "send_gradient");
}
