// Learning-rate schedules, with edge cases.
#include "runner/config/schedule.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fstream>
#include <set>

#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"

using namespace runner;
using Catch::Matchers::WithinRel;

namespace {
Recipe::LrScheduler schedule(const std::string& name, int64_t warmup = 10) {
  Recipe::LrScheduler s;
  s.name = name;
  s.warmup_steps = warmup;
  s.min_lr_ratio = 0.1;
  return s;
}
}  // namespace

TEST_CASE("warm-up is linear and ends at the full rate") {
  for (const char* name : {"constant", "linear", "cosine", "wsd", "step"}) {
    CHECK_THAT(learning_rate(schedule(name), 1.0, 1, 100), WithinRel(0.1));
    CHECK_THAT(learning_rate(schedule(name), 1.0, 5, 100), WithinRel(0.5));
    CHECK_THAT(learning_rate(schedule(name), 1.0, 10, 100), WithinRel(1.0));
  }
}

TEST_CASE("each schedule ends at its documented rate") {
  CHECK(learning_rate(schedule("constant"), 2.0, 100, 100) == 2.0);
  CHECK_THAT(learning_rate(schedule("linear"), 1.0, 55, 100), WithinRel(0.55));
  CHECK_THAT(learning_rate(schedule("linear"), 1.0, 100, 100), WithinRel(0.1));
  CHECK_THAT(learning_rate(schedule("cosine"), 1.0, 55, 100), WithinRel(0.55));
  CHECK_THAT(learning_rate(schedule("cosine"), 1.0, 100, 100), WithinRel(0.1));
  CHECK_THAT(learning_rate(schedule("wsd"), 1.0, 90, 100), WithinRel(1.0));
  CHECK_THAT(learning_rate(schedule("wsd"), 1.0, 95, 100), WithinRel(0.55));
  CHECK_THAT(learning_rate(schedule("wsd"), 1.0, 100, 100), WithinRel(0.1));
  CHECK_THAT(learning_rate(schedule("linear"), 1.0, 150, 100), WithinRel(0.1));  // stays at the last rate after the end
}

TEST_CASE("step falls by gamma every step_size steps after warm-up") {
  auto s = schedule("step", 2);
  s.step_size = 3;
  s.gamma = 0.5;
  CHECK(learning_rate(s, 1.0, 3, 0) == 1.0);
  CHECK(learning_rate(s, 1.0, 5, 0) == 1.0);
  CHECK(learning_rate(s, 1.0, 6, 0) == 0.5);
  CHECK(learning_rate(s, 1.0, 9, 0) == 0.25);
}

TEST_CASE("the logarithmic warm-up is DeepSpeed's: 0 at the first step, the full rate at the last") {
  auto s = schedule("constant", 1000);
  s.warmup = "log";
  CHECK(learning_rate(s, 3e-4, 1, 0) == 0);
  // WarmupLR._get_gamma() of DeepSpeed: ln(last_batch_iteration + 1) / ln(1000), here at 9, 99 and 999.
  CHECK_THAT(learning_rate(s, 3e-4, 10, 0), WithinRel(1e-4));
  CHECK_THAT(learning_rate(s, 3e-4, 100, 0), WithinRel(2e-4));
  CHECK_THAT(learning_rate(s, 3e-4, 1000, 0), WithinRel(3e-4));
  CHECK(learning_rate(s, 3e-4, 1001, 0) == 3e-4);

  s.warmup_steps = 1;  // DeepSpeed then uses 2
  CHECK(learning_rate(s, 1.0, 1, 0) == 0);
  CHECK(learning_rate(s, 1.0, 2, 0) == 1);
}

TEST_CASE("every schedule has the values of Transformers and PyTorch at each step") {
  std::ifstream file(RUNNER_SOURCE_DIR "/tests/config/reference/schedules.json");
  const auto reference = nlohmann::json::parse(file);
  std::set<std::string> compared;
  for (const auto& one : reference.at("cases")) {
    INFO(one.at("settings").dump());
    Recipe recipe;
    for (const auto& [name, value] : one.at("settings").items()) find_key("lr_scheduler", name)->set(recipe, value);
    compared.insert(recipe.lr_scheduler.name);
    const std::vector<double> factors = one.at("factors");
    for (size_t i = 0; i < factors.size() && static_cast<int64_t>(i) < reference.at("max_steps"); ++i) {
      const auto step = static_cast<int64_t>(i) + 1;
      INFO("step " << step);
      CHECK_THAT(learning_rate(recipe.lr_scheduler, 1.0, step, reference.at("max_steps")),
                 Catch::Matchers::WithinAbs(factors[i], 1e-11));
    }
  }
  for (const auto& shape : schedule_shapes()) CHECK((compared.contains(shape.name) || shape.name == "step"));
}

