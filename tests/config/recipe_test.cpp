// Correct recipes: their values, printing them back, and the agreement of schema and key table.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/files.hpp"
#include "runner/config/config.hpp"
#include "runner/config/contradictions.hpp"
#include "runner/config/group_optimizer.hpp"
#include "runner/config/located_json.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/selection/strategy_options.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;

namespace {

const char* minimal = R"([model]
name = "gpt"
n_layers = 2
dim = 64
n_heads = 4
max_seq_len = 32
[data]
format = "text"
train = ["a.txt"]
[train]
max_steps = 10
)";

Recipe read(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(minimal + more, "minimal.toml", overrides, reader_help());
}

}  // namespace

TEST_CASE("expectation 15: shipped recipes print back to the same recipe") {
  std::vector<fs::path> files = {fs::path(RUNNER_SOURCE_DIR) / "recipes/llm_fsdp.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/llm_tensor_parallel.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/llm_context_parallel.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/llm_pipeline.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/llm_3d.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/finetune_chat.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/lora.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/tabular.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/vision.toml",
                                 fs::path(RUNNER_SOURCE_DIR) / "recipes/text_classification.toml"};
  for (const auto& entry : fs::directory_iterator(fs::path(RUNNER_SOURCE_DIR) / "recipes/strategies"))
    files.push_back(entry.path());
  for (const auto& file : files) {
    INFO(file);
    Recipe recipe = load_recipe(file.string());
    for (auto origins : {PrintOrigins::no, PrintOrigins::yes}) {
      Recipe again = parse_recipe(print_recipe(recipe, origins), "again.toml");
      CHECK(recipe_to_json(again) == recipe_to_json(recipe));
    }
  }
}

TEST_CASE("schemas/recipe.schema.json is up to date (runner help recipe --schema > schemas/recipe.schema.json)") {
  CHECK(read_file(fs::path(RUNNER_SOURCE_DIR) / "schemas/recipe.schema.json") == recipe_schema());
}

