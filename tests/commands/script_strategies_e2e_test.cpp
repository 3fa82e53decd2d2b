// Strategies and comm hooks in Lua in processes: parity, kill and resume, mistakes, registered names.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

std::vector<double> losses_of_training(const Workplace& place, const std::vector<std::string>& overrides) {
  std::vector<std::string> arguments = {"run", "tiny.toml", "--json"};
  for (const auto& text : overrides) arguments.insert(arguments.end(), {"--set", text});
  auto result = place.run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return losses(place);
}

/// The state at the end of a run, with the strategy's values that are not tensors.
std::map<std::string, std::string> whole_state(const std::string& run_dir) {
  auto state = final_state(run_dir);
  runner::Checkpoint checkpoint(runner::list_checkpoints(fs::path(run_dir) / "checkpoints").back());
  state["scalars"] = checkpoint.state().at("strategy").dump();
  return state;
}

}  // namespace

TEST_CASE("data parallelism in Lua equals ddp in processes too, over shared memory and over Gloo", "[e2e][lua]") {
  Workplace place;
  write_tiny_recipe(place);
  auto ranks = GENERATE(as<std::string>(), "2", "3");
  for (std::string backend : {"shm", "gloo"}) {
    INFO(ranks << " ranks over " << backend);
    std::vector<std::string> common{"devices=" + ranks, "devices.process_group_backend=" + backend};
    auto with = [&](const std::string& strategy) {
      auto all = common;
      all.insert(all.begin(), "strategy=" + strategy);
      return losses_of_training(place, all);
    };
    auto ddp = with("ddp");
    if (ranks == "2" || backend == "shm") {
      CHECK(with("lua:ddp") == ddp);
      CHECK(with("{name=\"lua:ddp\",bucket_cap_mb=0.01}") == ddp);
      CHECK(with("{name=\"ddp\",ddp_comm_hook=\"lua:ddp\"}") == ddp);
    }
    if (backend == "shm") CHECK(with("lua:zero1") == ddp);
  }
}

