// Runs of the tiny recipe on meshes, compared with those of one rank.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/command.hpp"
#include "tests/support/every_nth.hpp"

namespace runner::testing {

/// The losses of a run of the tiny recipe without dropout. `said`: part of what it prints.
inline std::vector<double> train(const std::vector<std::string>& overrides, const std::string& said = "") {
  Workplace place;
  write_tiny_recipe(place);
  std::vector<std::string> arguments = {"run", "tiny.toml", "--json", "--set", "model.dropout=0"};
  for (const auto& text : overrides) arguments.insert(arguments.end(), {"--set", text});
  const auto result = place.run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("status") == "finished");
  CHECK_THAT(result.err, Catch::Matchers::ContainsSubstring(said));
  return losses(place);
}

inline void check_equal(const std::vector<double>& curve, const std::vector<double>& expected) {
  REQUIRE(curve.size() == expected.size());
  for (size_t i = 0; i < curve.size(); ++i) CHECK_THAT(curve[i], Catch::Matchers::WithinRel(expected[i], 1e-5));
}

/// A run that has the curve of one rank: its settings, and part of what it prints.
struct EqualRun {
  std::vector<std::string> overrides;
  std::string said = "";
};

/// The quick tests train every other one.
inline void check_equal_runs(const std::vector<double>& single, const std::vector<EqualRun>& rows) {
  EveryNth chosen(2);
  for (const auto& [overrides, said] : rows)
    if (chosen()) check_equal(train(overrides, said), single);
}

}  // namespace runner::testing