TEST_CASE("optimizers have the names of other tools, and defaults of their own") {
  const auto optimizer = [](const std::string& lines) { return read("[optimizer]\n" + lines).optimizer; };
  CHECK(optimizer("name = \"lion_32bit\"\n").name == "lion");
  CHECK(optimizer("name = \"lion\"\n").betas == std::vector{0.9, 0.99});
  CHECK(optimizer("name = \"lion\"\nbetas = [0.95, 0.98]\n").betas == std::vector{0.95, 0.98});
  CHECK(optimizer("name = \"adamw\"\n").betas == std::vector{0.9, 0.999});
  CHECK(optimizer("name = \"adamw_bnb_8bit\"\n").name == "adamw_8bit");
  CHECK(optimizer("name = \"muon\"\n").momentum == 0.95);
  CHECK(optimizer("name = \"muon\"\n").nesterov);
  CHECK(optimizer("name = \"sgd\"\n").momentum == 0);
  const auto message = [&](const std::string& lines) -> std::string {
    try {
      optimizer(lines);
    } catch (const RecipeError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message("name = \"paged_adamw_8bit\"\n").find("states are not paged; use \"adamw_8bit\"") != std::string::npos);
  CHECK(message("name = \"lamb\"\n").find("the nearest is \"adamw\"") != std::string::npos);
  CHECK(message("name = \"lion\"\neps = 1e-8\n").find("eps is for") != std::string::npos);
  CHECK(message("name = \"schedule_free_adamw\"\nbetas = [0.0, 0.9]\n").find("first value of betas above 0") !=
        std::string::npos);
  CHECK(message("groups = [{ params = [\"a\"], pattern = \"a\", lr = 1.0 }]\n").find("has params and a pattern") !=
        std::string::npos);
  CHECK(message("groups = [{ params = [\"a\"], lr = 1.0, lr_factor = 2.0 }]\n").find("has lr and lr_factor") !=
        std::string::npos);
  CHECK(message("groups = [{ pattern = \"a\", name = \"sdg\" }]\n").find("did you mean `sgd`") != std::string::npos);
  CHECK(message("groups = [{ pattern = \"a\", momentum = 0.5 }]\n")
            .find("the group `a` sets momentum, which adamw does not read") != std::string::npos);
  CHECK(message("groups = [{ pattern = \"a\", name = \"sgd\", nesterov = true }]\n").find("needs momentum above 0") !=
        std::string::npos);
  CHECK(message("groups = [{ pattern = \"a\", name = \"schedule_free_adamw\" }]\n").find("it averages weights") !=
        std::string::npos);
  CHECK(read("[[optimizer.groups]]\nparams = [\"*.bias\", \"*norm*\"]\nweight_decay = 0.0\n")
            .optimizer.groups.front()
            .patterns() == std::vector<std::string>{"*.bias", "*norm*"});
}

TEST_CASE("a group has the options of [optimizer] or, for another optimizer, its defaults") {
  const auto given = read(
                         "[optimizer]\nname = \"adamw\"\nlr = 0.25\nbetas = [0.7, 0.8]\neps = 1e-5\ngroups = [{ "
                         "pattern = \"a*\", eps = 1e-4 }, "
                         "{ pattern = \"b\", lr = 1.0 }, { pattern = \"*\", name = \"muon\", ns_steps = 3 }]\n")
                         .optimizer;
  const auto same = optimizer_of(given, "ab"), common = optimizer_of(given, "b"), other = optimizer_of(given, "c");
  CHECK(same.eps == 1e-4);
  CHECK(same.betas == given.betas);
  CHECK(common.eps == 1e-5);
  CHECK(other.name == "muon");
  CHECK(other.ns_steps == 3);
  CHECK(other.momentum == 0.95);
  CHECK(other.betas == std::vector{0.9, 0.999});
  CHECK(other.lr == 0.25);
}

TEST_CASE("strategy.nvme_path is relative to the file that contains it") {
  TemporaryFolder folder;
  write_file_atomic(folder.path / "zero.toml",
                    std::string(minimal) + "[strategy]\nname = \"zero\"\nnvme_path = \"swap\"\n");
  CHECK(load_recipe((folder.path / "zero.toml").string()).strategy.options["nvme_path"] ==
        (folder.path / "swap").string());
  const auto set = load_recipe((folder.path / "zero.toml").string(), {"strategy.nvme_path=here"});
  CHECK(set.strategy.options["nvme_path"] == (fs::current_path() / "here").string());

  fs::create_directory(folder.path / "configurations");
  write_file_atomic(folder.path / "configurations/ds.json",
                    R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "swap"}}})");
  write_file_atomic(folder.path / "ds.toml",
                    std::string(minimal) + "[strategy]\nname = \"zero\"\nconfig = \"configurations/ds.json\"\n");
  CHECK(load_recipe((folder.path / "ds.toml").string(), {}, {}, reader_help()).strategy.options["nvme_path"] ==
        (folder.path / "configurations/swap").string());
}

TEST_CASE("a table in --set replaces that of the recipe, and a key of a table is set without the others") {
  const std::string three = "[devices]\nmesh = { pipeline = 2, shard = 2, tensor = 2 }\n";
  const auto mesh = [&](const std::vector<std::string>& overrides) {
    return toml_value(mesh_table().print(*read(three, overrides).devices.mesh));
  };
  CHECK(mesh({"devices.mesh={context=2}"}) == "{ context = 2 }");
  CHECK(mesh({"devices.mesh.tensor=4"}) == "{ pipeline = 2, shard = 2, tensor = 4 }");
  CHECK(mesh({"devices.mesh.tensor=4", "devices.mesh.pipeline=1"}) == "{ pipeline = 1, shard = 2, tensor = 4 }");
  CHECK(mesh({"devices.mesh={context=2}", "devices.mesh.tensor=4"}) == "{ context = 2, tensor = 4 }");
  CHECK(mesh({"devices.mesh.tensor=4", "devices.mesh={context=2}"}) == "{ context = 2 }");
}

TEST_CASE("a shorthand sets the main key of its section") {
  auto recipe =
      parse_recipe(std::string("strategy = \"ddp\"\nprecision = \"bf16\"\ndevices = 4\n") + minimal, "short.toml");
  CHECK(recipe.strategy.name == "ddp");
  CHECK(recipe.precision.mode == "bf16-mixed");
  CHECK(recipe.devices.devices.count == 4);
}

