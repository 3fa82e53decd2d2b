// DeepSpeed configurations as data: tests/cases/deepspeed/NAME.json, NAME.toml (recipes that name a configuration), and
// *.expected with the exact recipe or text. RUNNER_UPDATE_CASES=1 rewrites the expected files.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/import/deepspeed_keys.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;

namespace {

const ReaderHelp help{.importer = &deepspeed_importer(), .names = find_argument};
const fs::path cases = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/deepspeed";

/// Keeps paths in the texts relative.
struct InFolder {
  explicit InFolder(const fs::path& folder) : before(fs::current_path()) { fs::current_path(folder); }
  ~InFolder() { fs::current_path(before); }
  fs::path before;
};

std::string outcome(const fs::path& file) {
  try {
    if (file.extension() == ".json") return deepspeed_as_recipe(parse_located_json(read_file(file), file.string()));
    auto recipe = load_recipe(file.string(), {}, {}, help);
    std::string text;
    for (const auto& note : recipe.notes) text += "# " + note + "\n";
    const auto origins = origins_to_json(recipe), values = recipe_to_json(recipe);
    for (const auto& [key, origin] : origins.items())
      if (origin != "default")
        text += fmt::format("{} = {}  # {}\n", key,
                            values[key.substr(0, key.find('.'))][key.substr(key.find('.') + 1)].dump(),
                            origin.get<std::string>());
    return text;
  } catch (const RecipeError& error) {
    return std::string(error.what()) + "\n";
  }
}

void paths(const LocatedJson& node, const std::string& block, std::set<std::string>& found) {
  for (const auto& [name, member] : node.members) {
    auto path = block.empty() ? name : block + "." + name;
    found.insert(path);
    paths(member, path, found);
  }
}

const std::string model = R"([model]
name = "gpt"
n_layers = 2
dim = 64
n_heads = 4
max_seq_len = 32
[data]
format = "text"
train = ["/data/a.txt"]
[train]
max_steps = 1000
)";

Recipe with(const std::string& strategy, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(model + "\n[strategy]\n" + strategy, "recipe.toml", overrides, help);
}

}  // namespace

TEST_CASE("every DeepSpeed configuration gives its expected recipe or text") {
  InFolder here(cases);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(".")) {
    auto name = entry.path().filename();
    if (name.extension() != ".json" && name.extension() != ".toml") continue;
    ++count;
    INFO(name.string());
    auto said = outcome(name);
    auto expected = name.string() + ".expected";
    if (std::getenv("RUNNER_UPDATE_CASES")) write_file_atomic(expected, said);
    CHECK(said == read_file(expected));
  }
  CHECK(count >= 60);
}

TEST_CASE("every key of the table of DeepSpeed keys occurs in a tested configuration") {
  std::set<std::string> used;
  for (const auto& entry : fs::directory_iterator(cases)) {
    if (entry.path().extension() != ".json" || entry.path().stem().string().starts_with("syntax_")) continue;
    paths(parse_located_json(read_file(entry.path()), entry.path().filename().string()), "", used);
  }
  for (const auto& key : deepspeed_keys()) {
    INFO(key.path);
    CHECK(used.contains(key.path));
  }
}

TEST_CASE("the table of DeepSpeed keys is consistent") {
  std::set<std::string> seen;
  for (const auto& key : deepspeed_keys()) {
    INFO(key.path);
    CHECK(seen.insert(key.path).second);
    CHECK((key.parent().empty() || find_deepspeed_key(key.parent())));
    CHECK((key.old_name_of.empty() || find_deepspeed_key(key.old_name_of)));
    using F = DeepSpeedKey::Fate;
    CHECK((key.fate == F::checked || key.fate == F::ignored || key.fate == F::refused) == !key.note.empty());
    auto dot = key.target.find('.');
    if (key.fate == F::recipe) CHECK(find_key(key.target.substr(0, dot), key.target.substr(dot + 1)));
  }
}

TEST_CASE("a recipe with a configuration equals the recipe written by hand") {
  InFolder here(cases);
  auto by_hand = parse_recipe(model + R"(
global_batch_size = 8
micro_batch_size = 4
print_every_n_steps = 2000
gradient_clip_val = 1.0
[precision]
mode = "bf16-mixed"
[optimizer]
name = "adamw"
lr = 0.001
betas = [0.8, 0.999]
eps = 1e-8
weight_decay = 3e-7
[strategy]
name = "deepspeed"
gradient_accumulation_steps = 1
prescale_gradients = false
stage = 2
contiguous_gradients = true
overlap_comm = true
reduce_scatter = true
reduce_bucket_size = 500_000_000
allgather_partitions = true
allgather_bucket_size = 500_000_000
)",
                              "recipe.toml");
  auto recipe = with("name = \"deepspeed\"\nconfig = \"stage2_documented.json\"");
  CHECK(recipe_to_json(recipe) == recipe_to_json(by_hand));
  // The printed recipe no longer needs the configuration.
  CHECK(recipe_to_json(parse_recipe(print_recipe(recipe), "recipe.toml")) == recipe_to_json(recipe));
}

