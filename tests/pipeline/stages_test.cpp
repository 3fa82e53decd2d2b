// The division of blocks into pipeline stages: against all divisions, under limits of memory, and by hand.
#include "strategies/pipeline/stages.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <numeric>
#include <optional>
#include <random>

#include "runner/base/error.hpp"
#include "tests/pipeline/shapes.hpp"

using namespace runner;

namespace {

std::vector<BlockCost> with_times(const std::vector<double>& times) {
  std::vector<BlockCost> blocks;
  for (const double time : times) blocks.push_back({.name = fmt::format("blocks.{}", blocks.size()), .time = time});
  return blocks;
}

StageBlocks balance_times(const std::vector<double>& times, int stages) {
  return balance(with_times(times), std::vector<StageMemory>(stages));
}

/// All divisions of `blocks` into `stages`, those with more blocks in the first stages first.
void for_each_division(int blocks, int stages, StageBlocks& division, auto&& f) {
  if (stages == 1) {
    division.push_back(blocks);
    f(division);
    division.pop_back();
    return;
  }
  for (int first = blocks - stages + 1; first >= 1; --first) {
    division.push_back(first);
    for_each_division(blocks - first, stages - 1, division, f);
    division.pop_back();
  }
}

/// What balance() promises, by trying all divisions. Times must be whole numbers.
std::optional<StageBlocks> best_of_all(const std::vector<BlockCost>& blocks, const std::vector<StageMemory>& stages) {
  std::optional<std::pair<std::pair<double, double>, StageBlocks>> best;
  StageBlocks division;
  for_each_division(static_cast<int>(blocks.size()), static_cast<int>(stages.size()), division, [&](const auto& one) {
    std::pair<double, double> value{0, 0};  // largest time, sum of squares
    size_t at = 0;
    for (size_t stage = 0; stage < one.size(); ++stage) {
      double time = 0;
      int64_t bytes = 0;
      for (int i = 0; i < one[stage]; ++i, ++at) {
        time += blocks[at].time;
        bytes += blocks[at].state_bytes + stages[stage].micro_batches * blocks[at].activation_bytes;
      }
      if (bytes > stages[stage].limit) return;
      value = {std::max(value.first, time), value.second + time * time};
    }
    if (!best || value < best->first) best = {value, one};
  });
  return best ? std::optional(best->second) : std::nullopt;
}

const std::vector<BlockCost> six{{.name = "embedding"},    {.name = "blocks.0.attention"},
                                 {.name = "blocks.0.mlp"}, {.name = "blocks.1.attention"},
                                 {.name = "blocks.1.mlp"}, {.name = "head"}};

}  // namespace

TEST_CASE("equal blocks: the surplus goes to the first stages") {
  CHECK(balance_times(std::vector(10, 1.), 4) == StageBlocks{3, 3, 2, 2});
  CHECK(balance_times(std::vector(10, 0.1), 4) == StageBlocks{3, 3, 2, 2});
  CHECK(balance_times(std::vector(12, 1. / 3), 4) == StageBlocks{3, 3, 3, 3});
  CHECK(balance_times(std::vector(5, 1.), 5) == StageBlocks{1, 1, 1, 1, 1});
  CHECK(balance_times(std::vector(5, 1.), 1) == StageBlocks{5});
  CHECK(balance_times(std::vector(5, 0.), 2) == StageBlocks{4, 1});
}

TEST_CASE("a head that takes as long as several layers gets fewer of them") {
  CHECK(balance_times({0, 1, 1, 1, 1, 1, 1, 1, 1, 3}, 3) == StageBlocks{5, 4, 1});
  CHECK(balance_times({0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2}, 3) == StageBlocks{5, 4, 3});
}

TEST_CASE("the best division of small random models is found, with and without limits of memory") {
  std::mt19937 random(5);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  int impossible = 0, limited = 0;
  for (int i = 0; i < 600; ++i) {
    std::vector<BlockCost> blocks;
    for (int n = draw(2, 9); n > 0; --n)
      blocks.push_back({.name = fmt::format("blocks.{}", blocks.size()),
                        .time = static_cast<double>(draw(0, 6)),
                        .state_bytes = draw(0, 9),
                        .activation_bytes = draw(0, 3)});
    std::vector<StageMemory> stages;
    for (int n = draw(1, std::min<int>(4, static_cast<int>(blocks.size()))); n > 0; --n)
      stages.push_back({.limit = i % 3 ? draw(8, 50) : INT64_MAX, .micro_batches = draw(1, 4)});
    const auto expected = best_of_all(blocks, stages);
    if (expected) {
      CHECK(balance(blocks, stages) == *expected);
      limited += *expected != best_of_all(blocks, std::vector<StageMemory>(stages.size()));
    } else {
      CHECK_THROWS_AS(balance(blocks, stages), Error);
      ++impossible;
    }
  }
  CHECK(impossible > 20);
  CHECK(limited > 20);
}

