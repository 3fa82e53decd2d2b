// The hooks of recipes/hooks that average, rewind and generate, with ranks as threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "runner/train/hooks/generate.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/hooked_run.hpp"
#include "tests/support/rank_check.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

/// Saves a checkpoint and validates after every step.
void watch_closely(HookedRun& run, int64_t steps) {
  run.recipe.train.max_steps = steps;
  run.recipe.checkpoint.every_n_steps = 1;
  run.recipe.checkpoint.keep_last = 0;
  run.recipe.train.val_check_interval = 1;
  run.validation_rows = 12;
}

std::vector<double> validations(const HookedRun& run) {
  std::vector<double> losses;
  for (const auto& event : run.events_of("validation")) losses.push_back(event.at("loss"));
  return losses;
}

/// The validation loss for the parameters `value(name)`, computed without hooks.
double validation_loss(const HookedRun& run, const std::function<torch::Tensor(const std::string&)>& value) {
  TinyRun tiny = run.tiny;
  tiny.strategy = "single";
  tiny.options = json::object();
  tiny.world_size = tiny.accumulation = 1;
  double sum = 0;
  run_ranks(1, [&](World& world) {
    with_strategy(tiny, world, [&](Strategy& strategy) {
      for (const auto& piece : strategy.parameters()) piece.write(0, value(piece.name.substr(6)));
      strategy.state_loaded();
      sum = strategy.evaluate(tiny_batch(tiny, 0, run.validation_rows));
    });
  });
  return sum / static_cast<double>(run.validation_rows * tiny.seq_len);
}

const std::vector<std::string> fine = {"", ""};

}  // namespace

TEST_CASE("ema: validation uses the average of the weights, and training does not change") {
  auto form = GENERATE(HookedForm{2, "ddp"}, HookedForm{2, "fsdp"}, HookedForm{2, "zero", {{"stage", 3}}});
  INFO(name_of(form));
  HookedRun run(form, ""), plain(form, "");
  run.use("ema", {{"decay", 0.5}, {"warm_up", false}, {"start_step", 2}});
  for (auto* each : {&run, &plain}) {
    watch_closely(*each, 5);
    each->go();
    REQUIRE(each->failures == fine);
  }
  CHECK(run.of_steps("loss") == plain.of_steps("loss"));
  CHECK(run.of_steps("grad_norm") == plain.of_steps("grad_norm"));
  for (const auto& name : run.parameter_names()) {
    auto average = run.tensor(2, "param/" + name);
    CHECK(torch::equal(average, plain.tensor(2, "param/" + name)));
    for (int64_t step = 3; step <= 5; ++step) average = (average + run.tensor(step, "param/" + name)) / 2;
    CHECK(most_apart(run.tensor(5, "hook/ema/average/" + name), average) < 1e-6);
  }
  auto averaged = validations(run), raw = validations(plain);
  REQUIRE(averaged.size() == 5);
  CHECK(averaged[0] == raw[0]);
  CHECK(std::abs(averaged[4] - raw[4]) > 1e-3);
  auto of_average = [&](const std::string& name) { return run.tensor(5, "hook/ema/average/" + name); };
  CHECK_THAT(averaged[4], WithinAbs(validation_loss(run, of_average), 1e-5));
}

