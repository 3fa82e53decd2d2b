// Training that XLA compiles computes what LibTorch computes.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tests/support/every_nth.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

namespace {

/// The largest difference of losses, relative to the loss.
double largest_difference(const TinyResult& a, const TinyResult& b) {
  REQUIRE(a.losses.size() == b.losses.size());
  double largest = 0;
  for (size_t i = 0; i < a.losses.size(); ++i)
    largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  return largest;
}

TinyRun compiled(TinyRun run, const std::string& strategy, int devices) {
  run.strategy = strategy;
  run.world_size = devices;
  return run;
}

}  // namespace

TEST_CASE("losses over 20 steps are those of LibTorch", "[xla][parity]") {
  EveryNth chosen(5);
  for (const char* family : {"gpt", "llama"}) {
    TinyRun run;
    run.family = family;
    run.steps = 20;
    run.optimizer.lr = 3e-3;
    const auto expected = train_tiny(run);
    for (const int ranks : {1, 2, 4})
      for (const char* strategy : {"xla", "xla_fsdp"}) {
        if (!chosen()) continue;
        INFO(family << ", " << strategy << ", " << ranks << " devices");
        CHECK(largest_difference(train_tiny(compiled(run, strategy, ranks)), expected) < 1e-5);
      }
  }
}

namespace {

/// A change to a run that a program must follow.
struct Form {
  const char* name;
  std::function<void(TinyRun&)> change;
  double bound = 1e-5;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all{
      {"sgd with momentum",
       [](TinyRun& run) { run.optimizer.kind = OptimizerKind::sgd, run.optimizer.momentum = 0.9; }},
      {"nesterov",
       [](TinyRun& run) {
         run.optimizer.kind = OptimizerKind::sgd, run.optimizer.momentum = 0.9, run.optimizer.nesterov = true;
       }},
      {"adam with decay",
       [](TinyRun& run) { run.optimizer.kind = OptimizerKind::adam, run.optimizer.weight_decay = 0.1; }},
      {"lion", [](TinyRun& run) { run.optimizer.kind = OptimizerKind::lion, run.optimizer.lr = 1e-3; }},
      {"a bound for the norm", [](TinyRun& run) { run.clip_norm = 0.5; }},
      {"a bound for values", [](TinyRun& run) { run.clip_value = 0.001; }},
      {"three micro-batches", [](TinyRun& run) { run.accumulation = 3; }},
      {"a short last batch", [](TinyRun& run) { run.short_last = 5; }},
      {"recomputation", [](TinyRun& run) { run.recompute = true; }},
      {"untied embeddings", [](TinyRun& run) { run.tied = false; }},
      {"a frozen embedding", [](TinyRun& run) { run.frozen = {"embedding.*"}; }},
      {"dropout", [](TinyRun& run) { run.dropout = 0.2; }},
      {"dropout with recomputation and micro-batches",
       [](TinyRun& run) { run.dropout = 0.2, run.recompute = true, run.accumulation = 2; }},
      {"a rate for some parameters",
       [](TinyRun& run) { run.optimizer.groups = {{.pattern = "*norm*", .lr = 1e-3, .weight_decay = 0.5}}; }},
      {"double precision", [](TinyRun& run) { run.precision = "64-true"; }, 1e-12},
      {"bf16-mixed", [](TinyRun& run) { run.precision = "bf16-mixed"; }, 1e-2},
      {"bf16-true", [](TinyRun& run) { run.precision = "bf16-true"; }, 2e-2},
  };
  return all;
}

}  // namespace

TEST_CASE("what a recipe changes is in the program", "[xla][parity]") {
  EveryNth chosen(3);
  size_t number = 0;
  for (const auto& form : forms()) {
    const char* strategy = ++number % 2 == 0 ? "xla" : "xla_fsdp";
    if (!chosen()) continue;
    TinyRun run;
    run.steps = 4;
    run.n_layers = 1;
    form.change(run);
    const auto expected = train_tiny(run);
    INFO(form.name << ", " << strategy);
    const auto found = train_tiny(compiled(run, strategy, 2));
    CHECK(largest_difference(found, expected) < form.bound);
    for (size_t i = 0; i < found.norms.size(); ++i)
      CHECK(std::abs(found.norms[i] / expected.norms[i] - 1) < 100 * form.bound);
    REQUIRE(found.state.size() == expected.state.size());
    for (const auto& [name, values] : expected.state) {
      REQUIRE(found.state.contains(name));
      CHECK(found.state.at(name).size() == values.size());
      CHECK(std::ranges::all_of(found.state.at(name), [](float value) { return std::isfinite(value); }));
    }
  }
}