TEST_CASE("stages that hold more micro-batches get fewer blocks if memory is short") {
  const std::vector<BlockCost> blocks(8, {.name = "layer", .time = 1, .state_bytes = 2, .activation_bytes = 1});
  CHECK(balance(blocks, {{.limit = 20, .micro_batches = 2}, {.limit = 20, .micro_batches = 1}}) == StageBlocks{4, 4});
  CHECK(balance(blocks, {{.limit = 20, .micro_batches = 4}, {.limit = 20, .micro_batches = 1}}) == StageBlocks{3, 5});
}

TEST_CASE("a model that does not fit is refused with the stage that is worst in the best division") {
  constexpr int64_t gib = int64_t{1} << 30;
  std::vector<BlockCost> blocks(10, {.name = "", .time = 1, .state_bytes = gib, .activation_bytes = gib / 4});
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].name = fmt::format("blocks.{}", i);
  CHECK_THROWS_MATCHES(balance(blocks, std::vector<StageMemory>(4, {.limit = 3 * gib, .micro_batches = 2})), Error,
                       says("no division of 10 blocks into 4 stages fits: at best, stage 0 has 3 blocks (blocks.0 to "
                            "blocks.2) and needs 4.50 GiB of 3.00 GiB"));
  CHECK_THROWS_MATCHES(balance(blocks, std::vector<StageMemory>(11)), Error,
                       says("10 blocks cannot be divided into 11 stages; at most 10 stages are possible"));
  CHECK_THROWS_MATCHES(balance(blocks, {}), Error,
                       says("10 blocks cannot be divided into 0 stages; at most 10 stages are possible"));
}

TEST_CASE("200 blocks are divided into 64 stages in well under a second") {
  std::mt19937 random(1);
  std::vector<double> times(200);
  for (auto& time : times) time = std::uniform_real_distribution(0.5, 1.5)(random);
  const auto begin = std::chrono::steady_clock::now();
  const auto division = balance_times(times, 64);
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 1);
  CHECK(std::accumulate(division.begin(), division.end(), 0) == 200);
}

TEST_CASE("stages by hand: numbers of blocks, or the first block or layer of each stage") {
  CHECK(stages_by_hand(std::vector{1, 4, 1}, six, 3) == StageBlocks{1, 4, 1});
  CHECK(stages_by_hand(std::vector<std::string>{"embedding", "blocks.0.mlp", "head"}, six, 3) == StageBlocks{2, 3, 1});
  CHECK(stages_by_hand(std::vector<std::string>{"embedding", "blocks.1"}, six, 2) == StageBlocks{3, 3});
}

TEST_CASE("stages by hand that do not divide the model are refused") {
  struct Row {
    GivenStages given;
    int stages;
    std::string text;
  };
  using Counts = std::vector<int>;
  using Names = std::vector<std::string>;
  for (const auto& [given, stages, text] :
       {Row{Counts{3, 3}, 4, "2 stages are given, and the pipeline has 4"},
        Row{Names{"embedding"}, 2, "1 stage is given, and the pipeline has 2"},
        Row{Counts{3, 2}, 2, "the stages have 5 blocks together, and the model has 6"},
        Row{Counts{6, 1}, 2, "the stages have 7 blocks together, and the model has 6"},
        Row{Counts{6, 0}, 2, "stage 1 has 0 blocks; it needs at least 1"},
        Row{Names{"embedding", "blocks.0.mpl"}, 2,
            "no block is called \"blocks.0.mpl\" (did you mean \"blocks.0.mlp\"?); the model has embedding, "
            "blocks.0.attention to blocks.1.mlp and head"},
        Row{Names{"embedding", "tail"}, 2,
            "no block is called \"tail\"; the model has embedding, blocks.0.attention to blocks.1.mlp and head"},
        Row{Names{"blocks.0", "head"}, 2,
            "the first stage begins with \"blocks.0\"; it must begin with the model's first block, \"embedding\""},
        Row{Names{"embedding", "head", "blocks.1"}, 3,
            "stage 2 begins with \"blocks.1\", which is not after \"head\", where stage 1 begins"},
        Row{Names{"embedding", "blocks.1", "blocks.1.attention"}, 3,
            "stage 2 begins with \"blocks.1.attention\", which is not after \"blocks.1\", where stage 1 begins"}})
    CHECK_THROWS_MATCHES(stages_by_hand(given, six, stages), Error, says(text));
}