TEST_CASE("ema: a resumed run has the same average bit for bit, also under another strategy") {
  auto form = GENERATE(HookedForm{2, "ddp"}, HookedForm{2, "fsdp"});
  INFO(name_of(form));
  HookedRun run(form, "");
  run.use("ema", {{"decay", 0.9}});
  watch_closely(run, 5);
  run.go();
  std::map<std::string, torch::Tensor> averages;
  for (const auto& name : run.parameter_names()) averages[name] = run.tensor(5, "hook/ema/average/" + name);
  auto losses = validations(run);
  run.go(run.checkpoint(2));
  REQUIRE(run.failures == fine);
  for (const auto& [name, average] : averages) CHECK(torch::equal(run.tensor(5, "hook/ema/average/" + name), average));
  CHECK(validations(run) == std::vector<double>(losses.begin() + 2, losses.end()));
  auto other = GENERATE(HookedForm{1, "single"}, HookedForm{3, "zero", {{"stage", 1}}}, HookedForm{3, "fsdp"});
  INFO("taken over by " << name_of(other));
  run.tiny.world_size = other.world_size;
  run.tiny.strategy = other.strategy;
  run.tiny.options = other.options;
  run.recipe.train.micro_batch_size = 4;
  run.tiny.accumulation = 3 / other.world_size;
  run.go(run.checkpoint(3));
  CHECK(run.failures == std::vector<std::string>(static_cast<size_t>(other.world_size)));
  for (const auto& [name, average] : averages)
    CHECK(most_apart(run.tensor(5, "hook/ema/average/" + name), average) < 1e-4);
}

TEST_CASE("after a stopped validation, or one with a failing hook, training has its weights again") {
  auto form = GENERATE(HookedForm{1, "single"}, HookedForm{2, "fsdp"});
  INFO(name_of(form));
  HookedRun run(form, ""), plain(form, "");
  run.use("ema");
  for (auto* each : {&run, &plain}) watch_closely(*each, 4);
  run.stop_in_validation = true;
  run.recipe.train.val_check_interval = 3;
  run.go();
  plain.go();
  CHECK(run.result.stopped);
  CHECK(run.result.steps == 3);
  for (const auto& name : run.parameter_names())
    CHECK(torch::equal(run.tensor(3, "param/" + name), plain.tensor(3, "param/" + name)));

  HookedRun failing(form, R"(return {
    on_validation_start = function(ctx)
      for _, name in ipairs(ctx:parameter_names()) do ctx:parameter(name):scale_(0) end
      error("broken")
    end})");
  failing.recipe.hooks.on_error = "disable";
  watch_closely(failing, 4);
  failing.go();
  CHECK(failing.of_steps("loss") == plain.of_steps("loss"));
}

TEST_CASE("swa: uses its learning rate from its start on, and ends with the mean of the weights") {
  auto form = GENERATE(HookedForm{2, "ddp"}, HookedForm{2, "fsdp"});
  INFO(name_of(form));
  HookedRun run(form, ""), longer(form, "");
  run.use("swa", {{"start", 0.5}, {"lr", 0.05}});
  watch_closely(run, 4);
  longer.use("swa", {{"start", 2}, {"lr", 0.05}});
  watch_closely(longer, 5);
  run.go();
  longer.go();
  REQUIRE(run.failures == fine);
  REQUIRE(longer.failures == fine);
  CHECK(run.of_steps("lr") == std::vector<double>{1e-2, 1e-2, 0.05, 0.05});
  for (const auto& name : run.parameter_names()) {
    auto mean = (longer.tensor(3, "param/" + name) + longer.tensor(4, "param/" + name)) / 2;
    CHECK(most_apart(run.tensor(4, "param/" + name), mean) < 1e-6);
    CHECK(torch::equal(run.tensor(4, "param/" + name), run.tensor(4, "hook/swa/mean/" + name)));
  }
  auto of_mean = [&](const std::string& name) { return run.tensor(4, "param/" + name); };
  CHECK_THAT(validations(run)[3], WithinAbs(validation_loss(run, of_mean), 1e-5));
  auto of_longer = validations(longer);
  CHECK(validations(run) == std::vector<double>(of_longer.begin(), of_longer.begin() + 4));
  auto mean = run.tensor(4, "hook/swa/mean/embedding.tokens.weight");
  run.go(run.checkpoint(3));
  CHECK(torch::equal(run.tensor(4, "hook/swa/mean/embedding.tokens.weight"), mean));
}

