// Losses in Lua: values and gradients compared with closed forms, under every strategy, in chunks and with
// recomputation.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/models/cross_entropy.hpp"
#include "runner/models/token_loss.hpp"
#include "runner/train/hooks/loss.hpp"
#include "strategies/collective/gathered_rows.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/hooked_run.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

const char* const cross_entropy = R"(return {
  loss = function(ctx, logits, targets) return logits:logsumexp() - logits:gather(targets) end})";

/// The loss of a hook, without a training.
struct LuaLoss {
  TemporaryFolder folder;
  Recipe recipe;
  std::unique_ptr<lua::HookSet> hooks;
  TokenLoss loss = [this](const torch::Tensor& logits, const torch::Tensor& targets) {
    return loss_of_hook(*hooks, {}, logits, targets);
  };

  explicit LuaLoss(const std::string& body) {
    auto file = folder.path / "loss.lua";
    write_file_atomic(file, "return {loss = function(ctx, logits, targets) " + body + " end}");
    recipe.hooks.files = {file.string()};
    hooks = std::make_unique<lua::HookSet>(recipe);
  }
  LuaLoss(const std::string& shipped, const json& options) {
    recipe.hooks.files = {shipped};
    recipe.hooks.options = {{shipped, options}};
    hooks = std::make_unique<lua::HookSet>(recipe);
  }
};

struct Problem {
  torch::Tensor hidden, weight, targets;
  Problem() {
    auto generator = at::detail::createCPUGenerator(3);
    auto draw = [&](at::IntArrayRef sizes) {
      return at::normal(0.0, 0.7, sizes, generator, torch::kFloat64).requires_grad_(true);
    };
    hidden = draw({37, 12});
    weight = draw({50, 12});
    targets = at::randint(0, 50, {37}, generator, torch::kInt64);
    targets.index_put_({torch::arange(0, 37, 5)}, torch::tensor(-100, torch::kInt64));
    targets.narrow(0, 14, 7).fill_(-100);  // a chunk of seven tokens without valid targets
  }
  torch::Tensor logits() const { return at::linear(hidden, weight); }
  /// Rows with valid targets.
  torch::Tensor counted(const torch::Tensor& of) const { return of.index({targets.ne(-100)}); }
  std::vector<torch::Tensor> gradients(const torch::Tensor& loss) const {
    return torch::autograd::grad({loss * 0.37}, {hidden, weight});
  }
};

/// Compares the loss in Lua with a closed form, in chunks of any size, and without gradients.
void check_loss(const LuaLoss& in_lua, const std::function<torch::Tensor(const Problem&)>& closed_form) {
  Problem p;
  auto expected = closed_form(p);
  auto gradients = p.gradients(expected);
  for (int64_t chunk : {0, 1, 7, 36, 1000}) {
    CAPTURE(chunk);
    auto loss = chunked_token_loss(p.hidden, p.weight, p.targets, chunk, in_lua.loss);
    CHECK_THAT(loss.item<double>(), WithinAbs(expected.item<double>(), 1e-10));
    auto actual = p.gradients(loss);
    CHECK(most_apart(actual[0], gradients[0]) < 1e-12);
    CHECK(most_apart(actual[1], gradients[1]) < 1e-12);
    torch::NoGradGuard no_grad;  // as in a recomputed block's forward
    auto again = chunked_token_loss(p.hidden, p.weight, p.targets, chunk, in_lua.loss);
    CHECK_THAT(again.item<double>(), WithinAbs(expected.item<double>(), 1e-10));
  }
  p.targets.fill_(-100);
  for (int64_t chunk : {0, 7}) {  // with 0, the loss is called for no tokens
    CAPTURE(chunk);
    auto loss = chunked_token_loss(p.hidden, p.weight, p.targets, chunk, in_lua.loss);
    CHECK(loss.item<double>() == 0);
    for (const auto& gradient : p.gradients(loss)) CHECK(gradient.count_nonzero().item<int64_t>() == 0);
  }
}

}  // namespace

TEST_CASE("label_smoothing: loss and gradients equal LibTorch's, and the closed form with z-loss") {
  check_loss(LuaLoss("label_smoothing", {{"smoothing", 0.2}}), [](const Problem& p) {
    return at::cross_entropy_loss(p.logits(), p.targets, {}, at::Reduction::Sum, -100, 0.2);
  });
  check_loss(LuaLoss("label_smoothing", {{"smoothing", 0.0}, {"z_loss", 0.03}}), [](const Problem& p) {
    return at::cross_entropy_loss(p.logits(), p.targets, {}, at::Reduction::Sum, -100) +
           0.03 * p.counted(p.logits()).logsumexp(1).square().sum();
  });
}

