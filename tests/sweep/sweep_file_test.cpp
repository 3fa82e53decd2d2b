// Sweep files: their meaning, and the exact text of every mistake, all in one pass.
#include "runner/sweep/sweep_file.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <limits>
#include <set>

#include "runner/base/files.hpp"
#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/slots.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::sweep;
using nlohmann::json;

namespace {

const std::string recipe_text = R"([model]
name = "gpt"
n_layers = 1
dim = 32
n_heads = 2
max_seq_len = 16
[data]
format = "text"
train = ["text.txt"]
[train]
max_steps = 10
global_batch_size = 4
)";

struct Place : TemporaryFolder {
  Place() {
    write_file_atomic(path / "base.toml", recipe_text);
    write_file_atomic(path / "text.txt", "some text");
  }
  SweepFile read(const std::string& text) const { return parse_sweep(text, (path / "s.toml").string()); }
  /// The diagnostics of the text, without the folder.
  std::string said(const std::string& text) const {
    try {
      check_recipes(read(text));
    } catch (const RecipeError& error) {
      std::string what = error.what(), folder = path.string() + "/";
      for (size_t at; (at = what.find(folder)) != std::string::npos;) what.erase(at, folder.size());
      return what;
    }
    return "";
  }
};

}  // namespace

TEST_CASE("a sweep file defines method, metric, space and limits") {
  Place place;
  auto sweep = place.read(R"([sweep]
name = "wide"
recipe = "base.toml"
set = { "train.max_steps" = 5, strategy = "single" }
method = { name = "tpe", gamma = 0.2 }
metric = "loss"
goal = "max"
value = "best"
seed = 7
parallel = 3
budget = { trials = 40, time = "2h", trial_time = "10m" }
stop = { target = 1.5, no_improvement = 9, failures = 4 }
constraints = ["model.dim % model.n_heads == 0"]
[sweep.space]
"optimizer.lr" = { log_uniform = [1e-5, 1e-2] }
optimizer.name = ["adamw", "sgd"]
"optimizer.momentum" = { uniform = [0, 0.9], when = { "optimizer.name" = "sgd" } }
"model.dim" = { integer = [32, 96], step = 32 }
)");
  CHECK(sweep.name == "wide");
  CHECK(sweep.recipe == (place.path / "base.toml").string());
  CHECK(sweep.overrides == std::vector<std::string>{"strategy.name=\"single\"", "train.max_steps=5"});
  CHECK(sweep.method == "tpe");
  CHECK(sweep.method_options == json{{"gamma", 0.2}});
  CHECK(sweep.goal == Goal::max);
  CHECK(sweep.best_value);
  CHECK(sweep.seed == 7);
  CHECK(sweep.parallel == 3);
  CHECK(sweep.time_s == 7200);
  CHECK(sweep.trial_time_s == 600);
  CHECK(sweep.limits.trials == 40);
  CHECK(sweep.limits.target == 1.5);
  CHECK(sweep.limits.no_improvement == 9);
  CHECK(sweep.limits.failures == 4);
  const auto& parameters = sweep.space.parameters();
  REQUIRE(parameters.size() == 4);
  CHECK(parameters[0].name == "optimizer.lr");
  CHECK(parameters[0].log);
  CHECK(parameters[1].choices == std::vector<json>{"adamw", "sgd"});
  CHECK(parameters[2].parent == "optimizer.name");
  CHECK(parameters[3].count() == 3);
  CHECK(sweep.space.accepts({{"model.dim", 64}}));  // the recipe defines n_heads
  check_recipes(sweep);
}