TEST_CASE("averages that would never begin are rejected") {
  HookedRun run({1, "single"}, "");
  run.recipe.train.max_steps = 4;
  auto said = [&](const std::string& hook, const json& options) {
    run.recipe.hooks.files = {hook};
    run.recipe.hooks.options = {{hook, options}};
    run.go();
    return run.failures[0];
  };
  CHECK_THAT(said("swa", {{"start", 4}}), ContainsSubstring("averaging would begin at step 5, and training ends at "
                                                            "step 4: there would be no mean"));
  CHECK_THAT(said("swa", {{"start", 0.5}, {"every", 3}}), ContainsSubstring("averaging would begin at step 5"));
  CHECK(said("swa", {{"start", 3}}).empty());
  CHECK_THAT(said("ema", {{"start_step", 5}}),
             ContainsSubstring("`start_step` is 5, and training ends at step 4: there would be no average"));
  CHECK(said("ema", {{"start_step", 4}}).empty());
}

TEST_CASE("loss_spike_rewind: after a spike, an older snapshot is restored, and other data follow") {
  auto form = GENERATE(from_range(forms));
  INFO(name_of(form));
  // The snapshot of step 4 contains the cause of the spike at step 5.
  HookedRun run(form, R"(return {
    on_train_batch_end = function(ctx)
      if ctx.step ~= 4 then return end
      for _, name in ipairs(ctx:parameter_names()) do ctx:parameter(name):scale_(20) end
    end})");
  run.use("loss_spike_rewind", {{"every", 2}, {"warm_up", 2}, {"factor", 1.5}});
  watch_closely(run, 6);
  run.go();
  REQUIRE(run.failures == std::vector<std::string>(static_cast<size_t>(form.world_size)));
  auto losses = run.of_steps("loss");
  CHECK(losses[4] > 1.5 * losses[0]);
  CHECK(losses[5] < losses[0]);
  CHECK(run.logged("rewound_steps") == std::vector<double>{3});
  for (const auto& name : Checkpoint(run.checkpoint(2)).tensors())
    CHECK(torch::equal(run.tensor(5, name), run.tensor(2, name)));
  CHECK(run.state(5).at("strategy") == run.state(2).at("strategy"));
  CHECK(run.state(5).at("step") == 5);
  CHECK(run.state(5).at("data") != run.state(2).at("data"));
  CHECK(run.state(6).at("strategy").at("optimizer_steps") == 3);
}

TEST_CASE("loss_spike_rewind: the cause of a spike is not in the older snapshot, and NaN is a spike") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_end = function(ctx)
      local factor = ctx.step == 4 and 20 or ctx.step == 7 and 0 / 0
      if not factor then return end
      for _, name in ipairs(ctx:parameter_names()) do ctx:parameter(name):scale_(factor) end
    end})");
  run.tiny.skip_nonfinite = true;
  run.use("loss_spike_rewind", {{"every", 2}, {"warm_up", 2}, {"factor", 1.5}, {"max_nan", 2}});
  watch_closely(run, 12);
  run.go();
  REQUIRE(run.failures == fine);
  // Rewinds to 2 at the end of step 5; snapshot at 6; NaN from 8 on; rewinds to 2 again at the end of 9.
  CHECK(run.logged("rewound_steps") == std::vector<double>{3, 7});
  CHECK(torch::equal(run.tensor(9, "param/embedding.tokens.weight"), run.tensor(2, "param/embedding.tokens.weight")));
  CHECK(run.of_steps("loss")[9] < run.of_steps("loss")[0]);
}

TEST_CASE("a snapshot is restored on all ranks or on none, and only between steps") {
  HookedRun run({2, "ddp"}, R"(
    local snapshot
    return {
      on_train_start = function(ctx) snapshot = ctx:snapshot() end,
      on_train_batch_end = function(ctx) if ctx.world.rank == 1 and ctx.step == 2 then snapshot:restore() end end})");
  run.go();
  for (const auto& failure : run.failures)
    CHECK_THAT(failure, ContainsSubstring("restore: every rank must restore the same snapshot: rank 0 restores none, "
                                          "rank 1 restores that of step 0"));
  run.set_hook("return {on_before_optimizer_step = function(ctx) ctx:snapshot() end}");
  run.go();
  CHECK_THAT(run.failures[0], ContainsSubstring("snapshot: not in on_before_optimizer_step: between steps"));
}

