// Tokens are drawn by the rules of transformers (generation/logits_process.py), in their order.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>

#include "runner/inference/sampling.hpp"

using namespace runner;

namespace {

/// The tokens that can be drawn, and their shares in 20,000 draws.
std::map<int32_t, double> shares(const SamplingRules& rules, const std::vector<float>& logits,
                                 const std::vector<int32_t>& seen = {}) {
  Sampler sampler(rules);
  std::map<int32_t, double> counts;
  constexpr int draws = 20'000;
  for (int i = 0; i < draws; ++i) {
    auto copy = logits;
    counts[sampler.draw(copy, seen, uniform_draw(5, 0, static_cast<uint64_t>(i)))] += 1.0 / draws;
  }
  return counts;
}

std::vector<int32_t> tokens(const std::map<int32_t, double>& shares) {
  std::vector<int32_t> list;
  for (const auto& [token, share] : shares) list.push_back(token);
  return list;
}

const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.05f), std::log(0.25f), std::log(0.2f)};

}  // namespace

TEST_CASE("without a temperature, the greatest logit is drawn, and the first of equal ones") {
  CHECK(tokens(shares({.temperature = 0}, logits)) == std::vector<int32_t>{1});
  CHECK(tokens(shares({.temperature = 0}, {1, 3, 3, 2})) == std::vector<int32_t>{1});
}

TEST_CASE("temperature divides logits") {
  const auto plain = shares({.temperature = 1}, logits);
  CHECK(std::abs(plain.at(1) - 0.4) < 0.015);
  CHECK(std::abs(plain.at(2) - 0.05) < 0.01);
  const auto cold = shares({.temperature = 0.5}, logits);  // squares of the probabilities
  CHECK(std::abs(cold.at(1) - 0.16 / (0.01 + 0.16 + 0.0025 + 0.0625 + 0.04)) < 0.015);
}

TEST_CASE("top_k, top_p and min_p keep the tokens that transformers keeps") {
  CHECK(tokens(shares({.temperature = 1, .top_k = 2}, logits)) == std::vector<int32_t>{1, 3});
  CHECK(tokens(shares({.temperature = 1, .top_k = 9}, logits)).size() == 5);
  CHECK(tokens(shares({.temperature = 1, .top_p = 0.6}, logits)) == std::vector<int32_t>{1, 3});  // 0.65 reach it
  CHECK(tokens(shares({.temperature = 1, .top_p = 0.7}, logits)) == std::vector<int32_t>{1, 3, 4});
  CHECK(tokens(shares({.temperature = 1, .top_p = 0.01}, logits)) == std::vector<int32_t>{1});
  CHECK(tokens(shares({.temperature = 1, .min_p = 0.45}, logits)) == std::vector<int32_t>{1, 3, 4});
  // Of 0.4, 0.25 and 0.2, the first two are 76 %.
  CHECK(tokens(shares({.temperature = 1, .top_k = 3, .top_p = 0.75}, logits)) == std::vector<int32_t>{1, 3});
}

TEST_CASE("the repetition penalty divides positive logits of seen tokens, and multiplies negative ones, once") {
  CHECK(tokens(shares({.temperature = 0, .repetition_penalty = 2}, {3, 2, 1}, {0, 0, 0})) == std::vector<int32_t>{1});
  CHECK(tokens(shares({.temperature = 0, .repetition_penalty = 1.4}, {3, 2, 1}, {0, 0})) == std::vector<int32_t>{0});
  CHECK(tokens(shares({.temperature = 0, .repetition_penalty = 2}, {-3, -2, -5}, {1})) == std::vector<int32_t>{0});
}

TEST_CASE("what is drawn depends on seed, sample and place only") {
  CHECK(uniform_draw(1, 2, 3) == uniform_draw(1, 2, 3));
  CHECK(uniform_draw(1, 2, 3) != uniform_draw(1, 2, 4));
  CHECK(uniform_draw(1, 2, 3) != uniform_draw(1, 3, 3));
  CHECK(uniform_draw(1, 2, 3) != uniform_draw(2, 2, 3));
}
