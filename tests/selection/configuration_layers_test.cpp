// Configurations of DeepSpeed in recipes of several files: what an unset key, another strategy or a program above them changes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/text.hpp"
#include "tests/selection/recipe_place.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string plain_tables =
    "[model]\nname = \"gpt\"\nn_layers = 2\ndim = 64\nn_heads = 4\nmax_seq_len = 32\n"
    "[data]\nformat = \"text\"\ntrain = [\"text.txt\"]\n[train]\nmax_steps = 10\n";

/// A folder of recipes: plain.toml has no strategy.
struct LayeredPlace {
  TemporaryFolder folder;
  LayeredPlace() { write("plain.toml", plain_tables); }

  void write(const std::string& name, const std::string& text) const { write_file_atomic(folder.path / name, text); }
  Recipe load(const std::string& name, const std::vector<std::string>& overrides = {}) const {
    return load_whole_recipe((folder.path / name).string(), overrides);
  }
};

const std::string all_three =
    "extends = \"plain.toml\"\n[strategy]\nname = \"zero\"\n[strategy.config]\ntrain_batch_size = 64\n"
    "train_micro_batch_size_per_gpu = 4\ngradient_accumulation_steps = 8\nzero_optimization = { stage = 2 }\n";

}  // namespace

TEST_CASE("each of the three batch sizes of a configuration may be unset") {
  LayeredPlace place;
  place.write("recipe.toml", all_three);
  struct Row {
    std::string unset;
    int64_t micro, steps;  ///< on two ranks
  };
  for (const auto& row : {Row{"train.global_batch_size", 4, 8}, Row{"train.micro_batch_size", 4, 8},
                          Row{"strategy.gradient_accumulation_steps", 4, 8}, Row{"train", 8, 1},
                          Row{"[\"train.global_batch_size\", \"strategy.gradient_accumulation_steps\"]", 4, 1},
                          Row{"[\"strategy.gradient_accumulation_steps\", \"train.global_batch_size\"]", 4, 1},
                          Row{"[\"train.global_batch_size\", \"train.accumulate_grad_batches\"]", 4, 1},
                          Row{"[\"train.accumulate_grad_batches\", \"train.global_batch_size\"]", 4, 1},
                          Row{"[\"train.global_batch_size\", \"train.micro_batch_size\"]", 8, 8}}) {
    INFO(row.unset);
    auto recipe =
        place.load("recipe.toml", row.unset == "train" ? std::vector<std::string>{"unset=train", "train.max_steps=3"}
                                                       : std::vector<std::string>{"unset=" + row.unset});
    const auto plan = make_plan(recipe, cpus(2), 256);
    const auto& train = plan.recipe.train;
    CHECK(train.micro_batch_size == row.micro);
    CHECK(plan.job.accumulation == row.steps);
  }
  // A layer that sets the global batch again makes it a factor again.
  const auto plan = make_plan(place.load("recipe.toml", {"unset=train.micro_batch_size", "train.global_batch_size=16"}),
                              cpus(2), 256);
  CHECK(plan.recipe.train.global_batch_size == 16);
}

TEST_CASE("an unset key removes the value of its own configuration, and leaves that of another base") {
  LayeredPlace place;
  place.write("common.toml", plain_tables + "[optimizer]\nname = \"adamw\"\nlr = 0.5\nbetas = [0.8, 0.85]\n");
  place.write("config.toml",
              "[strategy]\nname = \"zero\"\nconfig = { gradient_clipping = 0.5, zero_optimization = { stage = 2 }, "
              "optimizer = { type = \"SGD\", params = { lr = 0.25, momentum = 0.9 } } }\n");
  for (std::string keys : {"[\"optimizer.lr\", \"optimizer.name\"]", "\"optimizer\""}) {
    INFO(keys);
    place.write("child.toml", "extends = \"config.toml\"\nunset = " + keys + "\n");
    place.write("recipe.toml", "extends = [\"common.toml\", \"child.toml\"]\n");
    const auto recipe = place.load("recipe.toml");
    CHECK(recipe.optimizer.lr == 0.5);
    CHECK(recipe.optimizer.name == "adamw");
    CHECK(recipe.optimizer.betas == std::vector<double>{0.8, 0.85});
    CHECK(recipe.train.gradient_clip_val == 0.5);
    CHECK(recipe.notes.empty());
  }
  // A layer above both removes both.
  place.write("both.toml", "extends = [\"common.toml\", \"config.toml\"]\nunset = \"optimizer\"\n");
  CHECK(place.load("both.toml").optimizer.lr == Recipe().optimizer.lr);
  // A higher layer sets the key again.
  CHECK(place.load("recipe.toml", {"optimizer.lr=0.125"}).optimizer.lr == 0.125);
}

TEST_CASE("an option `config` of another strategy leaves what a configuration below it set outside [strategy]") {
  LayeredPlace place;
  place.write("base.toml", all_three);
  place.write("mine.lua", "return strategy {options = {k = {type = \"integer\", default = 0}}, program = {}}");
  for (std::string child : {"", "config = { k = 1 }\n"}) {
    INFO(child);
    place.write("child.toml", "extends = \"base.toml\"\n[strategy]\nname = \"lua:mine.lua\"\n" + child);
    const auto recipe = load_recipe((place.folder.path / "child.toml").string(), {}, {}, reader_help());
    CHECK(recipe.train.global_batch_size == 64);
    CHECK(recipe.train.micro_batch_size == 4);
    CHECK(recipe.strategy.options.contains("config") == !child.empty());
  }
}

TEST_CASE("if a program fails because a configuration of its base has a mistake, that mistake is reported first") {
  LayeredPlace place;
  place.write("ds_real.json", "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": 2}}");
  const auto base = [&](const std::string& file) {
    place.write("base.toml", "extends = \"plain.toml\"\n[strategy]\nname = \"zero\"\nconfig = \"" + file + "\"\n");
  };
  place.write("recipe.lua",
              "local b = extend(\"base.toml\")\nreturn {train = {max_steps = 10 * b.train.global_batch_size}}\n");
  base("ds_real.json");
  CHECK(place.load("recipe.lua").train.max_steps == 640);
  base("ds_rael.json");
  try {
    place.load("recipe.lua");
    FAIL("accepted");
  } catch (const RecipeError& error) {
    REQUIRE(error.diagnostics().size() == 2);
    CHECK(error.diagnostics()[0].code == "missing-file");
    CHECK(error.diagnostics()[0].suggestion == "ds_real.json");
    CHECK_THAT(error.diagnostics()[1].message, ContainsSubstring("nil"));
  }
}
