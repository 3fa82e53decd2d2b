// Why a run stopped, what is recorded about it, and how it can be trained longer.
#include <fmt/format.h>
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using nlohmann::json;

TEST_CASE("numbers that are not finite end a run without a restart", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto result =
      place.run({"run", "tiny.toml", "--json", "--set", "optimizer.lr=1e30", "--set", "train.max_restarts=2"});
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK(result.err.find("the loss or a gradient is not finite at step 2 (loss nan, gradient norm nan); "
                        "train.on_nonfinite = \"skip\" would skip such steps") != std::string::npos);
  CHECK(place.run({"show", "last", "--json"}).json().at("attempts").size() == 1);
  CHECK(events_of(place, "failed").size() == 2);
  CHECK(place.run({"metrics", "last", "--name", "loss", "--csv"}).out.ends_with("\n2,nan\n"));
  auto later = place.run(
      {"run", "tiny.toml", "--set", "optimizer.lr=1e30", "lr_scheduler.warmup_steps=3", "checkpoint.every_n_steps=1"});
  CHECK_THAT(later.err, ContainsSubstring("\ncontinue with other settings, because a resume repeats the same steps: "
                                          "runner resume "));
}

TEST_CASE("steps that are skipped because they are not finite are counted", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto result = place.run({"run", "tiny.toml", "--set", "optimizer.lr=1e30", "train.on_nonfinite=skip"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err,
             ContainsSubstring("note: step 2 was skipped (train.on_nonfinite = \"skip\"): loss ") &&
                 ContainsSubstring("warning: 11 of 12 steps were skipped, because their loss or a gradient was "
                                   "not finite (train.on_nonfinite = \"skip\")\n"));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("\n  skipped   11 of 12 steps (train.on_nonfinite)\n"));
  auto skipped = events_of(place, "skipped");
  REQUIRE(skipped.size() == 4);  // the counts are powers of two
  CHECK(skipped[0].at("step") == 2);
  CHECK(skipped[3].at("total") == 8);
  auto more = place.run({"resume", "--set", "train.max_steps=14"});
  CHECK_THAT(more.err, ContainsSubstring("warning: 13 of 14 steps were skipped"));
}

TEST_CASE("a fixed loss scale that overflows is an error, and skipped steps alone give a note", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"zero\"\n[precision]\nmode = \"16-mixed\"\n");
  auto fixed = place.run({"run", "tiny.toml", "--set", "strategy.loss_scale=1e30"});
  INFO(fixed.err);
  CHECK(fixed.code == 1);
  CHECK_THAT(fixed.err, ContainsSubstring("is not finite at step 1 (loss 5.") &&
                            ContainsSubstring("the fixed loss scale of 1e+30 may be too large: lower "
                                              "strategy.loss_scale, or set it to 0 for a dynamic scale; "));
  auto skipped = place.run({"run", "tiny.toml", "--set", "strategy.loss_scale=1e30", "train.on_nonfinite=skip"});
  CHECK(skipped.code == 0);
  CHECK_THAT(skipped.err, ContainsSubstring("warning: 12 of 12 steps were skipped"));
  auto lowered = place.run({"run", "tiny.toml", "--set", "strategy.initial_scale_power=60", "train.max_steps=4"});
  INFO(lowered.err);
  CHECK(lowered.code == 0);
  CHECK_THAT(lowered.err, ContainsSubstring("note: no step of this attempt changed the parameters: all were skipped"));
}