TEST_CASE("a strategy in Lua that is killed and resumed ends bit-equal, including its state", "[e2e][lua]") {
  auto [strategy, one_rank] = GENERATE(table<std::string, bool>(
      {{"name = \"lua:local_sgd\"\nevery = 7\n", false},
       {"name = \"lua:gossip\"\n", true},
       {"name = \"lua:topk\"\ndensity = 0.05\n", false},
       {"name = \"lua:fsdp_layers\"\nevery = 3\n", true},
       {"name = \"ddp\"\nddp_comm_hook = \"lua:topk\"\nddp_comm_hook_options = { density = 0.05 }\n", true}}));
  INFO(strategy << (one_rank ? ", one rank is killed" : ", all are killed"));
  auto write = [&, &options = strategy](const Workplace& place) {
    write_tiny_recipe(place, "[strategy]\n" + options + checkpoints);
  };
  const std::vector<std::string> arguments = {"run",   "tiny.toml", "--json", "--set", "train.max_steps=40",
                                              "--set", "devices=3"};
  Workplace whole;
  write(whole);
  auto expected = whole.run(arguments);
  INFO(expected.err);
  REQUIRE(expected.code == 0);
  Workplace place;
  write(place);
  pid_t pid = place.start(arguments);
  REQUIRE(wait_until([&] { return has_checkpoint(place, 2); }, 60));
  auto workers = children_of(pid);
  ::kill(one_rank && workers.size() == 3 ? workers[1] : pid, SIGKILL);
  auto killed = place.finish(pid);
  if (one_rank) CHECK_THAT(killed.err, ContainsSubstring("rank 1 was killed by signal 9 (SIGKILL)"));
  auto resumed = place.run({"resume", "last", "--json"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(resumed.json().at("final_loss") == expected.json().at("final_loss"));
  CHECK(whole_state(only_run_dir(place)) == whole_state(expected.json().at("run_dir")));
}

TEST_CASE("a strategy in Lua that fails ends the run with its line and the recipe's", "[e2e][lua]") {
  auto [text, message] = GENERATE(table<std::string, std::string>(
      {{"return {reduce = function() while true do pcall(error) end end}", "mine.lua:1: took more than 100000 Lua"},
       {"return {\n  reduce = function(bucket, ctx)\n    if ctx.step == 3 and ctx.world.rank == 1 then error('no') "
        "end\n"
        "    return ctx.world:all_reduce_async(bucket.gradients) end}",
        "mine.lua:3: no"},
       {"return {reduce = function(bucket) local all = {} while true do all[#all + 1] = bucket.gradients:clone() end "
        "end}",
        "mine.lua:1: "}}));
  INFO(text);
  Workplace place;
  write_tiny_recipe(place,
                    "[strategy]\nname = \"lua:scripts/mine.lua\"\n[hooks]\ninstruction_limit = 100000\n"
                    "memory_limit = \"4MiB\"\n");
  place.write("scripts/mine.lua", text);
  auto result = place.run({"run", "tiny.toml", "--json"});
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("failed in reduce: ") && ContainsSubstring(message) &&
                             ContainsSubstring("the recipe names it at tiny.toml:23:8"));
}

TEST_CASE("a registered strategy runs, is shown, and resumes under its name", "[e2e][lua]") {
  Workplace place;
  write_tiny_recipe(place,
                    "[strategy]\nname = \"averaged\"\nregistry = \"lua/strategies.lua\"\nevery = 3\n" + checkpoints);
  place.write("lua/strategies.lua",
              "strategies.register('averaged', strategies.get('lua:local_sgd'), 'Averages now and then')\n");
  auto result = place.run({"run", "tiny.toml", "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  auto shown = place.run({"show", "last", "--json"}).json();
  CHECK(shown.at("strategy") == "averaged");
  CHECK(shown.at("plan").at("options").at("every") == 3);
  auto resumed = place.run({"resume", "last", "--json", "--set", "train.max_steps=15"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(resumed.json().at("steps") == 15);
  CHECK(losses(place).size() == 15);
}

TEST_CASE("`runner strategies` lists shipped, registered and built-in strategies", "[e2e][lua]") {
  Workplace place;
  place.write("strategies.lua",
              "strategies.register('averaged', strategies.get('lua:local_sgd'), 'Averages now and then')\n");
  auto listed = place.run({"strategies", "--registry", "strategies.lua", "--json"});
  INFO(listed.err);
  REQUIRE(listed.code == 0);
  std::map<std::string, json> known;
  const auto list = json::parse(listed.out);
  for (const auto& entry : list.at("strategies")) known[entry.at("name")] = entry;
  for (const char* name : {"ddp", "fsdp", "lua:ddp", "lua:gossip", "lua:local_sgd", "lua:topk", "lua:zero1",
                           "lua:fsdp_layers", "averaged"})
    CHECK(known.contains(name));
  CHECK(known.at("averaged").at("summary") == "Averages now and then");
  place.write("fewer.lua", "strategies.override('fsdp', {base = 'fsdp'}, 'Ours.') strategies.remove('ddp')");
  const auto fewer = json::parse(place.run({"strategies", "--registry", "fewer.lua", "--json"}).out);
  std::map<std::string, std::vector<std::string>> summaries;
  for (const auto& entry : fewer.at("strategies")) summaries[entry.at("name")].push_back(entry.at("summary"));
  CHECK(summaries.at("fsdp") == std::vector<std::string>{"Ours."});
  CHECK_FALSE(summaries.contains("ddp"));
  CHECK_THAT(place.run({"strategies", "ddp", "--registry", "fewer.lua"}).err,
             ContainsSubstring("unknown strategy `ddp`"));
  auto one = place.run({"strategies", "averaged", "--registry", "strategies.lua"});
  CHECK(one.code == 0);
  CHECK_THAT(one.out,
             ContainsSubstring("averaged: Averages now and then") && ContainsSubstring("steps between two averages"));
  CHECK_THAT(place.run({"strategies", "averagd", "--registry", "strategies.lua"}).err,
             ContainsSubstring("unknown strategy `averagd`; did you mean `averaged`?"));
}

TEST_CASE("`runner lua check` trains two ranks with a strategy, and reports where one fails", "[e2e][lua]") {
  Workplace place;
  place.write("mine.lua", R"lua(return {
  about = "Sums in turns.",
  options = {shout = {type = "boolean", default = false}},
  setup = function(ctx) ctx:kept("calls", 1) end,
  reduce = function(bucket, ctx, state, options)
    ctx:kept("calls"):add_(1)
    if options.shout and bucket.index == 1 then print("step " .. ctx.step .. ", " .. ctx:kept("calls"):sum()) end
    return ctx.world:all_reduce_async(bucket.gradients)
  end,
  memory = function() return 4 end,
})lua");
  auto result = place.run({"lua", "check", "mine.lua"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out,
             ContainsSubstring("strategy lua:" + (place.path() / "mine.lua").string() + ": Sums in turns.") &&
                 ContainsSubstring("a rank") && ContainsSubstring("traffic of `"));
  CHECK_THAT(result.err, ContainsSubstring("mine.lua is fine: every line of it ran (a condition in line 7 decides "
                                           "whether a call there ran); two ranks trained 3 steps with it, stopped, and "
                                           "continued from the checkpoint for 3 more"));
  CHECK_FALSE(fs::exists(place.home() / "runs"));  // it leaves no run
  write_tiny_recipe(place, "[strategy]\nname = \"lua:mine.lua\"\nshout = true\n");
  result = place.run({"lua", "check", "mine.lua", "--recipe", "tiny.toml"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("  rank 0: step 5, 6"));  // the checkpoint restored the count
  CHECK(place.run({"lua", "check", "lua:gossip"}).code == 0);

  place.write("late.lua",
              "return {options = {every = {type = 'integer', default = 8}},\n"
              "  reduce = function(bucket, ctx) return ctx.world:all_reduce_async(bucket.gradients) end,\n"
              "  after_update = function(ctx, state, options)\n"
              "    if ctx.step % options.every == 0 then local t; t.x = 1 end end}");
  result = place.run({"lua", "check", "late.lua"});
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("late.lua:4: "));

  place.write("rare.lua",
              "return {\n"
              "  reduce = function(bucket, ctx) return ctx.world:all_reduce_async(bucket.gradients) end,\n"
              "  after_update = function(ctx)\n"
              "    if ctx.step > 1000 then\n"
              "      ctx:kept('late', 1)\n"
              "    end\n"
              "  end}");
  result = place.run({"lua", "check", "rare.lua"});
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("never ran:\n  5: ctx:kept('late', 1)\n"));
  CHECK_THAT(result.err, ContainsSubstring("rare.lua has no error in what ran; lines that never ran: 5; two ranks "
                                           "trained 3 steps with it, stopped, and continued from the checkpoint for 3 "
                                           "more"));

  place.write("fails.lua", "return {\n  reduce = function(bucket, ctx)\n    bucket.gradients:nrom()\n  end}");
  result = place.run({"lua", "check", "fails.lua"});
  CHECK(result.code == 2);  // found before the training
  CHECK_THAT(result.err, ContainsSubstring("fails.lua:3:22: error: a tensor has no `nrom`; it has ") &&
                             ContainsSubstring("did you mean `norm`?"));
  place.write("wrong.lua", "return {reduse = function() end, shard = function() return true end}");
  result = place.run({"lua", "check", "wrong.lua"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err,
             ContainsSubstring("`reduse` is not part of a strategy") && ContainsSubstring("did you mean `reduce`?"));
}

TEST_CASE("`runner strategies lua:FILE` shows a file's options, and shipped recipes train", "[e2e][lua]") {
  Workplace place;
  auto shown = place.run({"strategies", "lua:topk"});
  INFO(shown.err);
  CHECK(shown.code == 0);
  CHECK_THAT(shown.out, ContainsSubstring("lua:topk: Sends the largest gradients only") &&
                            ContainsSubstring("part of a bucket that is sent"));
  int count = 0;
  for (const auto& file : fs::directory_iterator(RUNNER_SOURCE_DIR "/recipes/strategies_lua")) {
    if (file.path().extension() != ".toml") continue;
    INFO(file.path());
    ++count;
    auto result = place.run({"run", file.path().string(), "--json", "--set", "train.max_steps=12", "--set",
                             "devices.accelerator=cpu", "--set", "train.log_every_n_steps=1"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    auto curve = losses(place);
    REQUIRE(curve.size() == 12);
    CHECK(curve.back() < curve.front() - 0.05);
  }
  CHECK(count == 5);
}

TEST_CASE("an extension in processes trains like its base, with rates that its function sets", "[e2e][lua]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("mine.lua", R"lua(return {base = "fsdp",
  options = {factor = {type = "number", default = 1}},
  setup_optimizer = function(groups, options) groups[#groups].lr = groups[#groups].lr * options.factor end,
})lua");
  const auto with = [&](const std::string& strategy, const std::string& lr) {
    return losses_of_training(place, {"strategy=" + strategy, "devices=2", "optimizer.lr=" + lr});
  };
  const auto fsdp = with("fsdp", "0.004");
  CHECK(with("lua:mine.lua", "0.004") == fsdp);
  CHECK(with("{name=\"lua:mine.lua\",factor=2}", "0.002") == fsdp);
  CHECK(with("lua:mine.lua", "0.002") != fsdp);
}

TEST_CASE("`runner check` finds mistakes of an extension without a training", "[e2e][lua]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"lua:mine.lua\"\n");
  const auto says = [&](const std::string& fields, const std::string& message) {
    INFO(fields);
    place.write("mine.lua", "return {base = 'fsdp',\n" + fields + "}");
    const auto result = place.run({"check", "tiny.toml"});
    CHECK(result.code == 2);
    CHECK_THAT(result.err + result.out, ContainsSubstring(message));
  };
  says("after_update = function(ctx) ctx.modle:parameter('x') end",
       "mine.lua:2:34: error: a context has no `modle`; it has kept, zeros, buckets, loss_scale, model, step, world\n"
       "    2 | after_update = function(ctx) ctx.modle:parameter('x') end}\n"
       "      |                                  ^~~~~\n"
       "  did you mean `model`?\n");
  // A branch that never runs is checked, too.
  says("after_update = function(ctx)\n  if ctx.step > 20 then\n    ctx.modle:parameter('x')\n  end\nend",
       "mine.lua:4:9: error: a context has no `modle`; it has ");
  says("units = function(blocks) return {{'embedding'}} end", "mine.lua: `units`: ");
  says("setup_optimizer = function(groups) groups[#groups].rate = 1 end",
       "`setup_optimizer`: the group of all other parameters has no `rate`");
  place.write("mine.lua", "return {base = 'fdsp'}");
  CHECK_THAT(place.run({"check", "tiny.toml"}).err,
             ContainsSubstring("base = \"fdsp\": there is no built-in strategy of that name; did you mean \"fsdp\"?"));
  place.write("mine.lua", "return {base = 'fsdp', after_update = function(ctx) ctx.model:parameter_names() end}");
  CHECK(place.run({"check", "tiny.toml"}).code == 0);
}
