// Computed recipes as data: tests/cases/lua/recipes/NAME.lua (or a .toml that extends one) and NAME.expected: the
// diagnostics, or the recipe with the origin of every value. RUNNER_UPDATE_CASES=1 rewrites them.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/key_places.hpp"

using namespace runner;

namespace {

/// Values with an origin, without defaults.
std::string read(const std::string& file) {
  try {
    auto recipe = load_recipe(file, {}, {}, {lua::evaluate_recipe});
    std::string text;
    for (const auto& line : split(print_recipe(recipe, PrintOrigins::yes), '\n'))
      if (!line.ends_with("# default") && line.find(" = ") != std::string::npos) text += line + "\n";
    return text;
  } catch (const RecipeError& error) {
    return std::string(error.what()) + "\n";
  }
}

}  // namespace

TEST_CASE("every computed recipe has the expected values and origins") {
  auto folder = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/lua/recipes";
  auto before = fs::current_path();
  fs::current_path(folder);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(".")) {
    auto name = entry.path().filename();
    if (name.extension() == ".expected" || name.stem() == "base") continue;
    ++count;
    INFO(name.string());
    auto said = read(name.string());
    for (size_t at; (at = said.find(folder.string() + "/")) != std::string::npos;)
      said.erase(at, folder.string().size() + 1);
    auto expected = fs::path(name).replace_extension(".expected");
    if (std::getenv("RUNNER_UPDATE_CASES")) write_file_atomic(expected, said);
    CHECK(said == read_file(expected));
  }
  fs::current_path(before);
  CHECK(count >= 13);
}

TEST_CASE("a computed recipe printed as TOML is the same recipe") {
  auto file = std::string(RUNNER_SOURCE_DIR) + "/tests/cases/lua/recipes/computed.lua";
  auto recipe = load_recipe(file, {}, {}, {lua::evaluate_recipe});
  CHECK(recipe_to_json(parse_recipe(print_recipe(recipe), "printed.toml")) == recipe_to_json(recipe));
}

TEST_CASE("without an evaluator a recipe in Lua is rejected") {
  auto file = std::string(RUNNER_SOURCE_DIR) + "/tests/cases/lua/recipes/computed.lua";
  CHECK_THROWS_AS(load_recipe(file), RecipeError);
}
