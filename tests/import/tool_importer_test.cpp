// Configurations of other training tools as data: tests/cases/imports/FILE, and FILE.expected with the exact recipe or text.
// RUNNER_UPDATE_CASES=1 rewrites the expected files.
#include "runner/import/tool_importer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/tool_names.hpp"
#include "runner/selection/strategy_options.hpp"

using namespace runner;

namespace {

const fs::path imports = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/imports";

std::string recipe_for(const std::string& file) {
  try {
    const auto configuration = read_configuration(file);
    const auto tool = tool_of(configuration);
    const RecipeCheck check = [](const Recipe& recipe, auto& mistakes) { resolve_strategy(recipe, mistakes); };
    return tool.empty() ? "no tool\n" : "# " + tool + "\n" + tool_as_recipe(tool, configuration, check);
  } catch (const RecipeError& error) {
    return std::string(error.what()) + "\n";
  }
}

std::string yaml_error(const std::string& text) {
  try {
    return parse_located_yaml(text, "a.yml").plain().dump();
  } catch (const RecipeError& error) {
    return error.diagnostics().at(0).message;
  }
}

}  // namespace

TEST_CASE("every configuration of a tool gives its expected recipe or text") {
  const auto before = fs::current_path();
  fs::current_path(imports);  // keeps paths in the texts relative
  int count = 0;
  for (const auto& entry : fs::directory_iterator(".")) {
    const auto name = entry.path().filename().string();
    if (name.ends_with(".expected")) continue;
    ++count;
    INFO(name);
    const auto said = recipe_for(name);
    if (std::getenv("RUNNER_UPDATE_CASES")) write_file_atomic(name + ".expected", said);
    CHECK(said == read_file(name + ".expected"));
  }
  fs::current_path(before);
  CHECK(count >= 10);
}

TEST_CASE("each row of the names of other tools means a key of recipes, or says why not") {
  for (const auto& tool : tool_names())
    for (const auto& [name, row] : tool.names) {
      INFO(tool.tool << ": " << name);
      const std::string& key = row.name.key;
      CHECK((key.empty() || key.starts_with("strategy.") || find_key(key)));
      CHECK((!key.empty() || !row.name.note.empty() || !row.name.refusal.empty()));
      CHECK((find_tool_name(name) != nullptr) != row.file_only);
    }
}

TEST_CASE("plain words of YAML are read as other tools read them") {
  CHECK(yaml_error("a: 1e-4\nb: yes\nc: 'yes'\nd: ~\ne:\nf: 0x1\ng: .5\nh: nan\ni: -3\nj: +2\nk: 1.0\n") ==
        R"({"a":0.0001,"b":true,"c":"yes","d":null,"e":null,"f":"0x1","g":0.5,"h":"nan","i":-3,"j":2,"k":1.0})");
  CHECK(yaml_error("base: &b {x: 1, y: 2}\nown:\n  <<: *b\n  y: 3\n") ==
        R"({"base":{"x":1,"y":2},"own":{"x":1,"y":3}})");
}

TEST_CASE("a long value that switches many names off is not repeated in full") {
  std::string text = "[checkpoint]\nenable = [" + std::string(40'000, ' ');
  for (int i = 0; i < 5000; ++i) text += "1,";
  text += "]\ninterval = 5\n";
  for (int i = 0; i < 5000; ++i) text += "name" + std::to_string(i) + " = 1\n";
  CHECK(tool_as_recipe("torchtitan", parse_located_toml(text, "a.toml")).size() < 2'000'000);
}

TEST_CASE("hostile YAML ends with an error") {
  const std::string deep = "a: " + std::string(5000, '[') + std::string(5000, ']');
  CHECK(yaml_error(deep) == "more than 100 levels");
  std::string wide = "a: [";
  for (int i = 0; i < 30'000; ++i) wide += "1,";
  CHECK(yaml_error(wide + "]") ==
        "a configuration has at most 20000 values, with those of anchors and the copies of aliases");
  CHECK(yaml_error("a: *b\n") == "there is no anchor &b before this alias");
  CHECK(yaml_error("? [a, b]\n: 1\n") == "a key is a word");
  CHECK(yaml_error("a: 1\n---\nb: 2\n") == "a file contains one document; nothing may follow it");
  CHECK_THAT(yaml_error("a: \"\xff\"\n"), Catch::Matchers::StartsWith("this is not YAML: "));
}