TEST_CASE("values for all trials in a wrong place of a sweep file are answered with [sweep.set]") {
  Place place;
  const std::string rest = "recipe = \"base.toml\"\nbudget = { trials = 2 }\n[sweep.space]\n\"run.seed\" = [1, 2]\n";
  for (const char* wrong : {"overrides = [\"train.max_steps=3\"]\n", "train = { max_steps = 3 }\n"})
    CHECK(place.said("[sweep]\n" + std::string(wrong) + rest)
              .find("` in [sweep]: values that all trials share are in [sweep.set]\n") != std::string::npos);
  CHECK(place.said("[sweep]\n" + rest + "[train]\nmax_steps = 3\n")
            .find("or in [sweep.set], as \"train.KEY\" = VALUE for all trials\n") != std::string::npos);
}

TEST_CASE("every mistake in a sweep file is reported with its position, in one pass") {
  Place place;
  CHECK(
      place.said(R"([model]
dim = 3
[sweep]
recipe = "base.toml"
metod = "random"
method = { name = "tpe", gama = 0.2 }
goal = "minimum"
budget = { trials = 0, tim = "2h" }
[sweep.space]
"optimizer.lrr" = { log_uniform = [1e-5, 1e-2] }
"optimizer.lr" = { log_unifrom = [1e-5, 1e-2] }
"optimizer.weight_decay" = { log_uniform = [0, 1] }
"model.dim" = { uniform = [32, 64] }
"model.dropout" = { uniform = [0, 2] }
"model.n_heads" = { integer = [4, 2] }
"model.n_layers" = [1, 1]
"run.seed" = { integer = [1, 9], points = 3 }
)") ==
      R"(s.toml:1:2: error: a sweep's file has [sweep] only; `model` belongs in the recipe that it names, or in [sweep.set], as "model.KEY" = VALUE for all trials
    1 | [model]
      |  ^~~~~

s.toml:5:1: error: unknown key `metod` in [sweep]
    5 | metod = "random"
      | ^~~~~
  did you mean `method`?

s.toml:6:26: error: unknown key `gama` in the options of method tpe
    6 | method = { name = "tpe", gama = 0.2 }
      |                          ^~~~
  did you mean `gamma`?

s.toml:7:8: error: `goal` cannot be "minimum"
    7 | goal = "minimum"
      |        ^~~~~~~~~
  allowed: min, max

s.toml:8:21: error: `trials` must be at least 1, not 0
    8 | budget = { trials = 0, tim = "2h" }
      |                     ^

s.toml:8:24: error: unknown key `tim` in budget
    8 | budget = { trials = 0, tim = "2h" }
      |                        ^~~
  did you mean `time`?

s.toml:10:1: error: the recipe has no key `optimizer.lrr`
   10 | "optimizer.lrr" = { log_uniform = [1e-5, 1e-2] }
      | ^~~~~~~~~~~~~
  did you mean `optimizer.lr`?

s.toml:11:18: error: the range of `optimizer.lr` needs one of uniform, log_uniform, integer or choice
   11 | "optimizer.lr" = { log_unifrom = [1e-5, 1e-2] }
      |                  ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~

s.toml:11:20: error: unknown key `log_unifrom` in the range of `optimizer.lr`
   11 | "optimizer.lr" = { log_unifrom = [1e-5, 1e-2] }
      |                    ^~~~~~~~~~~
  did you mean `log_uniform`?

s.toml:12:44: error: a logarithmic range must begin above 0; that of `optimizer.weight_decay` begins at 0
   12 | "optimizer.weight_decay" = { log_uniform = [0, 1] }
      |                                            ^~~~~~

s.toml:13:15: error: `model.dim` is an integer: write integer = [lowest, highest]
   13 | "model.dim" = { uniform = [32, 64] }
      |               ^~~~~~~~~~~~~~~~~~~~~~

s.toml:14:19: error: `dropout` must be at most 0.999, not 2.0
   14 | "model.dropout" = { uniform = [0, 2] }
      |                   ^~~~~~~~~~~~~~~~~~~~

s.toml:15:31: error: `integer` of `model.n_heads` begins above its end
   15 | "model.n_heads" = { integer = [4, 2] }
      |                               ^~~~~~

s.toml:16:20: error: `model.n_layers` has the choice 1 twice
   16 | "model.n_layers" = [1, 1]
      |                    ^~~~~~

s.toml:17:43: error: `points` is for method = "grid" only
   17 | "run.seed" = { integer = [1, 9], points = 3 }
      |                                           ^)");
}