TEST_CASE("the last step is recorded, also if a hook, train.max_time or a signal ends the training", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[hooks]\nfiles = [\"probe.lua\"]\n");
  place.write("probe.lua",
              "return {on_train_batch_end = function(ctx) if ctx.step == 6 then ctx:stop('enough') end end}");
  auto hook = place.run({"run", "tiny.toml", "--json", "--set", "train.log_every_n_steps=100"});
  INFO(hook.err);
  REQUIRE(hook.code == 0);
  auto loss = place.points("loss");
  REQUIRE(loss.size() == 2);
  CHECK(loss[1][0] == 6);
  CHECK(loss[1][1] == hook.json().at("final_loss"));
  auto early =
      place.run({"run", "tiny.toml", "--json", "--unset", "hooks.files", "--set", "train.log_every_n_steps=100",
                 "train.val_check_interval=2", "train.early_stopping={patience=1, min_delta=100.0}"});
  INFO(early.err);
  REQUIRE(early.code == 0);
  CHECK(place.points("loss").back()[0] == 4);
  CHECK(place.points("loss").back()[1] == early.json().at("final_loss"));
  auto time = place.run({"run", "tiny.toml", "--json", "--unset", "hooks.files", "--set",
                         "train.log_every_n_steps=1000000", "train.max_steps=1000000", "train.max_time=1s"});
  INFO(time.err);
  REQUIRE(time.code == 0);
  CHECK(place.points("loss").back()[1] == time.json().at("final_loss"));
  for (const int signal : {SIGINT, SIGTERM}) {
    Workplace stopping;
    write_tiny_recipe(stopping, checkpoints);
    const pid_t pid = stopping.start(
        {"run", "tiny.toml", "--json", "--set", "train.log_every_n_steps=1000000", "train.max_steps=1000000"});
    REQUIRE(wait_until([&] { return has_checkpoint(stopping, 2); }, 30));
    ::kill(pid, signal);
    const auto stopped = stopping.finish(pid);
    INFO(stopped.err);
    CHECK(stopping.points("loss").back() == json{stopped.json().at("steps"), stopped.json().at("final_loss")});
  }
}

