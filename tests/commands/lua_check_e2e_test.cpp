// `runner lua check` with hooks in the built programs. Strategies: script_strategies_e2e_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("runner lua check trains a tiny model with a hook, resumes it, and ends it with an error", "[e2e][lua]") {
  Workplace place;
  place.write("norms.lua", R"lua(
return {
  name = "norms",
  about = "Logs the norm of the head's gradient.",
  options = {every = {type = "integer", default = 5, min = 1, help = "steps"}},
  on_before_optimizer_step = function(ctx, state, options)
    if ctx.step % options.every == 0 then ctx:log("norm", ctx:gradient("embedding.tokens.weight"):norm(), {sync = "max"}) end
  end,
  on_load_checkpoint = function() end,
  on_exception = function(ctx) assert(ctx.exception:find("as a test")) end,
  teardown = function() print("bye") end,
  on_train_start = function() print("run 2 of it") print("note: by a hook") end,
}
)lua");
  auto result = place.run({"lua", "check", "norms.lua"});
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("hook norms: Logs the norm of the head's gradient.\n"
                                           "  every = 5  # steps\n"
                                           "on_train_start: 3 calls\n"
                                           "on_before_optimizer_step: 13 calls\n"
                                           "on_load_checkpoint: 2 calls\n"
                                           "on_exception: 1 call\n"
                                           "teardown: 2 calls\n"
                                           "  log norm = ") &&
                             ContainsSubstring(" at step 10, 3 values\n"));
  CHECK_THAT(result.err, ContainsSubstring("\nbye\n") && ContainsSubstring("\nrun 2 of it\nnote: by a hook\n") &&
                             ContainsSubstring(
                                 "norms.lua is fine: every line of it ran (a condition in line 7 decides whether a "
                                 "call there ran); two ranks trained 6 steps with it, stopped, and continued from the "
                                 "checkpoint for 6 more"));
  CHECK_FALSE(fs::exists(place.home() / "runs"));  // it leaves no run
}

TEST_CASE("runner lua check finds what only a real training on two ranks shows", "[e2e][lua]") {
  Workplace place;
  auto said = [&](const std::string& body) {
    place.write("hook.lua", "return {name = 'hook', " + body + "}");
    auto result = place.run({"lua", "check", "hook.lua"});
    CHECK(result.code == 1);
    CHECK_THAT(result.err, !ContainsSubstring("is fine"));
    return result.err;
  };
  CHECK_THAT(said("on_train_batch_end = function(ctx) if ctx.is_global_zero then ctx.world:barrier() end end"),
             ContainsSubstring("barrier: every rank must call it, in the same order: rank 0 is at barrier, rank 1 at"));
  CHECK_THAT(said("on_validation_end = function(ctx) ctx:parameter('head.weight') end"),
             ContainsSubstring("parameter: the model has no parameter \"head.weight\""));
  CHECK_THAT(said("on_exception = function(ctx) nothing() end"),
             ContainsSubstring("hook hook failed in on_exception: hook.lua:1: "));
  CHECK_THAT(said("on_train_start = function() while true do end end"),
             ContainsSubstring("failed in on_train_start: ") && ContainsSubstring("hook.lua:1: took more than "));
  CHECK_THAT(said("on_train_end = function(ctx)\n  local same = ctx same:lgo('x', 1) end"),
             ContainsSubstring("failed in on_train_end: hook.lua:2: a context has no `lgo`; did you mean `log`?"));
  place.write("nan.lua", "return {on_train_end = function(ctx) ctx:log('z', -(0/0)); ctx:log('y', 0/0) end}");
  CHECK_THAT(place.run({"lua", "check", "nan.lua"}).out,
             ContainsSubstring("  log z = nan at step") && ContainsSubstring("  log y = nan at step"));
  place.write("stops.lua",
              "return {setup = function(ctx) ctx:stop('enough') end, on_train_batch_end = function() end}");
  auto stops = place.run({"lua", "check", "stops.lua"});
  CHECK(stops.code == 0);
  CHECK_THAT(stops.err,
             ContainsSubstring("stops.lua has no error in what ran; not called: on_train_batch_end; every line "
                               "of it ran; two ranks trained 0 steps with it"));
  place.write("early.lua",
              "return {on_train_batch_end = function(ctx) if ctx.step == 3 then ctx:stop('enough') end end}");
  CHECK_THAT(
      place.run({"lua", "check", "early.lua"}).err,
      ContainsSubstring("two ranks trained 3 steps with it, stopped, and continued from the checkpoint for 9 more"));
}

