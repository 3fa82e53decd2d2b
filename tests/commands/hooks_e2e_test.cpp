// Hooks in processes: metrics in the ledger, state over a resume, and runs that end because of them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// The tiny recipe with the hook file hooks/probe.lua.
void write_hooked_recipe(const Workplace& place, const std::string& hook, const std::string& extra = "") {
  write_tiny_recipe(place, "[hooks]\nfiles = [\"hooks/probe.lua\"]\n" + extra);
  place.write("hooks/probe.lua", hook);
}

CommandResult run(const Workplace& place, const std::string& strategy, int ranks) {
  return place.run(
      {"run", "tiny.toml", "--json", "--set", "strategy=" + strategy, "--set", "devices=" + std::to_string(ranks)});
}

}  // namespace

TEST_CASE("a hook logs into the ledger, skips a step, keeps its state over a resume, and stops the run", "[e2e]") {
  auto [strategy, ranks] = GENERATE(table<std::string, int>({{"single", 1}, {"ddp", 2}, {"fsdp", 2}}));
  INFO(strategy << " on " << ranks);
  Workplace place;
  write_hooked_recipe(place, R"(return {
    options = {limit = {type = "integer", default = 100}},
    on_before_optimizer_step = function(ctx)
      ctx:log("norm/embedding", ctx:gradient("embedding.tokens.weight"):norm())
      if ctx.step == 1 and ctx.is_global_zero then ctx:skip_step() end
    end,
    on_train_batch_end = function(ctx, state, options)
      state.calls = (state.calls or 0) + 1
      print("call " .. state.calls)
      ctx:log("calls", state.calls, {sync = "max"})
      if state.calls == options.limit and ctx.world.rank == ctx.world.size - 1 then ctx:stop("it is enough") end
    end})",
                      "[hooks.probe]\nlimit = 7\n[checkpoint]\nevery_n_steps = 2\n");
  auto result = run(place, strategy, ranks);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("status") == "finished");
  CHECK(result.json().at("steps") == 7);
  CHECK_THAT(result.err, ContainsSubstring("stopped at step 7 by hook probe: ") && ContainsSubstring("it is enough"));
  CHECK(place.points("calls").back() == json({7, 7.0}));
  CHECK_THAT(result.err, ContainsSubstring("\ncall 1\n") && !ContainsSubstring("\ncall 1\ncall 1\n"));
  CHECK_THAT(slurp(fs::path(result.json().at("run_dir").get<std::string>()) / "logs/rank-0.log"),
             ContainsSubstring("call 7\n"));
  CHECK(place.points("norm/embedding").size() == 7);
  auto resumed = place.run({"resume", "last", "--json", "--set", "hooks.probe.limit=9"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(resumed.json().at("steps") == 9);
  CHECK(place.points("calls").back() == json({9, 9.0}));
  CHECK_THAT(resumed.err, !ContainsSubstring("has changed"));
  if (strategy != "single") return;
  place.write("hooks/probe.lua",
              "return {options = {limit = {type = 'integer'}}, on_train_batch_end = function(ctx) if ctx.step == 10 "
              "then ctx:stop('ten') end end}");
  auto changed = place.run({"resume", "last", "--json"});
  INFO(changed.err);
  CHECK(changed.json().at("steps") == 10);
  CHECK_THAT(changed.err, ContainsSubstring("note: ") &&
                              ContainsSubstring("hooks/probe.lua has changed since this run was last started; the run "
                                                "uses the new version"));
}

TEST_CASE("a hook that fails ends the run with the recipe's line; disabled, it does not change the losses", "[e2e]") {
  auto strategy = GENERATE(as<std::string>(), "ddp", "fsdp");
  INFO(strategy);
  Workplace place;
  auto endless = GENERATE(false, true);
  write_hooked_recipe(place,
                      endless ? "return {on_train_batch_end = function() while true do pcall(error) end end}"
                              : "return {\n  on_train_batch_end = function(ctx) error('broken') end}",
                      "instruction_limit = 100000\n");
  auto failed = run(place, strategy, 2);
  CHECK(failed.code == 1);
  CHECK_THAT(failed.err, ContainsSubstring("hook probe failed in on_train_batch_end: ") &&
                             ContainsSubstring(endless ? "Lua instructions" : "probe.lua:2: broken") &&
                             ContainsSubstring("the recipe names it at tiny.toml:23:"));
  auto disabled =
      place.run({"run", "tiny.toml", "--json", "--set", "strategy=" + strategy, "--set", "hooks.on_error=disable"});
  INFO(disabled.err);
  REQUIRE(disabled.code == 0);
  CHECK_THAT(disabled.err, ContainsSubstring("it is disabled from now on"));
  auto losses = place.points("loss");
  write_tiny_recipe(place);
  REQUIRE(run(place, strategy, 2).code == 0);
  CHECK(place.points("loss") == losses);
}

TEST_CASE("train.early_stopping ends a run that does not improve", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto result = place.run({"run", "tiny.toml", "--json", "--set", "train.val_check_interval=1", "--set",
                           "train.early_stopping={patience=2,min_delta=100.0}"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("steps") == 3);
  CHECK_THAT(result.err, ContainsSubstring("hook early_stopping: val_loss has not improved on"));
}

TEST_CASE("the memory of ema is predicted, and its average can be exported instead of the weights", "[e2e]") {
  auto strategy = GENERATE(as<std::string>(), "ddp", "fsdp", "deepspeed_stage_1");
  INFO(strategy);
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nsave_top_k = 0\n[hooks]\nfiles = [\"ema\"]\n");
  auto result = run(place, strategy, 2);
  INFO(result.err);
  REQUIRE(result.code == 0);
  auto summary = result.json();
  auto plan = json::parse(slurp(fs::path(summary.at("run_dir").get<std::string>()) / "plan.json"));
  double predicted = plan.at("memory_bytes_per_rank");
  CHECK(plan.at("memory_parts").at("hooks") > 0);
  for (double measured : summary.at("peak_memory_bytes_per_rank")) CHECK(std::abs(measured / predicted - 1) < 0.03);
  REQUIRE(place.run({"export", "last", "--output", "weights"}).code == 0);
  auto average = place.run({"export", "last", "--output", "average", "--weights", "ema/average"});
  INFO(average.err);
  REQUIRE(average.code == 0);
  CHECK(slurp(place.path() / "average/model.safetensors").size() ==
        slurp(place.path() / "weights/model.safetensors").size());
  CHECK(slurp(place.path() / "average/model.safetensors") != slurp(place.path() / "weights/model.safetensors"));
}

TEST_CASE("shipped hooks in use: averages over a resume, a text in the ledger and in a file", "[e2e]") {
  auto strategy = GENERATE(as<std::string>(), "ddp", "fsdp");
  INFO(strategy);
  auto recipe = [](const Workplace& place) {
    write_tiny_recipe(place, R"(val_check_interval = 3
[checkpoint]
every_n_steps = 3
[hooks]
files = ["ema", "label_smoothing", "sample_generation"]
[hooks.ema]
decay = 0.9
[hooks.sample_generation]
prompt = "line 4"
max_new_tokens = 5
)");
  };
  Workplace whole, parts;
  recipe(whole);
  recipe(parts);
  REQUIRE(run(whole, strategy, 2).code == 0);
  auto first = parts.run({"run", "tiny.toml", "--set", "strategy=" + strategy, "--set", "train.max_steps=6"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  auto rest = parts.run({"resume", "last", "--json", "--set", "train.max_steps=12"});
  INFO(rest.err);
  REQUIRE(rest.code == 0);
  CHECK_THAT(rest.err, ContainsSubstring("sample at step 12:\n  line 4"));
  CHECK(parts.points("val_loss") == whole.points("val_loss"));
  CHECK(parts.points("loss") == whole.points("loss"));
  auto shown = parts.run({"show", "last", "--json"}).json();
  int samples = 0;
  for (const auto& event : shown.at("events")) samples += event.at("event") == "sample";
  CHECK(samples == 4);
  CHECK(slurp(fs::path(rest.json().at("run_dir").get<std::string>()) / "artifacts/samples.txt")
            .starts_with("step 3\nline 4"));
}