TEST_CASE("the result of a resumed run includes what the run had reached", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.run({"run", "tiny.toml", "--set", "train.max_steps=4"}, {{"RUNNER_FAULT", "published:1"}});
  REQUIRE(has_checkpoint(place, 1));
  auto resumed = place.run({"resume", "--json"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  const auto listed = place.run({"ls", "--json"}).json().at("runs").at(0);
  CHECK(resumed.json().at("steps") == 4);
  CHECK(resumed.json().at("metric") == "val_loss");
  CHECK(resumed.json().at("metric_value") == listed.at("metric_value"));
  CHECK(resumed.json().at("final_loss") == listed.at("final_loss"));
}

TEST_CASE("with save_top_k, each validation writes a checkpoint, also if the loss is monitored", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nsave_top_k = 8\nmonitor = \"loss\"\nsave_at_end = false\n");
  REQUIRE(place.run({"run", "tiny.toml", "--set", "train.val_check_interval=4"}).code == 0);
  CHECK(has_checkpoint(place, 3));
}

TEST_CASE("a run that a hook stopped, killed before it had ended, does not train on", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 4\n[hooks]\nfiles = [\"probe.lua\"]\n");
  place.write("probe.lua", R"(return {
    on_train_batch_end = function(ctx) if ctx.step == 6 then ctx:stop("enough") end end,
    on_train_end = function(ctx) ctx:log("end", ctx.step) end})");
  place.run({"run", "tiny.toml"}, {{"RUNNER_FAULT", "published:2"}});
  REQUIRE(has_checkpoint(place, 2));
  auto resumed = place.run({"resume", "--json"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(resumed.json().at("steps") == 6);
  CHECK(place.run({"show", "--json"}).json().at("why") == "stopped at step 6 by hook probe: enough");
  CHECK(events_of(place, "stopping").size() == 1);

  // A larger max_steps continues the run. The record of on_train_end then has one point, that of the new end.
  REQUIRE(place.run({"resume", "--set", "train.max_steps=10"}).code == 0);
  auto ends = place.points("end");
  REQUIRE(ends.size() == 1);
  CHECK(ends[0][0] == 10);

  place.write("probe.lua", "return {on_train_start = function(ctx) ctx:stop('at once') end}");
  auto none = place.run({"run", "tiny.toml"});
  CHECK(none.code == 0);
  CHECK_THAT(none.err, ContainsSubstring("\nfinished after 0 steps") && !ContainsSubstring("loss 0.0000"));
}

TEST_CASE("resuming a finished run starts nothing and explains how to train longer", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 4\n[lr_scheduler]\nname = \"cosine\"\n");
  auto whole = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=8"});
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  CHECK_THAT(whole.err, ContainsSubstring("finished after 8 steps: val_loss ") && ContainsSubstring(", loss "));
  CHECK(whole.json().at("metric") == "val_loss");
  CHECK(whole.json().at("metric_value").is_number());
  auto id = whole.json().at("run").get<std::string>();
  const std::string done = "run " + id +
                           " has finished after 8 steps: nothing is left to do\nto train further: runner resume " + id +
                           " --set train.max_steps=N\n";
  for (const auto& words : {std::vector<std::string>{"resume"}, {"resume", "--set", "train.max_steps=8"}}) {
    auto again = place.run(words);
    CHECK(again.code == 0);
    CHECK(again.err == done);
  }
  CHECK(place.run({"resume", "--json"}).json().at("final_loss") == whole.json().at("final_loss"));
  CHECK(place.run({"show", "--json"}).json().at("attempts").size() == 1);

  auto shorter = place.run({"resume", "--set", "train.max_steps=6"});
  CHECK(shorter.code == 2);
  CHECK_THAT(shorter.err, ContainsSubstring("error: train.max_steps = 6: the run continues from step 8 (") &&
                              ContainsSubstring("step-000008), which is later."));
  CHECK(place.run({"show", "--json"}).json().at("status") == "finished");

  auto longer = place.run({"resume", "--set", "train.max_steps=10"});
  CHECK(longer.code == 0);
  CHECK_THAT(longer.err, ContainsSubstring("finished after 10 steps"));
}

TEST_CASE("ls, show and resume give the reason of a run that a hook stopped; it continues without the hook", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto first = place.run({"run", "tiny.toml", "--set", "train.val_check_interval=2",
                          "train.early_stopping={patience=1, "
                          "min_delta=100.0}"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  const std::string why = "stopped at step 4 by hook early_stopping: val_loss has not improved on ";
  auto run = place.run({"show", "--json"}).json();
  CHECK_THAT(run.at("why").get<std::string>(), StartsWith(why));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("\n  why       " + why));
  CHECK_THAT(place.run({"ls"}).out, ContainsSubstring("  " + why));
  auto again = place.run({"resume"});
  CHECK(again.code == 0);
  CHECK_THAT(again.err, ContainsSubstring("has finished after 4 steps (" + why) &&
                            ContainsSubstring(" --unset train.early_stopping\n"));
  auto on = place.run({"resume", "--unset", "train.early_stopping"});
  INFO(on.err);
  CHECK(on.code == 0);
  CHECK(place.run({"show", "--json"}).json().at("steps") == 12);
}

TEST_CASE("the advice after a hook has stopped a run also removes the hook's options", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[hooks]\nfiles = [\"stops.lua\"]\n[hooks.stops]\nat = 2\n");
  place.write(
      "stops.lua",
      "return {options = {at = {type = 'integer', default = 1}},\n"
      "  on_train_batch_end = function(ctx, state, options) if ctx.step == options.at then ctx:stop('x') end end}");
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  CHECK_THAT(place.run({"resume"}).err,
             ContainsSubstring(" --set 'hooks.files=[...]' --unset hooks.stops, without the hook that stopped it\n"));
  auto on = place.run({"resume", "--set", "hooks.files=[]", "--unset", "hooks.stops"});
  INFO(on.err);
  CHECK(on.code == 0);
}

TEST_CASE("the reason of a run that train.max_time stopped is train.max_time", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto ended = place.run({"run", "tiny.toml", "--set", "train.max_time=1s", "train.max_steps=1000000"});
  REQUIRE(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring(" steps (stopped at step ") && ContainsSubstring(" by train.max_time): "));
  auto run = place.run({"show", "--json"}).json();
  CHECK_THAT(run.at("why").get<std::string>(), StartsWith("stopped at step ") && EndsWith(" by train.max_time"));
  CHECK_THAT(place.run({"resume"}).err, ContainsSubstring(" --set train.max_time=LONGER\n"));
}