TEST_CASE("a configuration is overridden by --set") {
  InFolder here(cases);
  auto recipe = with("name = \"deepspeed\"\nconfig = \"stage2_documented.json\"",
                     {"train.gradient_clip_val=0.1", "strategy.stage=3", "precision=32"});
  CHECK(recipe.train.gradient_clip_val == 0.1);
  CHECK(recipe.strategy.options["stage"] == 3);
  CHECK(recipe.precision.mode == "32-true");
  CHECK(recipe.origin("train.gradient_clip_val").kind == Origin::Kind::set);
  CHECK(recipe.origin("optimizer.lr").file == "stage2_documented.json");

  // A configuration that --set adds overrides the file, with a note. It must not contradict the same command line.
  const std::string own = "name = \"ddp\"\n[optimizer]\nlr = 5.0\nbetas = [0.8, 0.999]\n";
  recipe = with(own, {"strategy.config=stage2_documented.json", "strategy=zero"});
  CHECK(recipe.optimizer.lr == 0.001);
  CHECK(recipe.strategy.options["stage"] == 2);
  CAPTURE(recipe.notes);
  CHECK(std::count(recipe.notes.begin(), recipe.notes.end(),
                   "the configuration (--set strategy.config=stage2_documented.json) replaces values of the recipe: "
                   "optimizer.lr = 0.001 instead of 5.0 (recipe.toml:16:6)") == 1);
  for (const char* contradiction : {"train.gradient_clip_val=0.1", "optimizer.lr=5.0", "strategy.stage=3"})
    CHECK_THROWS_AS(with(own, {contradiction, "strategy=zero", "strategy.config=stage2_documented.json"}), RecipeError);
  CHECK(with("name = \"zero\"", {"strategy.config.zero_optimization.stage=2", "strategy.config.gradient_clipping=0.5",
                                 "strategy.config.zero_optimization.overlap_comm=true"})
            .strategy.options == nlohmann::json{{"stage", 2}, {"overlap_comm", true}});

  // Another strategy drops the options of the configuration, like those of a recipe.
  recipe = with("name = \"deepspeed\"\nconfig = \"stage2_documented.json\"", {"strategy=ddp"});
  CHECK(recipe.strategy.options.empty());
  CHECK(recipe.train.global_batch_size == 8);
}

TEST_CASE("a configuration replaces the one below it") {
  InFolder here(cases);
  const std::string table =
      "name = \"zero\"\n[strategy.config]\ngradient_clipping = 0.5\n[strategy.config.fp16]\nenabled = true\n"
      "[strategy.config.zero_optimization]\nstage = 3\noffload_param = { device = \"cpu\" }\n";
  const std::string other = "strategy.config={zero_optimization={stage=1}}";
  auto alone = with("name = \"zero\"", {other});
  CHECK(alone.strategy.options == nlohmann::json{{"stage", 1}});
  CHECK(alone.precision.mode == "32-true");

  auto recipe = with(table);
  CHECK(recipe.train.gradient_clip_val == 0.5);
  CHECK(recipe.precision.mode == "16-mixed");
  recipe = with(table, {other});
  CHECK(recipe_to_json(recipe) == recipe_to_json(alone));
  // The same if the replaced one came from --set.
  recipe = with(table, {"strategy.config={gradient_clipping=0.1, zero_optimization={stage=2}}", other});
  CHECK(recipe_to_json(recipe) == recipe_to_json(alone));
  // The same if the new one leaves every value open.
  recipe = with(table,
                {"strategy.config={fp16={enabled=\"auto\"}, zero_optimization={stage=\"auto\"}}", "strategy.stage=2"});
  CHECK(recipe.precision.mode == "auto");
  CHECK_FALSE(recipe.train.gradient_clip_val);
  CHECK(recipe.strategy.options == nlohmann::json{{"stage", 2}});
  // Values of the recipe itself stay.
  recipe = with(table + "[optimizer]\nlr = 5.0\n", {other});
  CHECK(recipe.optimizer.lr == 5.0);
  // Values below the replaced configuration apply again.
  const std::string extending =
      "extends = \"recipe_extends.toml\"\n[strategy]\nconfig = { gradient_clipping = 0.5, zero_optimization = { stage "
      "= "
      "2 } }\n";
  CHECK(parse_recipe(extending, "recipe.toml", {}, help).train.gradient_clip_val == 0.5);
  recipe = parse_recipe(extending, "recipe.toml", {other}, help);
  CHECK(recipe.train.gradient_clip_val == 0.25);
  CHECK_FALSE(recipe.train.global_batch_size);
}

