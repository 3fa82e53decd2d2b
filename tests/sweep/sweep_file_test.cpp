// Sweep files: their meaning, and the exact text of every mistake, all in one pass.
#include "runner/sweep/sweep_file.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <limits>
#include <set>

#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/selection/strategy_options.hpp"
#include "tests/support/refusal.hpp"
#include "tests/sweep/sweep_place.hpp"

using namespace runner;
using namespace runner::sweep;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using nlohmann::json;

namespace {

const std::string of_base = "[sweep]\nrecipe = \"base.toml\"\nmetric = \"loss\"\n";
const std::string pbt = "method = { name = \"pbt\", interval = 5, generations = 2 }\n";
const std::string lr_space = "[sweep.space]\n\"optimizer.lr\" = { uniform = [0.1, 0.2] }\n";

struct Place : SweepPlace {
  SweepFile read(const std::string& text) const { return parse_sweep(text, (path / "s.toml").string()); }
  /// The diagnostics of the text.
  std::string said(const std::string& text) const {
    return message_of<RecipeError>([&] { check_recipes(read(text)); });
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
    CHECK_THAT(place.said("[sweep]\n" + std::string(wrong) + rest),
               ContainsSubstring("` in [sweep]: values that all trials share are in [sweep.set]\n"));
  CHECK_THAT(place.said("[sweep]\n" + rest + "[train]\nmax_steps = 3\n"),
             ContainsSubstring("or in [sweep.set], as \"train.KEY\" = VALUE for all trials\n"));
}

TEST_CASE("options of a method, budgets and stops beside their key are answered with the line that has them") {
  Place place;
  const auto says = [&](const std::string& lines, const std::string& wanted) {
    CHECK_THAT(place.said("[sweep]\nrecipe = \"base.toml\"\nbudget = { trials = 2 }\n" + lines +
                          "[sweep.space]\n\"run.seed\" = [1, 2]\n"),
               ContainsSubstring(wanted));
  };
  says("method = \"asha\"\n", "; write method = { name = \"asha\", min_steps = 4 }\n");
  says("method = \"pbt\"\npopulation = 6\n",
       "; write method = { name = \"pbt\", population = 6, interval = 4, generations = 4 }\n");
  for (const char* method : {"method = \"asha\"\n", "method = { name = \"asha\", reduction_factor = 3 }\n"})
    says(std::string(method) + "min_steps = 5\n",
         "unknown key `min_steps` in [sweep]: it is written inside another key: method = { name = \"asha\", min_steps "
         "= 5");
  says("gamma = 0.2\n", "inside another key: method = { name = \"tpe\", gamma = 0.2 }\n");
  says("time = \"2h\"\n", "inside another key: budget = { time = \"2h\" }\n");
  says("no_improvement = 3\n", "inside another key: stop = { no_improvement = 3 }\n");
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
  CHECK(refusal([] { parse_sweep("return {\n-- caf\xe9\n}", "s.lua"); }) == "2: s.lua:2: this line is not UTF-8 text");
}

TEST_CASE("the order of keys in `set` and in trials has no effect") {
  Place place;
  auto sweep = place.read(of_base + R"(method = "grid"
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
  auto sweep = place.read(of_base + R"(method = "grid"
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
  CHECK(place.said(of_base + R"(budget = { trials = 3 }
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
  auto stepped = place.read(of_base +
                            "budget = { trials = 3 }\n[sweep.space]\n"
                            "\"model.dropout\" = { uniform = [0, 0.5], step = 0.1 }\n"
                            "\"model.n_heads\" = { choice = [1], when = { \"model.dropout\" = 0.3 } }\n");
  json third = 0.1 * 3;  // differs from 0.3 by rounding
  CHECK(stepped.space.find("model.n_heads")->when == std::vector<json>{third});
  CHECK(stepped.space.find("model.dropout")->at(0.6) == third);
}

TEST_CASE("mistakes that depend on the recipe are reported at the parameter that causes them") {
  Place place;
  const std::string head = of_base + "method = \"grid\"\n";
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
  // The width is wrong for every learning rate.
  auto said = place.said(of_base + "budget = { trials = 4 }\n" + lr_space + "\"model.dim\" = [33, 35]\n");
  CHECK(said.starts_with("s.toml:7:1: error: trials with model.dim=3"));
  CHECK(said.find("does not divide dim = 3") != std::string::npos);
  CHECK(said.find("error:", said.find("error:") + 1) == std::string::npos);
}

TEST_CASE("integers beyond 2^53 stay exact and in their range") {
  Place place;
  const auto reads = [&](const std::string& method, const std::string& range) {
    return place.read(of_base + "method = \"" + method +
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
  const std::string tail = "budget = { trials = 1 }\n" + lr_space;
  CHECK(place.said("[sweep]\nrecipe = \"base.toml\"\nmetric = \"los\"\n" + tail) ==
        "s.toml:3:10: error: no trial will report a metric `los`\n    3 | metric = \"los\"\n      |          ^~~~~\n  "
        "did you mean `loss`?");
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
  CHECK_THAT(hooked("lots"), ContainsSubstring("no trial will report a metric `lots`"));

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
  CHECK(place.said("[sweep]\nrecipe = \"base.toml\"\nbudget = { trials = 1 }\n" + lr_space) ==
        "s.toml:1:1: error: metric = \"val_loss\" needs data.validation or data.validation_fraction in the recipe; or "
        "use metric = \"loss\"\n    1 | [sweep]\n      | ^~~~~~~");
  CHECK(place.said(of_base + "set = { lr_scheduler = \"cosine\" }\n" + pbt + lr_space) ==
        "s.toml:5:10: error: pbt changes train.max_steps in each generation, and lr_scheduler.name = \"cosine\" "
        "depends on it: use \"constant\", \"step\" or \"inverse_sqrt\"\n    5 | " +
            pbt + "      |          ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~");
}

TEST_CASE("PBT refuses keys that make the checkpoints of its members incompatible") {
  Place place;
  auto said = [&](const std::string& parameter) {
    return place.said(
        of_base +
        "set = { \"optimizer.name\" = \"sgd\", lr_scheduler = \"constant\", checkpoint.save_at_end = true }\n" + pbt +
        "[sweep.space]\n" + parameter + "\n");
  };
  const std::string same_model =
      "pbt's members continue from each other's checkpoints, which need the same model and the same optimizer";
  for (const auto& [key, values] : {std::pair<std::string, std::string>{"model.dim", "[32, 64]"},
                                    {"model.n_layers", "[32, 64]"},
                                    {"optimizer.name", "[\"sgd\", \"adamw\"]"}})
    CHECK_THAT(said("\"" + key + "\" = " + values),
               StartsWith("s.toml:5:10: error: " + same_model + ": `" + key + "` cannot be varied\n"));
  for (const char* parameter :
       {"\"run.seed\" = [1, 2]", "\"data.seq_len\" = [8, 16]", "\"data.shuffle\" = [true, false]"})
    CHECK_THAT(said(parameter), ContainsSubstring("and this key changes the meaning of their position in the data: `"));
  CHECK_THAT(said("\"optimizer.momentum\" = { uniform = [0, 0.9] }"),
             ContainsSubstring("its range must begin above 0"));
  CHECK(said("\"optimizer.momentum\" = { uniform = [0.5, 0.9] }") == "");
}

TEST_CASE("ASHA is refused if its metric comes too late") {
  Place place;
  const auto with = [&](const std::string& interval) {
    return place.said(
        "[sweep]\nrecipe = \"base.toml\"\nbudget = { trials = 1 }\nmethod = { name = \"asha\", min_steps = 2 }\nset = "
        "{ data.validation_fraction = 0.5, train.val_check_interval = " +
        interval + " }\n" + lr_space);
  };
  CHECK_THAT(with("3"),
             StartsWith("s.toml:4:10: error: asha first decides at step 2, and val_loss comes every 3 steps: set "
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

TEST_CASE("an unknown method is the only mistake of a sweep without a budget") {
  Place place;
  CHECK_THAT(place.said(of_base + "method = \"bayes\"\n[sweep.space]\n\"optimizer.lr\" = [0.1]\n"),
             ContainsSubstring("there is no method \"bayes\"") && !ContainsSubstring("needs an end"));
}

TEST_CASE("a budget that leaves out points of a grid gives a note") {
  Place place;
  auto note = [&](const std::string& budget) {
    return budget_note(
        place.read(of_base + "method = \"grid\"\n" + budget + "[sweep.space]\n\"optimizer.lr\" = [0.1, 0.2, 0.3]\n"));
  };
  CHECK(note("budget = { trials = 1 }\n") == "budget = { trials = 1 } leaves out 2 of the 3 trials of method grid");
  CHECK(note("budget = { trials = 3 }\n").empty());
  CHECK(note("").empty());
}
