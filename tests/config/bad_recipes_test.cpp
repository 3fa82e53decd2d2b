// Wrong recipes as data: tests/cases/recipes/bad/NAME.toml, and NAME.expected with its exact diagnostics.
// RUNNER_UPDATE_CASES=1 rewrites the expected texts; read the diff before committing it.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>

#include "runner/base/files.hpp"
#include "runner/selection/strategy_options.hpp"

using namespace runner;

namespace {

std::string said_about(const std::string& file) {
  try {
    load_recipe(file, {}, {}, {.names = find_argument});
  } catch (const RecipeError& error) {
    return std::string(error.what()) + "\n";
  }
  return "nothing\n";
}

}  // namespace

TEST_CASE("every wrong recipe gives exactly its expected diagnostics") {
  auto folder = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/recipes/bad";
  auto before = fs::current_path();
  fs::current_path(folder);  // keeps paths in the texts relative
  int count = 0;
  for (const auto& entry : fs::directory_iterator(".")) {
    auto name = entry.path().filename();
    if (name.extension() != ".toml" || name.stem().string().starts_with("base_")) continue;
    ++count;
    INFO(name.string());
    auto said = said_about(name.string());
    auto expected = fs::path(name).replace_extension(".expected");
    if (std::getenv("RUNNER_UPDATE_CASES")) write_file_atomic(expected, said);
    CHECK(said != "nothing\n");
    CHECK(said == read_file(expected));
  }
  fs::current_path(before);
  CHECK(count >= 60);
}
