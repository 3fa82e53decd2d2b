// The examples in recipes/hooks/README.md: `runner lua check` accepts each, and each trains two steps on two ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The Lua blocks of the page, by the number of their heading.
std::map<int, std::string> examples() {
  std::map<int, std::string> blocks;
  std::istringstream page(slurp(fs::path(RUNNER_SOURCE_DIR) / "recipes/hooks/README.md"));
  std::string line;
  int heading = 0;
  bool inside = false;
  while (std::getline(page, line)) {
    if (line.starts_with("## ")) heading = std::atoi(line.c_str() + 3);
    if (inside && line == "```") inside = false;
    if (inside) blocks[heading] += line + "\n";
    if (line == "```lua") {
      CHECK(heading > 0);
      CHECK_FALSE(blocks.contains(heading));
      inside = true;
    }
  }
  return blocks;
}

}  // namespace

TEST_CASE("the page about hooks names every shipped hook") {
  auto folder = fs::path(RUNNER_SOURCE_DIR) / "recipes/hooks";
  auto page = slurp(folder / "README.md");
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".lua")
      CHECK_THAT(page, ContainsSubstring("| `" + entry.path().stem().string() + "` |"));
}

TEST_CASE("every example in the page about hooks is checked, and trains", "[e2e]") {
  auto blocks = examples();
  REQUIRE(blocks.size() == 10);
  int number = GENERATE(range(1, 11));
  std::string strategy = number % 2 == 0 ? "ddp" : "fsdp";
  INFO("example " << number << " under " << strategy);
  Workplace place;
  write_tiny_recipe(place, "val_check_interval = 1\n[hooks]\nfiles = [\"example.lua\"]\n");
  place.write("example.lua", blocks[number]);
  auto checked = place.run({"lua", "check", "example.lua"});
  INFO(checked.err);
  CHECK(checked.code == 0);
  auto result = place.run({"run", "tiny.toml", "--json", "--set", "strategy=" + strategy, "--set", "train.max_steps=2",
                           "--set", "run.name=\"page\""});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("steps") == 2);
  const std::map<int, std::string> metrics = {
      {1, "perplexity"}, {2, "perplexity"}, {3, "best_val_loss"}, {7, "distance_from_start"}};
  if (auto metric = metrics.find(number); metric != metrics.end())
    CHECK(place.points(metric->second).back().at(0) == 2);
  if (number == 10) {
    auto text = slurp(fs::path(result.json().at("run_dir").get<std::string>()) / "artifacts/samples.txt");
    CHECK(text.starts_with("1: line"));
    CHECK_THAT(text, ContainsSubstring("\n2: line"));
  }
}