TEST_CASE("without cycle_steps, cosine_with_restarts is one cycle to the end") {
  auto s = schedule("cosine_with_restarts", 0);
  CHECK(needs_end(s));
  CHECK_THAT(learning_rate(s, 1.0, 1, 100), WithinRel(1.0));
  CHECK_THAT(learning_rate(s, 1.0, 51, 100), WithinRel(0.55));
  s.cycle_steps = 10;
  CHECK_FALSE(needs_end(s));
  CHECK_THAT(learning_rate(s, 1.0, 11, 0), WithinRel(1.0));
  s.cycle_factor = 3;
  CHECK_THAT(learning_rate(s, 1.0, int64_t{1} << 60, 0), Catch::Matchers::WithinAbs(0.55, 0.45));
}

TEST_CASE("schedules have the names of other tools, too") {
  const std::string text =
      "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 8\nn_heads = 1\nmax_seq_len = 8\n"
      "[data]\nformat = \"text\"\ntrain = [\"a\"]\n[train]\nmax_steps = 100\n";
  const auto named = [&](const std::string& name) {
    return parse_recipe(text, "recipe.toml", {"lr_scheduler.name=\"" + name + "\""}).lr_scheduler.name;
  };
  CHECK(named("warmup_stable_decay") == "wsd");
  CHECK(named("constant_with_warmup") == "constant");
  CHECK(named("cosine_with_min_lr") == "cosine");
  CHECK(named("cosine_with_restarts") == "cosine_with_restarts");
  CHECK(named("inverse_sqrt") == "inverse_sqrt");
  CHECK(named("OneCycleLR") == "one_cycle");
  CHECK_THROWS_WITH(named("reduce_lr_on_plateau"),
                    Catch::Matchers::ContainsSubstring("every schedule here is a function of the step"));
  CHECK_THROWS_WITH(parse_recipe(text + "[lr_scheduler]\nname = \"one_cycle\"\nwarmup_steps = 5\n", "recipe.toml"),
                    Catch::Matchers::ContainsSubstring("begins with a warm-up of its own"));
}

namespace {
Recipe with_schedule(const std::string& name, int64_t max_steps, int64_t warmup = 0) {
  Recipe recipe;
  recipe.lr_scheduler = schedule(name, warmup);
  recipe.lr_scheduler.min_lr_ratio = 0;
  recipe.optimizer.lr = 0.01;
  recipe.train.max_steps = max_steps;
  return recipe;
}
}  // namespace

TEST_CASE("a warm-up longer than training gives a note that describes the rate") {
  CHECK(schedule_note(with_schedule("cosine", 20, 20)).empty());
  CHECK(schedule_note(with_schedule("cosine", 10, 20)) ==
        "lr_scheduler.warmup_steps = 20 is more than train.max_steps = 10: warm-up does not end, and the learning "
        "rate reaches 0.005 of 0.01 at the last step; the cosine schedule never starts");
  auto wsd = with_schedule("wsd", 60, 20);
  wsd.lr_scheduler.decay_steps = 40;
  CHECK(schedule_note(wsd).empty());
  wsd.lr_scheduler.decay_steps = 100;
  CHECK(schedule_note(wsd) ==
        "lr_scheduler.decay_steps = 100, but train.max_steps = 60 leaves 40 steps after warm-up: the learning rate "
        "decays "
        "over those, and there is no constant part");
  CHECK(schedule_note(with_schedule("constant", 10, 20)).ends_with("0.005 of 0.01 at the last step"));
  auto epochs = with_schedule("cosine", 10, 20);
  CHECK(warmup_note(epochs, 10).empty());  // schedule_note() says it
  epochs.train.max_steps.reset();
  epochs.train.max_epochs = 1;
  CHECK(warmup_note(epochs, 10) ==
        "lr_scheduler.warmup_steps = 20 is more than the 10 steps of this training: warm-up does not end, and the "
        "learning rate reaches 0.005 of 0.01 at the last step; the cosine schedule never starts");
  CHECK(warmup_note(epochs, 20).empty());
  epochs.run.fast_dev_run = 10;
  CHECK(warmup_note(epochs, 10).empty());
  const std::string text =
      "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 8\nn_heads = 1\nmax_seq_len = 8\n"
      "[data]\nformat = \"text\"\ntrain = [\"a\"]\n[lr_scheduler]\nwarmup_steps = 20\n[train]\nmax_steps = 100\n";
  CHECK(parse_recipe(text, "recipe.toml").notes.empty());
  CHECK(parse_recipe(text, "recipe.toml", {"train.max_steps=10"}).notes.size() == 1);
}