TEST_CASE("states whose tensors differ between ranks cannot be saved") {
  HookedRun run({2, "fsdp"}, R"(return {
    on_train_batch_end = function(ctx, state)
      if ctx.world.rank == 1 then state.mine = ctx:parameter("embedding.tokens.weight"):clone() end
    end})");
  run.go();
  for (const auto& failure : run.failures)
    CHECK_THAT(failure, ContainsSubstring("hook probe failed in saving its state: the tensors in its state, "
                                          "or their names, differ between ranks"));
}

TEST_CASE("logits are those of the loss, under every strategy") {
  auto form = GENERATE(from_range(forms));
  auto family = GENERATE(as<std::string>(), "gpt", "llama");
  INFO(family << " " << name_of(form));
  TinyRun tiny;
  tiny.family = family;
  tiny.world_size = form.world_size;
  tiny.strategy = form.strategy;
  tiny.options = form.options;
  run_ranks(form.world_size, [&](World& world) {
    with_strategy(tiny, world, [&](Strategy& strategy) {
      auto batch = tiny_batch(tiny, 3, 2);
      for (int64_t position : {int64_t{0}, int64_t{7}, tiny.seq_len - 1}) {
        HostBatch only = batch;  // the targets at this position
        std::ranges::fill(only.values<int64_t>(token_field::targets), ignored_target);
        double expected = 0;
        for (int64_t row = 0; row < batch.rows; ++row) {
          const auto at = static_cast<size_t>(position);
          const int64_t target = batch.row<int64_t>(token_field::targets, row)[at];
          only.row<int64_t>(token_field::targets, row)[at] = target;
          auto logits = strategy.logits(tiny_batch(tiny, 3 + row, 1), position);
          auto shares = torch::from_blob(logits.data(), {std::ssize(logits)}, torch::kFloat32).log_softmax(0);
          expected -= shares[target].item<double>();
        }
        const double loss = strategy.evaluate(only);
        if (world.rank == 0) RANK_CHECK(std::abs(loss - expected) <= 1e-5);
      }
    });
  });
}

TEST_CASE("a token is drawn by the probabilities of the most likely ones") {
  auto logits = torch::tensor({0.0, 2.0, 1.0, -1.0}).log_softmax(0);
  auto shares = logits.exp();
  CHECK(draw_token(logits, 0, 0, 0.99) == 1);
  CHECK(draw_token(logits, 1, 1, 0.99) == 1);
  double first = shares[1].item<double>(), second = shares[2].item<double>();
  CHECK(draw_token(logits, 1, 0, first - 1e-6) == 1);
  CHECK(draw_token(logits, 1, 0, first + 1e-6) == 2);
  CHECK(draw_token(logits, 1, 0, first + second + 1e-6) == 0);
  CHECK(draw_token(logits, 1, 0, 1 - 1e-12) == 3);
  CHECK(draw_token(logits, 1, 2, first / (first + second) + 1e-6) == 2);
  CHECK(draw_token(logits, 1, 2, 1 - 1e-12) == 2);
  CHECK(draw_token(logits, 100, 0, 0.26) == 2);  // nearly equal probabilities
}

