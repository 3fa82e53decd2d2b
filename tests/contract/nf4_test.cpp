// The 4-bit format of frozen weights equals that of bitsandbytes; reference/nf4.json was written by make_nf4_reference.py.
#include <nlohmann/json.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/base/files.hpp"
#include "strategies/contract/nf4.hpp"
#include "strategies/contract/quantized_source.hpp"

using namespace runner;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

/// As in make_nf4_reference.py.
std::vector<float> reference_values(int64_t count, int64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>((i * i * 31 + i * 7919 * seed) % 2003 - 1001) / 1000.0f;
    values.push_back(i >= 128 && i < 192 ? 0.0f : value * (i % 97 == seed ? 3.0f : 0.02f));
  }
  return values;
}

template <typename Bytes>
std::string hex(const Bytes& bytes) {
  std::string text;
  for (uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

struct Quantized {
  std::vector<uint8_t> packed;
  std::vector<float> factors;
  explicit Quantized(const std::vector<float>& values)
      : packed((values.size() + 1) / 2), factors((values.size() + nf4_block - 1) / nf4_block) {
    nf4_quantize(values, packed, factors);
  }
};

}  // namespace

TEST_CASE("NF4 has the codes and factors of bitsandbytes", "[nf4][rank20]") {
  const auto reference = nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/contract/reference/nf4.json"));
  const auto map = reference["map"].get<std::vector<float>>();
  REQUIRE(map.size() == signed_map().size());
  for (size_t i = 0; i < map.size(); ++i) CHECK_THAT(signed_map()[i], WithinRel(map[i], 1e-6f));
  for (const auto& expected : reference["cases"]) {
    const auto values = reference_values(expected["count"], expected["seed"]);
    const Quantized quantized(values);
    CHECK(hex(quantized.packed) == expected["packed"].get<std::string>());
    CHECK(quantized.factors == expected["absmax"].get<std::vector<float>>());
    const Nf4Factors factors(quantized.factors);
    CHECK_THAT(factors.mean, WithinRel(expected["mean"].get<float>(), 1e-6f));
    CHECK(hex(factors.codes) == expected["factor_codes"].get<std::string>());
    for (size_t block = 0; block < factors.codes.size(); ++block)
      CHECK_THAT(factors.of_block(block), WithinAbs(expected["factors"][block].get<double>(), 1e-6));
  }
}

TEST_CASE("a round trip through NF4 gives the nearest level", "[nf4][rank20]") {
  const auto values = reference_values(1000, 2);
  const Quantized quantized(values);
  std::vector<float> back(values.size());
  nf4_dequantize(quantized.packed, quantized.factors, back);
  for (size_t i = 0; i < values.size(); ++i) {
    const double factor = quantized.factors[i / nf4_block];
    double nearest = 2;
    for (float level : nf4_levels)
      if (std::abs(level * factor - values[i]) < std::abs(nearest * factor - values[i])) nearest = level;
    INFO("element " << i << ", value " << values[i]);
    CHECK(std::abs(back[i] - values[i]) <= std::abs(nearest * factor - values[i]) * 1.00001 + 1e-9);
  }
  // The levels themselves are not changed.
  const Quantized again(back);
  CHECK(again.packed == quantized.packed);
}

TEST_CASE("parts of a quantized parameter are those of the whole", "[nf4][rank20]") {
  ModelSpec model;
  const ParameterSpec matrix{.name = "w", .shape = {50, 1003}, .init = {}, .quantized = true};
  const ParameterSpec other_parameter{.name = "n", .shape = {7}, .init = {}};
  model.blocks.push_back({.name = "block", .parameters = {matrix, other_parameter}});
  const auto values = reference_values(50 * 1003, 5);
  const ParameterSource source = [&](size_t slot, int64_t offset, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = slot == 0 ? values[static_cast<size_t>(offset) + i] : 3.0f;
  };
  for (const bool two_levels : {false, true}) {
    model.quantization = {.double_quantization = two_levels};
    const auto dequantized = dequantized_source(model, source);
    std::vector<float> whole(values.size()), part(300), other(3);
    dequantized(0, 0, whole);
    for (int64_t offset : {0, 1, 63, 64, 20'000, 49'850}) {
      dequantized(0, offset, part);
      CHECK(part == std::vector<float>(whole.begin() + offset, whole.begin() + offset + 300));
    }
    dequantized(1, 2, other);
    CHECK(other == std::vector<float>{3, 3, 3});
    Quantized once(values);
    if (two_levels) {
      const Nf4Factors factors(once.factors);
      for (size_t block = 0; block < once.factors.size(); ++block) once.factors[block] = factors.of_block(block);
    }
    std::vector<float> expected(values.size());
    nf4_dequantize(once.packed, once.factors, expected);
    CHECK(whole == expected);
  }
}