TEST_CASE("a rate of 0 in all steps gives a note, for each schedule") {
  for (const auto& [name, warmup, kind, idle] : {std::tuple("cosine", 0, "linear", true),
                                                 {"linear", 0, "linear", true},
                                                 {"polynomial", 0, "linear", true},
                                                 {"wsd", 0, "linear", true},
                                                 {"constant", 1, "log", true},
                                                 {"constant", 20, "log", true},
                                                 {"cosine", 1, "linear", false},
                                                 {"constant", 0, "linear", false},
                                                 {"step", 0, "linear", false},
                                                 {"cosine_with_restarts", 0, "linear", false},
                                                 {"one_cycle", 0, "linear", false},
                                                 {"inverse_sqrt", 0, "linear", false}}) {
    INFO(name << ", " << warmup << " steps of warm-up: " << kind);
    auto recipe = with_schedule(name, 1, warmup);
    recipe.lr_scheduler.warmup = kind;
    CHECK((schedule_note(recipe).find("has the learning rate 0 in the only step") != std::string::npos) == idle);
  }
  CHECK(schedule_note(with_schedule("cosine", 1)) ==
        "the cosine schedule has the learning rate 0 in the only step of this training, so the weights do not change: "
        "train more steps, or set lr_scheduler.name to \"constant\"");
  CHECK(schedule_note(with_schedule("cosine", 2)).empty());
  auto trial = with_schedule("cosine", 100);
  trial.run.fast_dev_run = 1;
  CHECK(schedule_note(trial) == schedule_note(with_schedule("cosine", 1)));
  CHECK(warmup_note(with_schedule("cosine", 100), 1) == schedule_note(with_schedule("cosine", 1)));  // one epoch
  auto kept = with_schedule("cosine", 1);
  kept.lr_scheduler.min_lr_ratio = 0.1;
  CHECK(schedule_note(kept).empty());
}

TEST_CASE("a resume that changes the learning-rate curve gives a note, one that continues it does not") {
  auto short_run = with_schedule("cosine", 100), long_run = with_schedule("cosine", 200);
  CHECK(rate_change_note(short_run, short_run, 50).empty());
  CHECK(rate_change_note(short_run, long_run, 100) ==
        "the learning rate goes from 0 at step 100 to 0.00492 at step 101, because of train.max_steps = 200 instead of "
        "100: the cosine schedule is computed again from step 1 to the end");
  CHECK(rate_change_note(with_schedule("constant", 100), with_schedule("constant", 200), 100).empty());
  CHECK(rate_change_note(with_schedule("constant", 100, 50), with_schedule("constant", 200, 50), 10).empty());
  auto faster = with_schedule("constant", 100);
  faster.optimizer.lr = 0.02;
  CHECK(rate_change_note(with_schedule("constant", 100), faster, 10) ==
        "the learning rate goes from 0.01 at step 10 to 0.02 at step 11, because of optimizer.lr = 0.02 instead of "
        "0.01");
  auto epochs = with_schedule("linear", 100), more = epochs;
  epochs.train.max_steps = more.train.max_steps = {};
  epochs.train.max_epochs = 2;
  more.train.max_epochs = 3;
  CHECK(rate_change_note(epochs, epochs, 7).empty());
  CHECK(rate_change_note(epochs, more, 7).empty());  // the training knows the steps of an epoch, and compares
  CHECK(rate_change_note(epochs, with_schedule("linear", 100), 7)
            .starts_with("from step 8 on, the schedule is computed with train.max_steps = 100 instead of unset and "
                         "train.max_epochs = unset instead of 2"));
}