TEST_CASE("a sweep in Lua that is not UTF-8 is refused with its line, because the ledger stores its text") {
  try {
    parse_sweep("return {\n-- caf\xe9\n}", "s.lua");
    FAIL("must throw");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    CHECK(std::string(error.what()) == "s.lua:2: this line is not UTF-8 text");
  }
}

TEST_CASE("the order of keys in `set` and in trials has no effect") {
  Place place;
  auto sweep = place.read(R"([sweep]
recipe = "base.toml"
metric = "loss"
method = "grid"
set = { "model.hidden_dim" = 64, strategy.cpu_offload = true, strategy.name = "fsdp" }
[sweep.space]
"optimizer.lr" = [0.1]
)");
  CHECK(load_whole_recipe(sweep.recipe, sweep.overrides).strategy.options == json{{"cpu_offload", true}});
  auto of_trial = overrides_of({{"lr_scheduler.gamma", 0.5},
                                {"lr_scheduler.name", "step"},
                                {"lr_scheduler.step_size", 5},
                                {"strategy.cpu_offload", true},
                                {"strategy.name", "fsdp"}});
  CHECK(load_whole_recipe(sweep.recipe, of_trial).strategy.options == json{{"cpu_offload", true}});
}

TEST_CASE("the recipe of a trial as TOML is valid if `set` contains a short form") {
  Place place;
  auto sweep = place.read(R"([sweep]
recipe = "base.toml"
metric = "loss"
method = "grid"
set = { optimizer = "sgd", strategy = "single" }
[sweep.space]
"optimizer.lr" = [0.25]
"strategy.name" = ["ddp"]
)");
  const auto copy = (place.path / "copy.toml").string();
  write_file_atomic(copy, print_given(load_whole_recipe(sweep.recipe, sweep.overrides)));
  auto text = recipe_with(copy, {"devices.cpu_processes=2"}, {{"optimizer.lr", 0.25}, {"strategy.name", "ddp"}});
  auto recipe = parse_recipe(text, (place.path / "best.toml").string());
  CHECK(recipe.optimizer.name == "sgd");
  CHECK(recipe.optimizer.lr == 0.25);
  CHECK(recipe.strategy.name == "ddp");
  CHECK(recipe.devices.cpu_processes == 2);
}

TEST_CASE("a recipe is no sweep file, which is said once") {
  Place place;
  CHECK(place.said("[model]\nname = \"gpt\"\n[data]\nformat = \"text\"\n") ==
        "s.toml: error: this is a recipe, not a sweep file: a sweep file has a section [sweep]");
}