TEST_CASE("precision accepts the usual spellings") {
  for (auto [given, meant] : {std::pair{"16", "16-mixed"},
                              {"32", "32-true"},
                              {"64", "64-true"},
                              {"\"bf16\"", "bf16-mixed"},
                              {"\"16-true\"", "16-true"},
                              {"\"bf16-true\"", "bf16-true"},
                              {"\"auto\"", "auto"}})
    CHECK(read(std::string("[precision]\nmode = ") + given).precision.mode == meant);
}

TEST_CASE("integral floats, durations, sizes and schedules are read") {
  auto recipe = read("global_batch_size = 2e1\nmax_time = \"1d12h\"\n[devices]\nmemory_limit = \"22GiB\"\n");
  CHECK(recipe.train.global_batch_size == 20);
  CHECK(recipe.train.max_time == std::chrono::hours(36));
  CHECK(recipe.devices.memory_limit == 22ll << 30);
  CHECK(read("accumulate_grad_batches = { 0 = 8, 5 = 4 }\n").train.accumulate_grad_batches ==
        AccumulationSchedule{{0, 8}, {5, 4}});
  CHECK(read("accumulate_grad_batches = 3\n").train.accumulate_grad_batches == AccumulationSchedule{{0, 3}});
}

TEST_CASE("overrides accept TOML values and bare words, and a new strategy drops the options of the old one") {
  auto fsdp = "[strategy]\nname = \"fsdp\"\nsharding_strategy = \"NO_SHARD\"\n";
  CHECK(read(fsdp).strategy.options.at("sharding_strategy") == "NO_SHARD");
  auto recipe = read(fsdp, {"strategy=ddp", "train.max_steps=7", "run.name=my run", "data.shuffle=false"});
  CHECK(recipe.strategy.name == "ddp");
  CHECK(recipe.strategy.options.empty());
  CHECK(recipe.train.max_steps == 7);
  CHECK(recipe.run.name == "my run");
  CHECK_FALSE(recipe.data.shuffle);
  CHECK(recipe.origin("train.max_steps").kind == Origin::Kind::set);
  CHECK(origins_to_json(recipe).at("train.max_steps") == "--set train.max_steps=7");
  CHECK(origins_to_json(recipe).at("model.dim") == "minimal.toml:4:7");
}