TEST_CASE("every operation of the tensors of a loss has LibTorch's gradient") {
  auto hit = [](const torch::Tensor& of, const Problem& p) { return of.gather(1, p.counted(p.targets).unsqueeze(1)); };
  check_loss(LuaLoss("local p = logits:softmax():gather(targets); return (1 - p):pow(2) * -p:log()"),
             [&](const Problem& p) {
               auto share = hit(at::softmax(p.counted(p.logits()), 1), p);
               return ((1 - share).square() * -share.log()).sum();
             });
  check_loss(LuaLoss("local capped = 5 * (logits / 5):tanh(); return -capped:log_softmax():gather(targets)"),
             [](const Problem& p) {
               return at::cross_entropy_loss(5 * (p.logits() / 5).tanh(), p.targets, {}, at::Reduction::Sum, -100);
             });
  check_loss(
      LuaLoss("local e = (logits - logits:max():detach()):exp(); return (e:sum() / e:gather(targets)):log()"),
      [](const Problem& p) { return at::cross_entropy_loss(p.logits(), p.targets, {}, at::Reduction::Sum, -100); });
  check_loss(
      LuaLoss("local x = logits:gather(targets); "
              "return (x:abs() + 1):sqrt() + x:sigmoid() - logits:mean() + 2 ^ x + logits:max()"),
      [&](const Problem& p) {
        auto logits = p.counted(p.logits());
        auto x = hit(logits, p);
        return ((x.abs() + 1).sqrt() + x.sigmoid() - logits.mean(1, true) + x.exp2() + logits.amax(1, true)).sum();
      });
}