TEST_CASE("a condition that no value of its parent meets is refused with the nearest value") {
  Place place;
  CHECK(place.said(R"([sweep]
recipe = "base.toml"
metric = "loss"
budget = { trials = 3 }
[sweep.space]
"optimizer.name" = ["adamw", "sgd"]
"optimizer.momentum" = { uniform = [0.5, 0.9], when = { "optimizer.name" = ["sgd", "sgdd"] } }
"model.dim" = { integer = [32, 96], step = 32 }
"model.n_heads" = { choice = [4], when = { "model.dim" = 65 } }
"optimizer.lr" = { uniform = [0.1, 0.2] }
"optimizer.weight_decay" = { choice = [0.0], when = { "optimizer.lr" = 0.15 } }
"optimizer.eps" = { choice = [0.1], when = { "optimizer.name" = [] } }
)") == R"(s.toml:7:76: error: `when` of `optimizer.momentum`: `optimizer.name` never has the value "sgdd"
    7 | "optimizer.momentum" = { uniform = [0.5, 0.9], when = { "optimizer.name" = ["sgd", "sgdd"] } }
      |                                                                            ^~~~~~~~~~~~~~~
  did you mean `sgd`?

s.toml:9:58: error: `when` of `model.n_heads`: `model.dim` never has the value 65
    9 | "model.n_heads" = { choice = [4], when = { "model.dim" = 65 } }
      |                                                          ^~
  did you mean `64`?

s.toml:11:72: error: `when` of `optimizer.weight_decay`: `optimizer.lr` never has the value 0.15
   11 | "optimizer.weight_decay" = { choice = [0.0], when = { "optimizer.lr" = 0.15 } }
      |                                                                        ^~~~
  `optimizer.lr` is a continuous range: give it a `step` or a list

s.toml:12:44: error: `when` must be { "KEY" = value } or { "KEY" = [values] }, one key, not a table
   12 | "optimizer.eps" = { choice = [0.1], when = { "optimizer.name" = [] } }
      |                                            ^~~~~~~~~~~~~~~~~~~~~~~~~)");
  auto stepped = place.read(
      "[sweep]\nrecipe = \"base.toml\"\nbudget = { trials = 3 }\n[sweep.space]\n"
      "\"model.dropout\" = { uniform = [0, 0.5], step = 0.1 }\n"
      "\"model.n_heads\" = { choice = [1], when = { \"model.dropout\" = 0.3 } }\n");
  json third = 0.1 * 3;  // differs from 0.3 by rounding
  CHECK(stepped.space.find("model.n_heads")->when == std::vector<json>{third});
  CHECK(stepped.space.find("model.dropout")->at(0.6) == third);
}

TEST_CASE("mistakes that depend on the recipe are reported at the parameter that causes them") {
  Place place;
  const std::string head = "[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\nmethod = \"grid\"\n";
  CHECK(place.said(head + "[sweep.space]\n\"model.n_heads\" = [2, 5]\n") ==
        "s.toml:6:1: error: trials with model.n_heads=5 would fail: n_heads = 5 does not divide dim = 32\n"
        "    6 | \"model.n_heads\" = [2, 5]\n"
        "      | ^~~~~~~~~~~~~\n"
        "  leave such points out with `constraints`, or change the range");
  CHECK(place.said(head +
                   "constraints = [\"model.dim % model.n_heads == 0\"]\n[sweep.space]\n\"model.n_heads\" = [2, 5]\n") ==
        "");
  CHECK(place.said("[sweep]\nrecipe = \"bass.toml\"\nmethod = \"grid\"\n[sweep.space]\n\"model.n_heads\" = [2]\n") ==
        "s.toml:2:10: error: the recipe bass.toml does not exist\n    2 | recipe = \"bass.toml\"\n      |          "
        "^~~~~~~~~~~");
}

TEST_CASE("a mistake of a range is reported once, at the parameter that causes it") {
  Place place;
  const std::string head =
      "[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\nbudget = { trials = 4 }\n[sweep.space]\n";
  // The width is wrong for every learning rate.
  auto said = place.said(head + "\"optimizer.lr\" = { log_uniform = [1e-4, 1e-2] }\n\"model.dim\" = [33, 35]\n");
  CHECK(said.starts_with("s.toml:7:1: error: trials with model.dim=3"));
  CHECK(said.find("does not divide dim = 3") != std::string::npos);
  CHECK(said.find("error:", said.find("error:") + 1) == std::string::npos);
}

TEST_CASE("integers beyond 2^53 stay exact and in their range") {
  Place place;
  const auto reads = [&](const std::string& method, const std::string& range) {
    return place.read("[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\nmethod = \"" + method +
                      "\"\nbudget = { trials = 60 }\n[sweep.space]\n\"run.seed\" = { integer = " + range + " }\n");
  };
  const auto values_of = [](SweepFile sweep) {
    std::set<int64_t> values;
    for (auto search = sweep.make_search(); true;) {
      const auto next = search.propose();
      if (next.kind != Proposal::Kind::trial) return values;
      values.insert(next.trial.parameters.at("run.seed").get<int64_t>());
      search.end(next.trial.number, "finished", 0, 1, "");
    }
  };
  constexpr int64_t first = int64_t{1} << 53;
  std::set<int64_t> all;
  for (int i = 0; i < 8; ++i) all.insert(first + i);
  for (const char* method : {"random", "grid", "sobol", "tpe"}) {
    INFO(method);
    const auto values = values_of(reads(method, "[9007199254740992, 9007199254740999]"));
    CHECK(std::ranges::includes(all, values));
    CHECK(values.size() > 4);  // doubles hold every second one
    if (std::string(method) != "grid") CHECK(*values_of(reads(method, "[0, 9223372036854775807]")).begin() >= 0);
  }
  const auto wide = values_of(reads("grid", "[0, 9223372036854775807], points = 3"));
  CHECK(*wide.begin() == 0);
  CHECK(*wide.rbegin() == std::numeric_limits<int64_t>::max());
}

TEST_CASE("a metric that no trial reports is a mistake, with the nearest name") {
  Place place;
  const std::string tail = "budget = { trials = 1 }\n[sweep.space]\n\"optimizer.lr\" = { uniform = [0.1, 0.2] }\n";
  auto said = place.said("[sweep]\nrecipe = \"base.toml\"\nmetric = \"los\"\n" + tail);
  CHECK(said ==
        "s.toml:3:10: error: no trial will report a metric `los`\n    3 | metric = \"los\"\n      |          ^~~~~\n  "
        "did "
        "you mean `loss`?");
  write_file_atomic(place.path / "h.lua",
                    "return {name = 'h', options = {also = {type = 'string', default = 'x'}},\n"
                    "on_train_batch_end = function(ctx) ctx:log('norm/1', 1)\n"
                    "if ctx.step > 1000 then ctx:log('late', 1) end end}");
  auto hooked = [&](const std::string& metric) {
    return place.said("[sweep]\nrecipe = \"base.toml\"\nset = { hooks.files = [\"" + (place.path / "h.lua").string() +
                      "\"] }\nmetric = \"" + metric + "\"\n" + tail);
  };
  CHECK(hooked("norm/1") == "");
  CHECK(hooked("norm/head.weight") == "");  // the name depends on the model
  CHECK(hooked("late") == "");              // logged after the last step of lua check
  CHECK(hooked("lots").find("no trial will report a metric `lots`") != std::string::npos);

  // A hook that computes names may log any.
  write_file_atomic(place.path / "h.lua",
                    "return {name = 'h', on_train_batch_end = function(ctx) ctx:log('norm' .. ctx.step, 1) end}");
  CHECK(hooked("lots") == "");
  const SweepFile sweep = place.read("[sweep]\nrecipe = \"base.toml\"\nmetric = \"lots\"\n" + tail);
  auto with_hook = load_whole_recipe(sweep.recipe, {"hooks.files=[\"" + (place.path / "h.lua").string() + "\"]"});
  CHECK(
      metric_note(sweep, with_hook).starts_with("metric = \"lots\": this name is in no hook, but hooks compute names"));
}

TEST_CASE("requirements of method and metric on the recipe are checked before anything runs") {
  Place place;
  const std::string space = "[sweep.space]\n\"optimizer.lr\" = { uniform = [0.1, 0.2] }\n";
  CHECK(place.said("[sweep]\nrecipe = \"base.toml\"\nbudget = { trials = 1 }\n" + space) ==
        "s.toml:1:1: error: metric = \"val_loss\" needs data.validation or data.validation_fraction in the recipe; or "
        "use metric = \"loss\"\n    1 | [sweep]\n      | ^~~~~~~");
  CHECK(place.said("[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\nset = { lr_scheduler = \"cosine\" }\n"
                   "method = { name = \"pbt\", interval = 5, generations = 2 }\n" +
                   space) ==
        "s.toml:5:10: error: pbt changes train.max_steps in each generation, and lr_scheduler.name = \"cosine\" "
        "depends on it: use \"constant\", \"step\" or \"inverse_sqrt\"\n    5 | method = { name = \"pbt\", interval = "
        "5, generations = 2 }\n"
        "      |          ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~");
}

TEST_CASE("PBT refuses keys that make the checkpoints of its members incompatible") {
  Place place;
  auto said = [&](const std::string& parameter) {
    return place.said(
        "[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\n"
        "set = { \"optimizer.name\" = \"sgd\", lr_scheduler = \"constant\", checkpoint.save_at_end = true }\n"
        "method = { name = \"pbt\", interval = 5, generations = 2 }\n[sweep.space]\n" +
        parameter + "\n");
  };
  for (const char* key : {"model.dim", "model.n_layers", "optimizer.name"}) {
    const bool name = std::string(key) == "optimizer.name";
    auto text = said(fmt::format("\"{}\" = {}", key, name ? "[\"sgd\", \"adamw\"]" : "[32, 64]"));
    INFO(text);
    CHECK(text.starts_with(
        "s.toml:5:10: error: pbt's members continue from each other's checkpoints, which need the same model and the "
        "same optimizer: `" +
        std::string(key) + "` cannot be varied\n"));
  }
  for (const char* parameter :
       {"\"run.seed\" = [1, 2]", "\"data.seq_len\" = [8, 16]", "\"data.shuffle\" = [true, false]"})
    CHECK(said(parameter).find("and this key changes the meaning of their position in the data: `") !=
          std::string::npos);
  CHECK(said("\"optimizer.momentum\" = { uniform = [0, 0.9] }").find("its range must begin above 0") !=
        std::string::npos);
  CHECK(said("\"optimizer.momentum\" = { uniform = [0.5, 0.9] }") == "");
}

TEST_CASE("ASHA is refused if its metric comes too late") {
  Place place;
  const std::string sweep =
      "[sweep]\nrecipe = \"base.toml\"\nbudget = { trials = 1 }\nmethod = { name = \"asha\", min_steps "
      "= 2 }\nset = { data.validation_fraction = 0.5, train.val_check_interval = INTERVAL }\n"
      "[sweep.space]\n\"optimizer.lr\" = { uniform = [0.1, 0.2] }\n";
  auto with = [&](const std::string& interval) {
    auto text = sweep;
    return place.said(text.replace(text.find("INTERVAL"), 8, interval));
  };
  CHECK(
      with("3").starts_with("s.toml:4:10: error: asha first decides at step 2, and val_loss comes every 3 steps: set "
                            "train.val_check_interval = 2\n"));
  CHECK(with("2") == "");
}

TEST_CASE("shipped sweeps can be read, and their recipes are correct") {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(RUNNER_SOURCE_DIR) / "recipes/sweeps")) {
    INFO(entry.path().string());
    if (entry.path().extension() == ".md") continue;
    auto sweep = load_sweep(entry.path().string());
    check_recipes(sweep);
    CHECK(sweep.make_search().propose().kind == Proposal::Kind::trial);
    ++count;
  }
  CHECK(count == 6);
}