TEST_CASE("each form of xla_fsdp trains what LibTorch trains, also with recomputation", "[xla][parity]") {
  using nlohmann::json;
  for (const auto& options :
       {json{{"sharding_strategy", "SHARD_GRAD_OP"}}, json{{"auto_wrap_policy", "none"}},
        json{{"auto_wrap_policy", "size"}, {"min_num_params", 5000}}, json{{"state_dict_type", "full"}}}) {
    INFO(options.dump());
    TinyRun run;
    run.steps = 3;
    run.n_layers = 2;
    run.recompute = options.contains("sharding_strategy");
    const auto expected = train_tiny(run);
    run.options = options;
    CHECK(largest_difference(train_tiny(compiled(run, "xla_fsdp", 3)), expected) < 1e-5);
  }
}

TEST_CASE("gradients that are summed in bfloat16 are near those in float32, and differ from them", "[xla][parity]") {
  TinyRun run;
  run.steps = 3;
  run.n_layers = 1;
  const auto expected = train_tiny(run);
  run.options = {{"mixed_precision", {{"reduce_dtype", "bfloat16"}}}};
  const double difference = largest_difference(train_tiny(compiled(run, "xla_fsdp", 2)), expected);
  CHECK(difference < 1e-2);
  CHECK(difference > 1e-6);
}

TEST_CASE("parameters after SGD are those of LibTorch", "[xla][parity]") {
  TinyRun run;
  run.optimizer.kind = OptimizerKind::sgd;
  run.optimizer.momentum = 0.9;
  const auto expected = train_tiny(run), found = train_tiny(compiled(run, "xla_fsdp", 4));
  REQUIRE(found.state.size() == expected.state.size());
  for (const auto& [name, values] : expected.state) {
    INFO(name);
    const auto& others = found.state.at(name);
    REQUIRE(others.size() == values.size());
    float largest = 0;
    for (size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::abs(values[i] - others[i]));
    CHECK(largest < 1e-5f);
  }
}

TEST_CASE("validation sums and logits are those of LibTorch", "[xla][parity]") {
  TinyRun run;
  run.n_layers = 1;
  const auto both = [&](const TinyRun& each) {
    std::vector<double> sums;
    std::mutex mutex;
    run_ranks(each.world_size, [&](World& world) {
      with_strategy(each, world, [&](Strategy& strategy) {
        strategy.step(tiny_input(each, world.rank, 0));
        const double sum = strategy.sum_over_ranks(strategy.evaluate(tiny_input(each, world.rank, 1).micro_batches[0]));
        const auto logits = strategy.logits(tiny_batch(each, 0, 1), 5);
        strategy.step(tiny_input(each, world.rank, 1));  // the host's parameters were only read
        const auto again = strategy.logits(tiny_batch(each, 0, 1), 5);
        if (world.rank > 0) return;
        const std::lock_guard lock(mutex);
        sums = {sum};
        for (const auto& list : {logits, again}) sums.insert(sums.end(), list.begin(), list.end());
      });
    });
    return sums;
  };
  const auto expected = both(run), found = both(compiled(run, "xla_fsdp", 2));
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 2e-4);
}

TEST_CASE("a step that is not finite changes nothing", "[xla][parity]") {
  for (const bool skips : {false, true}) {
    auto run = compiled({}, "xla", 2);
    run.n_layers = 1;
    run.skip_nonfinite = skips;
    run_ranks(2, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        strategy.step(tiny_input(run, world.rank, 0));
        const auto all = strategy.state();
        all.front().local.fill_(std::numeric_limits<float>::infinity());
        strategy.state_loaded();
        std::vector<torch::Tensor> before;
        for (const auto& tensor : all) before.push_back(tensor.local.clone());
        const auto result = strategy.step(tiny_input(run, world.rank, 1));
        RANK_CHECK(result.skipped && result.finite == skips);
        const auto after = strategy.state();
        for (size_t i = 0; i < after.size(); ++i) RANK_CHECK(after[i].local.equal(before[i]));
        RANK_CHECK(strategy.scalars().at("optimizer_steps") == 1);
      });
    });
  }
}

}  // namespace runner::testing