TEST_CASE("a higher layer unsets a value of a configuration, or the configuration") {
  InFolder here(cases);
  const std::string strategy = "name = \"zero\"\nconfig = \"stage2_documented.json\"";
  auto recipe = with(strategy, {"unset=train.gradient_clip_val"});
  CHECK_FALSE(recipe.train.gradient_clip_val);
  CHECK(recipe.optimizer.lr == 0.001);
  CHECK(std::ranges::none_of(recipe.notes, [](const auto& note) { return note.starts_with("unset "); }));
  recipe = with(strategy + "\n[optimizer]\nlr = 0.001\n", {"unset=strategy.config"});
  CHECK(recipe.strategy.options.empty());
  CHECK_FALSE(recipe.train.gradient_clip_val);
  CHECK(recipe.optimizer.lr == 0.001);
}

TEST_CASE("what an unset key decides, and what a configuration hides, is judged by the default that remains") {
  const std::string config = "name = \"deepspeed\"\nconfig = { zero_optimization = { stage = 2 } }\n";
  const std::string optimizer = "[optimizer]\nname = \"adamw\"\nbetas = [0.8, 0.85]\n";
  CHECK(with(config + optimizer, {unset_override("optimizer.name")}).optimizer.betas == std::vector<double>{0.8, 0.85});
  CHECK(with(config + optimizer, {"optimizer.name=\"AdamW\""}).optimizer.betas == std::vector<double>{0.8, 0.85});
  TemporaryFolder place;
  write_file_atomic(place.path / "base.toml", model + optimizer);
  write_file_atomic(
      place.path / "sgd.toml",
      "extends = \"base.toml\"\nstrategy = { name = \"deepspeed\", config = { zero_optimization = { stage = 2 }, "
      "optimizer = { type = \"SGD\", params = { lr = 0.2 } } } }\n");
  write_file_atomic(
      place.path / "upper.toml",
      "extends = \"sgd.toml\"\nunset = \"optimizer\"\nstrategy.config = { zero_optimization = { stage = 2 } }\n");
  CHECK(load_recipe((place.path / "upper.toml").string(), {}, {}, help).optimizer.betas == Recipe().optimizer.betas);
}

TEST_CASE("a configuration replaces one below it also under another name of the strategy") {
  TemporaryFolder place;
  write_file_atomic(place.path / "base.toml", model +
                                                  "[strategy]\nname = \"deepspeed\"\nconfig = { gradient_clipping = 1, "
                                                  "zero_optimization = { stage = 2 } }\n");
  for (std::string name : {"deepspeed", "zero"}) {
    write_file_atomic(place.path / "child.toml", "extends = \"base.toml\"\n[strategy]\nname = \"" + name +
                                                     "\"\nconfig = { zero_optimization = { stage = 3 } }\n");
    const auto recipe = load_recipe((place.path / "child.toml").string(), {}, {}, help);
    CHECK_FALSE(recipe.train.gradient_clip_val);
    CHECK(recipe.strategy.options["stage"] == 3);
  }
}

TEST_CASE("another spelling of a choice means the same for the keys that depend on it") {
  const auto options = [](const std::string& device) {
    return with(
               "name = \"deepspeed\"\nconfig = { aio = { block_size = 8192 }, zero_optimization = { stage = 3, "
               "offload_optimizer = { device = \"" +
               device + "\", nvme_path = \"/tmp\", pin_memory = true } } }\n")
        .strategy.options;
  };
  CHECK(options("NVMe") == options("nvme"));
  CHECK(options("NVMe")["block_size"] == 8192);
  CHECK(options("None") == options("none"));
  CHECK(with("name = \"deepspeed\"\nconfig = { zero_optimization = { stage = 1 }, optimizer = { type = \"AdamW\", "
             "params = { lr = 0.1 } } }\n"
             "[optimizer]\nname = \"AdamW\"\n")
            .optimizer.name == "adamw");
}