TEST_CASE("device slots of free GPUs are groups of free ones, and all GPUs are one slot") {
  Facts facts;
  facts.cuda_module = true;
  for (int i = 0; i < 6; ++i)
    facts.devices.push_back({i, "NVIDIA H100", int64_t{80} << 30, int64_t{79} << 30, 9, 0, i == 1 ? 1 : 0});
  Recipe recipe = parse_recipe(recipe_text, "base.toml", {"devices=\"free:2\""});
  auto slots = device_slots(recipe, facts, {});
  REQUIRE(slots.size() == 2);
  CHECK(slots[0].name == "cuda:0,2");
  CHECK(slots[1].environment.at("CUDA_VISIBLE_DEVICES") == "3,4");
  CHECK(slots[1].overrides == std::vector<std::string>{"devices.devices=2"});
  try {
    device_slots(recipe, facts, 3);
    FAIL("no refusal");
  } catch (const Error& error) {
    CHECK(std::string(error.what())
              .starts_with("parallel = 3 trials with 2 CUDA devices each need 6, and there are 5 free: "));
  }
  recipe.devices.devices = {DeviceRequest::Kind::count, -1, {}};
  slots = device_slots(recipe, facts, {});
  REQUIRE(slots.size() == 1);
  CHECK(slots[0].name == "cuda:0,1,2,3,4,5");
  CHECK(slots[0].overrides.empty());
  CHECK_THROWS_AS(device_slots(recipe, facts, 2), Error);
}