TEST_CASE("a key with too many parts is refused in files and by --set, and dots in texts do not count") {
  std::string deep = "a";
  for (int i = 0; i < 100'000; ++i) deep += ".a";
  const auto refused = Catch::Matchers::ContainsSubstring("a key has at most 16 parts, with dots between them");
  const std::string hidden = "x = {y = \"\"\"a\"\"\"\", ";  // the text ends with a quote
  for (const auto& text : {deep + " = 1\n", "[" + deep + "]\n", hidden + deep + " = 1}\n"})
    CHECK_THROWS_WITH(parse_located_toml(text, "deep.toml"), refused);
  CHECK_THROWS_WITH(read("", {deep + "=1"}), refused);
  const std::string dots(100, '.');
  const auto texts = fmt::format("# {0}\nx = \"\\\"{0}\"\ny = '{0}'\nz = \"\"\"\n{0}\"\"\"\n", dots);
  CHECK_NOTHROW(parse_located_toml(texts, "dots.toml"));
}

TEST_CASE("long keys and values of --set are shortened in messages") {
  const std::string word(500, 'x');
  const auto said = [](const std::string& text) -> std::string {
    try {
      read("", {text});
    } catch (const RecipeError& error) {
      return error.what();
    }
    return "nothing";
  };
  CHECK(said("train.max_steps=" + word) ==
        "--set train.max_steps=...: error: `max_steps` must be an integer, not \"" + std::string(79, 'x') + "...");
  CHECK(said("optimizer." + word + "=1")
            .starts_with("--set optimizer." + std::string(70, 'x') + "...: error: unknown key `" +
                         std::string(80, 'x') + "...` in [optimizer]\n"));
}

TEST_CASE("the order of overrides in one command line has no effect") {
  const auto fsdp = "[strategy]\nname = \"fsdp\"\nsharding_strategy = \"NO_SHARD\"\n";
  const std::vector<std::vector<std::string>> commands = {
      {"strategy=deepspeed", "strategy.stage=3"},
      {"strategy=fsdp", "strategy.sharding_strategy=SHARD_GRAD_OP"},
      {"lr_scheduler=cosine", "lr_scheduler.min_lr_ratio=0.1", "unset=train.max_steps", "train.max_epochs=2"},
      {"optimizer=sgd", "optimizer.momentum=0.9", "unset=strategy", "strategy.stage=2"}};
  for (const auto& command : commands) {
    auto reversed = command;
    std::reverse(reversed.begin(), reversed.end());
    CHECK(recipe_to_json(read(fsdp, command)) == recipe_to_json(read(fsdp, reversed)));
  }
  CHECK(read(fsdp, {"strategy.stage=3", "strategy=deepspeed"}).strategy.options == nlohmann::json{{"stage", 3}});
  CHECK(read(fsdp, {"optimizer.momentum=0.9", "optimizer=sgd"}).optimizer.momentum == 0.9);
  // Of two values for one key the last applies.
  CHECK(read("", {"train.max_steps=7", "train.max_steps=8"}).train.max_steps == 8);
}

TEST_CASE("contradictions in one command line are errors in any order") {
  for (auto command : std::vector<std::vector<std::string>>{{"lr_scheduler.min_lr_ratio=0.1", "lr_scheduler=constant"},
                                                            {"optimizer.momentum=0.9", "optimizer=adamw"},
                                                            {"optimizer.betas=[0.9, 0.95]", "optimizer=sgd"},
                                                            {"train.max_steps=3", "unset=train.max_steps"},
                                                            {"devices=2", "strategy.parallel_devices=3"}}) {
    INFO(command[0]);
    CHECK_THROWS_AS(read("", command), RecipeError);
    std::swap(command[0], command[1]);
    CHECK_THROWS_AS(read("", command), RecipeError);
  }
  // Two commands are two layers: the second drops what no longer applies.
  TemporaryFolder folder;
  const auto file = folder.path / "recipe.toml";
  write_file_atomic(file, minimal);
  auto recipe = load_layered_recipe(file.string(), {{"optimizer=sgd", "optimizer.momentum=0.9"}, {"optimizer=adamw"}});
  CHECK(recipe.optimizer.name == "adamw");
}

TEST_CASE("a key for text takes every word of --set as text") {
  for (const char* word : {"nan", "inf", "123", "1e5", "true"})
    CHECK(read("", {std::string("run.name=") + word}).run.name == word);
  CHECK(read("", {"run.tags=2026"}).run.tags == std::vector<std::string>{"2026"});
  CHECK(read("", {"run.name='123'"}).run.name == "123");
  CHECK_THROWS_AS(read("[run]\nname = nan\n"), RecipeError);
}

TEST_CASE("on CPU two different numbers of ranks are an error, and devices in --set replaces cpu_processes") {
  const std::string two = "[devices]\ncpu_processes = 2\n", cpu = "accelerator = \"cpu\"\n";
  CHECK_THROWS_AS(read(two + cpu + "devices = 4\n"), RecipeError);
  CHECK(read(two + cpu + "devices = 2\n").devices.cpu_processes == 2);
  CHECK(read(two + "devices = 4\n").devices.cpu_processes == 2);  // the number of ranks of a machine without GPUs
  auto recipe = read(two + cpu, {"devices=4"});
  CHECK(recipe.devices.cpu_processes == 1);
  CHECK(recipe.devices.devices.count == 4);
}

TEST_CASE("a date as a bare word is accepted by --set") {
  CHECK(read("", {"run.name=2026-01-01"}).run.name == "2026-01-01");
  CHECK(read("", {"run.notes=07:32:00"}).run.notes == "07:32:00");
}

TEST_CASE("another optimizer, schedule or tokenizer drops keys of the layer below that it does not have") {
  const std::string more =
      "[optimizer]\nbetas = [0.9, 0.95]\n[lr_scheduler]\nname = \"cosine\"\nmin_lr_ratio = 0.1\nwarmup_steps = 2\n";
  auto recipe = read(more, {"optimizer=sgd", "optimizer.momentum=0.9", "lr_scheduler=constant"});
  CHECK(recipe.optimizer.betas == std::vector<double>{0.9, 0.999});
  CHECK(recipe.optimizer.momentum == 0.9);
  CHECK(recipe.lr_scheduler.min_lr_ratio == 0);
  CHECK(recipe.lr_scheduler.warmup_steps == 2);
  // A new one that has the key keeps its value.
  CHECK(read(more, {"lr_scheduler=linear", "optimizer=adam"}).lr_scheduler.min_lr_ratio == 0.1);
  CHECK(read(more, {"optimizer=adam"}).optimizer.betas[1] == 0.95);
}

TEST_CASE("unset removes keys and sections of lower layers, and keys that depend on them") {
  TemporaryFolder folder;
  auto write = [&](const std::string& name, const std::string& text) {
    write_file_atomic(folder.path / name, text);
    return (folder.path / name).string();
  };
  write("base.toml",
        std::string(minimal) +
            "[strategy]\nname = \"fsdp\"\nsharding_strategy = \"NO_SHARD\"\n[lr_scheduler]\nname = "
            "\"cosine\"\nmin_lr_ratio = 0.1\nwarmup_steps = 2\n[hooks]\nfiles = [\"ema\"]\nema.decay = 0.5\n");
  auto file =
      write("next.toml",
            "extends = \"base.toml\"\nunset = [\"strategy\", \"lr_scheduler.name\"]\n[data]\ntrain = [\"b.txt\"]\n");
  auto recipe = load_recipe(file);
  CHECK(recipe.strategy.name == "auto");
  CHECK(recipe.strategy.options.empty());
  CHECK(recipe.lr_scheduler.name == Recipe().lr_scheduler.name);
  CHECK(recipe.lr_scheduler.min_lr_ratio == 0);  // has a meaning only for cosine
  CHECK(recipe.lr_scheduler.warmup_steps == 2);
  CHECK(recipe.hooks.options.at("ema").at("decay") == 0.5);
  CHECK(recipe.notes.empty());
  CHECK(origins_to_json(recipe).at("lr_scheduler.name") == "default");
  recipe = load_recipe(file, {"unset=hooks.ema", "strategy=ddp", "unset=[\"lr_scheduler\", \"run.seed\"]"});
  CHECK(recipe.hooks.options.empty());
  CHECK(recipe.strategy.name == "ddp");
  CHECK(recipe.lr_scheduler.warmup_steps == Recipe().lr_scheduler.warmup_steps);
  CHECK(recipe.notes == std::vector<std::string>{"unset `run.seed` has no effect: the key is not set"});
  // In one file what it sets stands on top of what it removes.
  CHECK(load_recipe(write("again.toml", "extends = \"base.toml\"\nunset = \"strategy\"\nstrategy = \"ddp\"\n"))
            .strategy.options.empty());
}

TEST_CASE("unset removes a DeepSpeed configuration and all values that it set") {
  auto recipe = read(
      "[strategy]\nname = \"zero\"\nconfig = { train_micro_batch_size_per_gpu = 3, "
      "gradient_clipping = 0.5 }\n",
      {"unset=strategy.config"});
  CHECK_FALSE(recipe.train.micro_batch_size);
  CHECK_FALSE(recipe.train.gradient_clip_val);
  CHECK(recipe.strategy.options.empty());  // without a configuration, no stage is required
}

TEST_CASE("keys without a meaning in a recipe are not printed") {
  auto printed = print_recipe(read("[optimizer]\nname = \"sgd\"\n"));
  for (const char* key : {"betas", "eps", "gamma", "min_lr_ratio", "every = ", "token_dtype"}) {
    INFO(key);
    CHECK(printed.find(std::string("\n") + key) == std::string::npos);
  }
  CHECK(printed.find("\nmomentum = 0.0\n") != std::string::npos);
  CHECK(recipe_help("hooks.memory_limit").find("default \"64MiB\"; at least 1MiB\n") != std::string::npos);
  CHECK(recipe_help("lr_scheduler.gamma").find("default 0.1; above 0; for lr_scheduler.name = \"step\"\n") !=
        std::string::npos);
}

TEST_CASE("environment variables are replaced by their values") {
  ::setenv("RUNNER_TEST_NAME", "from outside", 1);
  CHECK(read("[run]\nname = \"${env:RUNNER_TEST_NAME}!\"\n").run.name == "from outside!");
  ::unsetenv("RUNNER_TEST_NAME");
  CHECK(read("[run]\nname = \"${env:RUNNER_TEST_NAME:-none}\"\n").run.name == "none");
}

TEST_CASE("defaults depend on the model family") {
  CHECK(read("").model.tie_embeddings);
  CHECK_FALSE(read("", {"model.name=llama"}).model.tie_embeddings);
  CHECK(read("", {"model.name=llama", "model.tie_embeddings=true"}).model.tie_embeddings);
}

TEST_CASE("a switch that changes nothing gives a note") {
  const std::string sparse = "[optimizer]\nweight_decay = 0\ndecay_norms_and_biases = true\n";
  REQUIRE(read(sparse).notes.size() == 1);
  CHECK(read(sparse).notes[0] == "optimizer.decay_norms_and_biases has no effect: weight_decay is 0");
  CHECK(read(sparse + "groups = [{ pattern = \"*\", weight_decay = 0.1 }]\n").notes.empty());
  REQUIRE(read("[hooks]\ntrusted = true\n").notes.size() == 1);
  CHECK(read("[hooks]\ntrusted = true\nfiles = [\"ema\"]\n").notes.empty());
}

TEST_CASE("no run can be named by the word for the newest run") {
  auto refused = [](const std::string& file, const std::string& more) {
    try {
      parse_recipe(minimal + more, file);
    } catch (const RecipeError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused("a.toml", "[run]\nname = \"last\"\n").starts_with("a.toml:13:8: error: a run cannot be named `last`"));
  CHECK(refused("last.toml", "").starts_with("last.toml: error: a run cannot be named `last`"));
  CHECK(refused("last.toml", "[run]\nname = \"at_last\"\n").empty());
}

TEST_CASE("a setting of a logger that is off, and a webhook that is written out, give a note") {
  const auto notes = [](const std::string& lines) { return read("[logging]\n" + lines).notes; };
  CHECK(notes("mlflow_uri = \"http://localhost\"\nloggers = \"wandb\"\nwandb_project = \"p\"\n") ==
        std::vector<std::string>{"logging.mlflow_uri has no effect: `loggers` has no \"mlflow\""});
  CHECK(notes("notify = { webhook = \"http://localhost/hooks/abc\" }\n") ==
        std::vector<std::string>{
            "logging.notify has the URL of a webhook, which whoever reads the recipe can use: put it "
            "into a variable, and write webhook = \"${env:NAME}\""});
  // The variable is asked for when the run starts, not when its recipe is read.
  CHECK(notes("notify = { webhook = \"${env:RUNNER_NO_SUCH_VARIABLE}\" }\n").empty());
}

TEST_CASE("a note says why data.group_by_length has no effect") {
  const auto notes = [](const std::string& more, const std::string& model = "gpt") {
    const auto recipe =
        parse_recipe("[model]\nname = \"" + model +
                         "\"\nn_layers = 2\ndim = 64\nn_heads = 4\nmax_seq_len = 32\n[train]\nmax_steps = 10\n"
                         "[data]\nformat = \"jsonl\"\ngroup_by_length = true\n" +
                         more,
                     "grouped.toml", {}, reader_help());
    return idle_switches(recipe);
  };
  const std::string train = "train = [\"a.jsonl\"]\n";
  using Notes = std::vector<std::string>;
  CHECK(notes(train + "layout = \"messages\"\n") == Notes{});
  CHECK(notes(train + "shuffle = false\n") ==
        Notes{"data.group_by_length has no effect: data.shuffle = false keeps the order of the files"});
  CHECK(notes(train + "packing = \"wrapped\"\n") ==
        Notes{"data.group_by_length has no effect: wrapped samples have equal lengths"});
  CHECK(notes(train, "bert") == Notes{"data.group_by_length has no effect: masked_lm does not group its samples"});
  CHECK(notes("[[data.sources]]\nname = \"a\"\ntrain = [\"a.jsonl\"]\n") ==
        Notes{"data.group_by_length has no effect: the shares of data.sources decide the order"});
}