TEST_CASE("sample_generation: the text is equal under every strategy, in event and file, and depends on the seed") {
  auto form = GENERATE(from_range(forms));
  INFO(name_of(form));
  auto samples = [](const HookedForm& form, int64_t seed) {
    HookedRun run(form, "");
    run.tiny.vocab = 256;
    run.recipe.data.tokenizer = "bytes";
    run.recipe.data.format = "text";
    run.use("sample_generation", {{"prompt", "ab"}, {"max_new_tokens", 20}, {"seed", seed}, {"temperature", 1.0}});
    watch_closely(run, 2);
    run.go();
    REQUIRE(run.failures == std::vector<std::string>(static_cast<size_t>(form.world_size)));
    std::vector<std::string> texts;
    std::string file;
    for (const auto& event : run.events_of("sample")) {
      texts.push_back(event.at("text"));
      CHECK(texts.back().starts_with("ab"));
      CHECK(event.at("prompt") == "ab");
    }
    CHECK(texts.size() == 2);
    auto kept = read_file(run.folder.path / "artifacts/samples.txt");
    CHECK(kept.starts_with("step 1\nab"));
    CHECK(kept.size() == std::string("step 1\n\n\nstep 2\n\n\n").size() + 2 * 22);
    CHECK(run.events_of("artifact").size() == 1);
    return texts;
  };
  auto texts = samples(form, 5);
  CHECK(texts == samples({1, "single"}, 5));
  CHECK(texts != samples(form, 6));
}

TEST_CASE("generate rejects requests that differ between ranks, invalid tokens, and calls inside a step") {
  HookedRun run({2, "ddp"}, "");
  auto said = [&](const std::string& moment, const std::string& call) {
    run.set_hook("return {" + moment + " = function(ctx) " + call + " end}");
    run.go();
    return run.failures[0];
  };
  CHECK_THAT(said("on_train_batch_end", "ctx:generate{prompt = {1, 2}, seed = ctx.world.rank}"),
             ContainsSubstring("every rank must call it, in the same order: rank 0 is at generate of"));
  CHECK_THAT(said("on_train_batch_end", "ctx:generate{prompt = {1, 61}}"),
             ContainsSubstring("generate: the prompt has token 61, and the vocabulary has 61"));
  CHECK_THAT(said("on_after_backward", "ctx:generate{prompt = {1}}"),
             ContainsSubstring("generate: not in on_after_backward: a step is in progress"));
  CHECK_THAT(said("on_train_batch_end", "ctx:generate{promt = {1}}"),
             ContainsSubstring("generate: a field cannot be \"promt\"; did you mean \"prompt\"?"));
  CHECK_THAT(said("on_train_batch_end", "ctx:generate{prompt = 'a', top_k = 0.5}"),
             ContainsSubstring("generate: top_k must be an integer"));
  run.recipe.data.format = "bin";
  CHECK_THAT(said("on_train_batch_end", "ctx:generate{prompt = 'a'}"),
             ContainsSubstring("data.format = \"bin\" has no tokenizer; give the prompt as a list of tokens"));
  CHECK(said("on_train_batch_end", "ctx:log('n', #ctx:generate{prompt = {1, 2}, max_new_tokens = 30})").empty());
  CHECK(run.logged("n")[0] == 32);  // more than the model's context length
}

TEST_CASE("only rank 0 appends to an artifact, and artifacts are only in the run's folder") {
  HookedRun run({2, "ddp"}, R"(return {
    on_train_batch_end = function(ctx)
      ctx:artifact("notes.txt"):write("step ", ctx.step, " at ", 0.5, "\n")
    end})");
  run.recipe.train.max_steps = 2;
  run.go();
  CHECK(read_file(run.folder.path / "artifacts/notes.txt") == "step 1 at 0.5\nstep 2 at 0.5\n");
  CHECK(run.events_of("artifact").size() == 1);
  write_file_atomic(run.folder.path / "outside", "untouched");
  fs::create_symlink(run.folder.path / "outside", run.folder.path / "artifacts/link");
  for (const std::string name : {"../outside", "/etc/passwd", ".hidden", "a/b", "link"}) {
    run.set_hook("return {on_train_batch_end = function(ctx) ctx:artifact('" + name + "'):write('x') end}");
    run.go();
    CHECK_THAT(run.failures[1],
               ContainsSubstring(name == "link" ? "artifact: cannot make" : "is not a plain file name"));
  }
  CHECK(read_file(run.folder.path / "outside") == "untouched");
}