TEST_CASE("runner lua check prints the lines of a hook that never ran", "[e2e][lua]") {
  Workplace place;
  place.write("late.lua", R"lua(
local function shout(text)
  print(text)
end
return {
  on_train_batch_end = function(ctx, state)
    state.seen = (state.seen or 0) + 1
    if state.seen > 1000 then
      for i = 1, 3 do
        shout("step " .. ctx.step)
      end
    elseif ctx.loss > 1e9 then shout("diverged") else
      ctx:log("seen", state.seen)
    end
  end,
}
)lua");
  const auto result = place.run({"lua", "check", "late.lua"});
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("never ran:\n"
                                           "  3: print(text)\n"
                                           "  9: for i = 1, 3 do\n"
                                           "  10: shout(\"step \" .. ctx.step)\n"));
  CHECK_THAT(result.err,
             ContainsSubstring("late.lua has no error in what ran; lines that never ran: 3, 9-10 (a condition in "
                               "line 12 decides whether a call there ran); two ranks trained 6 steps"));
}

TEST_CASE("what a hook asks of its context must exist, also in a branch that never runs", "[e2e][lua]") {
  Workplace place;
  place.write("patience.lua",
              "return {on_train_batch_end = function(ctx)\n"
              "  if ctx.step > 1000 then\n"
              "    ctx:halt(\"no progress\")\n"
              "  end\n"
              "end}\n");
  const std::string mistake =
      "patience.lua:3:9: error: a context has no `halt`; it has artifact, checkpoint, generate, gradient, log, "
      "parameter, "
      "parameter_names, set_lr, skip_step, snapshot, stop, epoch, exception, is_global_zero, is_last_step, loss, lr, "
      "max_steps, metrics, recipe, step, world\n"
      "    3 |     ctx:halt(\"no progress\")\n"
      "      |         ^~~~\n";
  auto result = place.run({"lua", "check", "patience.lua"});
  CHECK(result.code == 2);
  CHECK(result.err == mistake);
  write_tiny_recipe(place, "[hooks]\nfiles = [\"patience.lua\"]\n");
  result = place.run({"check", "tiny.toml"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err + result.out, ContainsSubstring(mistake) && ContainsSubstring("the file is named here"));
  const auto said = [&](const std::string& text) {
    place.write("hook.lua", text);
    return place.run({"lua", "check", "hook.lua"}).err;
  };
  // In a local function that gets the context, in a closure, and under another name.
  CHECK_THAT(
      said("local function late(text, c)\n  c:lgo(text, 1)\nend\n"
           "return {on_train_end = function(ctx) if ctx.step > 99 then late('x', ctx) end end}"),
      ContainsSubstring("hook.lua:2:5: error: a context has no `lgo`") && ContainsSubstring("did you mean `log`?"));
  CHECK_THAT(
      said("return {on_train_end = function(c) local f = function() return c.stpe end if c.step > 99 then f() end "
           "end}"),
      ContainsSubstring("hook.lua:1:66: error: a context has no `stpe`") && ContainsSubstring("did you mean `step`?"));
  CHECK_THAT(said("return {on_train_end = function(ctx) if ctx.step > 99 then ctx.lr = 1 end end}"),
             ContainsSubstring("hook.lua:1:64: error: `lr`: the fields of a context cannot be set"));
  CHECK_THAT(said("return {on_train_end = function(ctx) if ctx.step > 99 then ctx.world:all_redcue(1) end end}"),
             ContainsSubstring("hook.lua:1:70: error: a world has no `all_redcue`") &&
                 ContainsSubstring("did you mean `all_reduce`?"));
  // A variable of the same name that is not the context.
  CHECK_THAT(said("local function show(ctx) return ctx.title end\n"
                  "return {on_train_end = function(ctx) if ctx.step > 99 then show({title = 'x'}) end end}"),
             !ContainsSubstring("error"));
}

TEST_CASE("runner lua check tries a loss over the rows of all ranks with the loss_chunk_tokens of the recipe",
          "[e2e][lua]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("whole.toml", "extends = \"tiny.toml\"\nmodel.loss_chunk_tokens = 0\n");
  place.write("rows.lua", R"lua(
return {
  loss = function(ctx, logits, targets)
    local mean = ctx.world:all_gather(logits:softmax(), true):mean(1)
    return (logits:logsumexp() - logits:gather(targets)) * (mean * mean):sum()
  end,
}
)lua");
  auto result = place.run({"lua", "check", "rows.lua"});
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("it is the same with model.loss_chunk_tokens = 0"));
  result = place.run({"lua", "check", "rows.lua", "--recipe", "whole.toml"});
  CHECK(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("rows.lua is fine: every line of it ran"));
}

TEST_CASE("runner lua check refuses a wrong option of the hook in the recipe", "[e2e][lua]") {
  Workplace place;
  place.write("norms.lua", "return {name = 'norms', options = {every = {type = 'integer', default = 5, min = 1}}}");
  write_tiny_recipe(place, "[hooks.norms]\nevery = 0\n[hooks]\nfiles = [\"norms.lua\"]\n");
  auto result = place.run({"lua", "check", "norms.lua", "--recipe", "tiny.toml"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("`every` must be at least 1, not 0 (an option of the hook norms)"));
}