TEST_CASE("one of the three batch sizes is derived after --set") {
  InFolder here(cases);
  const std::string strategy = "name = \"zero\"\nconfig = \"batch_complete.json\"";
  auto recipe = with(strategy);
  CHECK(recipe.train.global_batch_size == 64);
  CHECK(recipe.train.micro_batch_size == 4);
  CHECK(recipe.strategy.options["gradient_accumulation_steps"] == 8);

  recipe = with(strategy, {"train.global_batch_size=128"});
  CHECK(recipe.train.micro_batch_size == 4);
  CHECK_FALSE(recipe.strategy.options.contains("gradient_accumulation_steps"));

  recipe = with(strategy, {"train.accumulate_grad_batches=2"});
  CHECK_FALSE(recipe.train.global_batch_size);
  CHECK_FALSE(recipe.strategy.options.contains("gradient_accumulation_steps"));

  recipe = with("name = \"zero\"\nconfig = \"batch_micro_only.json\"", {"train.global_batch_size=128"});
  CHECK_FALSE(recipe.train.accumulate_grad_batches);
}

TEST_CASE("a configuration in a recipe may be a table") {
  auto recipe = with(
      "name = \"zero\"\n[strategy.config]\ntrain_batch_size = 8\n[strategy.config.zero_optimization]\n"
      "stage = 3\nstage3_param_persistence_threshold = \"auto\"\n");
  CHECK(recipe.strategy.options["stage"] == 3);
  CHECK(recipe.strategy.options["stage3_param_persistence_threshold"] == 640);
  CHECK(recipe.origin("train.global_batch_size").line == 16);
  CHECK_FALSE(recipe.strategy.options.contains("config"));

  recipe = with(
      "name = \"zero\"\nconfig = { zero_optimization = { stage = 3, offload_param = { device = \"nvme\", "
      "nvme_path = \"${env:RUNNER_NOT_SET:-/scratch}\" } } }");
  CHECK(recipe.strategy.options["nvme_path"] == "/scratch");
}

TEST_CASE("a recipe written as a configuration and read again is the same recipe") {
  InFolder here(cases);
  for (const char* file :
       {"stage1.json", "batch_complete.json", "stage2_documented.json", "stage3_huggingface_auto.json",
        "fp16_loss_scale.json", "batch_micro_only.json", "optimizer_adam_l2.json", "optimizer_sgd.json",
        "schedule_warmup.json", "schedule_decay.json", "schedule_cosine.json", "bf16_skips_overflow.json",
        "offload_cpu.json", "offload_nvme.json", "offload_none.json", "old_names.json"}) {
    INFO(file);
    auto recipe = with(fmt::format("name = \"zero\"\nconfig = \"{}\"", file));
    auto text = recipe_as_deepspeed(recipe, recipe.strategy.options);
    INFO(text);
    auto again = read_deepspeed(parse_located_json(text, "again.json"), [](const std::string&) { return false; });
    CHECK(again.diagnostics.empty());
    auto back = recipe_to_json(recipe);
    std::set<std::string> said;
    for (const auto& value : again.values) {
      INFO(value.key);
      auto dot = value.key.find('.');
      said.insert(value.key);
      CHECK(value.value == back[value.key.substr(0, dot)].value(value.key.substr(dot + 1), nlohmann::json()));
    }
    for (const auto& [name, value] : recipe.strategy.options.items()) {
      INFO(name);
      CHECK(said.contains("strategy." + name));
    }
  }
}

TEST_CASE("a setting without a DeepSpeed counterpart is reported") {
  auto refused = [](const std::string& set) {
    auto recipe = with("name = \"zero\"\nstage = 2", {set});
    try {
      recipe_as_deepspeed(recipe, recipe.strategy.options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const std::string no_word = "DeepSpeed's configuration cannot express ";
  CHECK(refused("precision=bf16-true") == no_word + "precision.mode = \"bf16-true\"");
  CHECK(refused("lr_scheduler.name=wsd") == no_word + "the schedule \"wsd\"");
  CHECK(refused("lr_scheduler={name=\"linear\", min_lr_ratio=0.1}") ==
        no_word + "a linear schedule that does not end at 0 (min_lr_ratio)");
  CHECK(refused("train={gradient_clip_val=1.0, gradient_clip_algorithm=\"value\"}") == no_word + "clipping by value");
  CHECK(refused("optimizer={weight_decay=0.1, decay_norms_and_biases=true}") ==
        no_word + "weight decay of norms and biases (optimizer.decay_norms_and_biases)");
  CHECK(refused("train.accumulate_grad_batches={0=2, 3=4}") == no_word + "an accumulation that changes with the epoch");
}
