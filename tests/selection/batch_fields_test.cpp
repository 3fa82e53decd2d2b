// The fields that a model needs, and those that the data provide.
#include "runner/selection/data_fit.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/models/models.hpp"

using namespace runner;

namespace {

const Recipe& text_recipe() {
  static const Recipe recipe = parse_recipe(R"([data]
format = "text"
train = ["a.txt"]
[model]
name = "gpt"
n_layers = 1
dim = 8
n_heads = 2
max_seq_len = 128
[train]
max_steps = 1
)",
                                            "recipe.toml");
  return recipe;
}

std::vector<Diagnostic> mistakes(const std::vector<BatchField>& needed) {
  ModelSpec model;
  model.family = "gpt";
  model.batch = needed;
  std::vector<Diagnostic> diagnostics;
  check_batch_fields(text_recipe(), model, data_fields(text_recipe().data, 128), diagnostics);
  return diagnostics;
}

}  // namespace

TEST_CASE("text provides what the language models need") {
  for (const auto& name : language_model_names()) {
    Recipe::Model model = text_recipe().model;
    model.name = name;
    CHECK(mistakes(make_spec(model, 20, 128).batch).empty());
  }
}

TEST_CASE("a field that the data lack, or have with another type or shape, is a mistake at data.format") {
  const auto list = mistakes({{.name = "inputs", .row = {128}},
                              {.name = "targets", .row = {64}},
                              {.name = "inputs", .type = ElementType::float32, .row = {128}},
                              {.name = "image", .type = ElementType::uint8, .row = {3, 32, 32}}});
  REQUIRE(list.size() == 1);
  CHECK(list[0].message ==
        "the model gpt needs `targets` (int64 [64]), `inputs` (float32 [128]), `image` (uint8 [3, 32, 32]) for each "
        "sample, and data.format = \"text\" provides `inputs` (int64 [128]), `targets` (int64 [128])");
  CHECK(place_of(list[0].place) == "recipe.toml:2:10");
  CHECK(place_of(list[0].other.value()) == "recipe.toml:5:8");
}

TEST_CASE("the bytes of a row are those of all fields") {
  ModelSpec model;
  model.batch = {{.name = "image", .type = ElementType::uint8, .row = {3, 32, 32}}, {.name = "label"}};
  CHECK(model.batch_row_bytes() == 3 * 32 * 32 + 8);
  CHECK(model.batch_field("label") == 1);
  CHECK_THROWS_AS(model.batch_field("mask"), std::logic_error);
}