TEST_CASE("a loss that returns a wrong value, or combines wrong sizes, gives a clear error") {
  auto said = [](const std::string& body) -> std::string {
    const auto logits = torch::tensor({{1.0, 0.0, -1.0, 0.5}, {0.0, 0.0, 0.0, 0.0}, {-2.0, 3.0, 0.5, 1.0}});
    try {
      LuaLoss("\n" + body).loss(logits, torch::tensor({0, 3, 1}, torch::kInt64));
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  const std::string must =
      "hook loss failed in loss: `loss` must return the losses of its tokens, a tensor [3, 1], not ";
  CHECK(said("return 1") == must + "a number");
  CHECK(said("return logits") == must + "[3, 4]");
  CHECK(said("return targets") == must + "the targets");
  CHECK_THAT(
      said("return logits + logits:sum(1):sum(2):sum() + logits:gather(logits)"),
      ContainsSubstring("loss.lua:2: gather: argument 1 must be targets [3, 1], a column for each row, not [3, 4]"));
  CHECK_THAT(said("return logits:max(1) * logits:gather(targets) + logits:softmax():sum(1) * (logits:max(1) - "
                  "logits:sum(3))"),
             ContainsSubstring("loss.lua:2: sum: dim is 1 (over the tokens) or 2 (over each token's columns), not 3"));
  CHECK_THAT(said("return logits + logits:gather(targets) + logits:max(1):max(2)"), ContainsSubstring("must return"));
  CHECK_THAT(said("return logits:softmax():sum(1) + targets"), ContainsSubstring("must return"));
  CHECK_THAT(said("return logits:scale_(2)"),
             ContainsSubstring("the tensors of `loss` cannot change; compute a new one"));
  CHECK_THAT(said("return logits:narrow(0, 1)"), ContainsSubstring("narrow: only tensors of strategies have it"));
}

TEST_CASE("cross entropy in Lua gives the losses of the built-in one, under every strategy") {
  auto form = GENERATE(from_range(forms));
  auto recompute = GENERATE(false, true);
  INFO(name_of(form) << (recompute ? ", recomputed" : ""));
  HookedRun run(form, cross_entropy), built_in(form, "");
  for (auto* each : {&run, &built_in}) {
    each->tiny.recompute = recompute;
    each->validation_rows = 12;
    each->go();
    REQUIRE(each->failures == std::vector<std::string>(static_cast<size_t>(form.world_size)));
  }
  auto losses = run.of_steps("loss"), expected = built_in.of_steps("loss");
  REQUIRE(losses.size() == 4);
  for (size_t i = 0; i < losses.size(); ++i) CHECK_THAT(losses[i], WithinAbs(expected[i], 1e-5));
  CHECK_THAT(run.events_of("validation")[0].at("loss").get<double>(),
             WithinAbs(built_in.events_of("validation")[0].at("loss"), 1e-5));
}

TEST_CASE("label_smoothing: training is equal under all strategies; validation uses cross entropy") {
  auto form = GENERATE(from_range(forms));
  INFO(name_of(form));
  HookedRun run(form, ""), reference({1, "single"}, "");
  for (auto* each : {&run, &reference}) {
    each->use("label_smoothing", {{"smoothing", 0.3}, {"z_loss", 1e-3}});
    each->validation_rows = 12;
    each->recipe.train.val_check_interval = 4;
    each->go();
  }
  REQUIRE(run.failures == std::vector<std::string>(static_cast<size_t>(form.world_size)));
  for (size_t i = 0; i < 4; ++i) CHECK_THAT(run.of_steps("loss")[i], WithinAbs(reference.of_steps("loss")[i], 2e-4));
  double validation = run.events_of("validation")[0].at("loss");
  CHECK(validation < run.of_steps("loss")[3] - 0.1);  // the training loss includes the smoothing term
}

TEST_CASE("a loss over the rows of all ranks trains like one over all rows on one rank") {
  const auto losses = [](int ranks, const std::string& sync_grads) {
    HookedRun run({ranks, ranks > 1 ? "fsdp" : "single"}, R"(return {
      loss = function(ctx, logits, targets)
        local mean = ctx.world:all_gather(logits:softmax(), )" +
                                                              sync_grads + R"():mean(1)
        return (logits:logsumexp() - logits:gather(targets)) * (mean:log() * mean):sum()
      end})");
    run.tiny.precision = "64-true";
    run.tiny.loss_chunk_tokens = 0;
    run.tiny.accumulation = 1;
    run.recipe.train.micro_batch_size = run.tiny.global_batch / ranks;
    run.go();
    CHECK(run.failures == std::vector<std::string>(static_cast<size_t>(ranks)));
    return run.of_steps("loss");
  };
  const auto single = losses(1, "true");
  for (const int ranks : {2, 3}) {
    const auto synced = losses(ranks, "true"), plain = losses(ranks, "false");
    for (size_t i = 0; i < single.size(); ++i) CHECK_THAT(synced[i], WithinAbs(single[i], 1e-12));
    CHECK_THAT(plain.front(), WithinAbs(single.front(), 1e-12));
    CHECK(std::abs(plain.back() - single.back()) > 1e-6);
  }
}

TEST_CASE("gathered rows may differ in number between ranks, and one rank may have none") {
  std::vector<torch::Tensor> gathered(3), gradients(3);
  run_ranks(3, [&](World& world) {
    const auto rank = static_cast<size_t>(world.rank);
    auto rows = torch::full({world.rank, 2}, world.rank, torch::kFloat64).requires_grad_(true);
    gathered[rank] = gathered_rows(rows, world.group, {0, 1, 2});
    const auto factors = (world.rank + 1) * torch::arange(6, torch::kFloat64).view({3, 2});
    gradients[rank] = torch::autograd::grad({(gathered[rank] * factors).sum()}, {rows})[0];
  });
  const auto expected = 6 * torch::arange(6, torch::kFloat64).view({3, 2});
  for (const auto& all : gathered) CHECK(all.equal(torch::tensor({{1., 1.}, {2., 2.}, {2., 2.}}, torch::kFloat64)));
  CHECK(torch::cat(gradients).equal(expected));
}

TEST_CASE("a loss can read ctx, but cannot use collectives or change anything") {
  HookedRun run({2, "fsdp"}, R"(return {
    options = {weight = {type = "number", default = 1}},
    loss = function(ctx, logits, targets, options)
      assert(ctx.step >= 0 and ctx.lr > 0 and ctx.world.size == 2 and ctx.recipe.train.max_steps == 4)
      return options.weight * (logits:logsumexp() - logits:gather(targets))
    end})");
  run.go();
  CHECK(run.failures == std::vector<std::string>{"", ""});
  auto said = [&](const std::string& body) -> std::string {
    run.set_hook("local kept\nreturn {loss = function(ctx, logits, targets) " + body + " end}");
    try {
      run.go();
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::run_failed);
      return error.what();
    }
    return "nothing";
  };
  run.recipe.hooks.on_error = "disable";  // must not have an effect here
  run.recipe.hooks.instruction_limit = 200'000;
  CHECK_THAT(said("ctx.world:barrier() return logits:max()"),
             ContainsSubstring("hook probe failed in loss: ") &&
                 ContainsSubstring("barrier: not in `loss`, because the number of its calls differs between ranks"));
  for (const std::string call : {"stop('x')", "log('x', 1)", "checkpoint()", "set_lr(1)", "artifact('x')",
                                 "parameter('embedding.tokens.weight')", "generate{prompt = {1}}", "snapshot()"})
    CHECK_THAT(said("ctx:" + call + " return logits:max()"),
               ContainsSubstring("not in `loss`, which is called for each chunk of tokens"));
  CHECK_THAT(
      said("if kept then kept:exp() end kept = logits return logits:max()"),
      ContainsSubstring("this tensor is not valid any more: it is valid only in the call of `loss` that made it"));
  CHECK_THAT(said("return logits:max():detach()"), ContainsSubstring("does not depend on its logits"));
  CHECK_THAT(said("return logits:gather(targets + 1000)"), ContainsSubstring("gather"));
  CHECK_THAT(said("while true do end"), ContainsSubstring("Lua instructions"));
  CHECK_THAT(said("return ctx.world:all_gather(1, true)"),
             ContainsSubstring("all_gather: sync_grads is for tensors of `loss`; a number has no second argument"));
  run.tiny.loss_chunk_tokens = 0;
  CHECK_THAT(
      said("local rows = ctx.world.rank == 0 and logits or logits:detach() "
           "return logits:max() + ctx.world:all_gather(rows, true):mean(1):mean(2)"),
      ContainsSubstring("rank 0 is at all_gather of [rows, 61] of Float with sync_grads, rank 1 at all_gather of "
                        "[rows, 61] of Float with sync_grads, of rows without a gradient"));
}