TEST_CASE("a trial gets the devices that the mesh of its recipe needs") {
  Facts facts;
  facts.cores = 8;
  Recipe recipe = parse_recipe(recipe_text, "base.toml", {"devices.mesh={tensor=2}"});
  CHECK(device_slots(recipe, facts, {}).size() == 4);
  facts.cuda_module = true;
  for (int i = 0; i < 4; ++i) facts.devices.push_back({i, "NVIDIA H100", int64_t{80} << 30, int64_t{79} << 30, 9, 0});
  const auto pairs = device_slots(recipe, facts, {});
  REQUIRE(pairs.size() == 2);
  CHECK(pairs[1].name == "cuda:2,3");
  recipe.devices.mesh->shard = 2;
  const auto all = device_slots(recipe, facts, {});
  REQUIRE(all.size() == 1);
  CHECK(all[0].name == "cuda:0,1,2,3");
}

TEST_CASE("device slots are groups of GPUs or of cores") {
  Facts facts;
  facts.cores = 8;
  Recipe recipe = parse_recipe(recipe_text, "base.toml");
  CHECK(device_slots(recipe, facts, {}).size() == 8);
  auto slots = device_slots(recipe, facts, 2);
  REQUIRE(slots.size() == 2);
  CHECK(slots[1].name == "cpu:1");
  CHECK(slots[1].overrides == std::vector<std::string>{"devices.threads_per_rank=4"});
  CHECK(device_slots(recipe, facts, 1)[0].overrides.empty());
  facts.cuda_module = true;
  for (int i = 0; i < 4; ++i) facts.devices.push_back({i, "NVIDIA H100", int64_t{80} << 30, int64_t{79} << 30, 9, 0});
  slots = device_slots(recipe, facts, {});
  REQUIRE(slots.size() == 4);
  CHECK(slots[2].environment.at("CUDA_VISIBLE_DEVICES") == "2");
  slots = device_slots(recipe, facts, 2);
  CHECK(slots[1].name == "cuda:2,3");
  recipe.devices.devices = {DeviceRequest::Kind::count, 3, {}};
  CHECK(device_slots(recipe, facts, {}).size() == 1);
  try {
    device_slots(recipe, facts, 2);
    FAIL("no refusal");
  } catch (const Error& error) {
    CHECK(std::string(error.what())
              .starts_with("parallel = 2 trials with 3 CUDA devices each need 6, and there are 4: "));
  }
}

TEST_CASE("an unknown method is the only mistake of a sweep without a budget") {
  Place place;
  const std::string wrong = place.said(
      "[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\nmethod = \"bayes\"\n[sweep.space]\n\"optimizer.lr\" = "
      "[0.1]\n");
  CHECK(wrong.find("there is no method \"bayes\"") != std::string::npos);
  CHECK(wrong.find("needs an end") == std::string::npos);
}

TEST_CASE("a budget that leaves out points of a grid gives a note") {
  Place place;
  auto note = [&](const std::string& budget) {
    return budget_note(place.read("[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\nmethod = \"grid\"\n" + budget +
                                  "[sweep.space]\n\"optimizer.lr\" = [0.1, 0.2, 0.3]\n"));
  };
  CHECK(note("budget = { trials = 1 }\n") == "budget = { trials = 1 } leaves out 2 of the 3 trials of method grid");
  CHECK(note("budget = { trials = 3 }\n").empty());
  CHECK(note("").empty());
}
