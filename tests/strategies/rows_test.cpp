// Models that predict labels or numbers of rows train alike under every strategy, in each loss, and use the memory that is
// predicted.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/measured_memory.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

TinyRun mlp_run() {
  TinyRun run;
  run.family = "mlp";
  run.vocab = 5;
  run.loss_chunk_tokens = 0;
  return run;
}

/// Control values and small temporaries of kernels are not predicted.
void check_claim(const MemoryParts& claim, const MeasuredMemory& measured) {
  constexpr double small = 16384;
  const auto claimed = static_cast<double>(claim.total()), peak = static_cast<double>(measured.peak);
  INFO("claimed " << claimed << ", measured " << peak << ": " << 100 * (claimed / peak - 1) << " %");
  CHECK(claimed >= 0.99 * peak - small);
  CHECK(claimed <= 1.03 * peak + small);
}

}  // namespace

TEST_CASE("rank 17: an mlp trains alike under single, ddp, fsdp and zero, with each loss", "[rank17][parity]") {
  at::set_num_threads(1);
  TinyRun run = mlp_run();
  run.loss = GENERATE(as<std::string>(), "cross_entropy", "bce", "mse", "l1", "huber");
  run.dropout = run.loss == "mse" ? 0.2 : 0;
  run.short_last = 7;  // the ranks have different numbers of rows
  const auto single = train_tiny(run);
  CHECK(single.losses.back() < single.losses.front() * 2);
  run.world_size = 2;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  REQUIRE(ddp.losses.size() == single.losses.size());
  for (size_t i = 0; i < ddp.losses.size(); ++i)
    CHECK_THAT(ddp.losses[i], Catch::Matchers::WithinRel(single.losses[i], 1e-5));
  run.strategy = "fsdp";
  for (const char* sharding : {"FULL_SHARD", "SHARD_GRAD_OP"}) {
    run.options = {{"sharding_strategy", sharding}};
    check_equal(train_tiny(run), ddp);
  }
  run.strategy = "zero";
  for (int stage : {1, 2, 3}) {
    run.options = {{"stage", stage}};
    check_equal(train_tiny(run), ddp);
  }
}

TEST_CASE("rank 17: a rank without rows takes part in the step", "[rank17][parity]") {
  at::set_num_threads(1);
  for (const char* loss : {"cross_entropy", "mse"}) {
    TinyRun run = mlp_run();
    run.loss = loss;
    run.short_last = 1;
    const auto single = train_tiny(run);
    run.world_size = 3;
    run.strategy = "fsdp";
    const auto sharded = train_tiny(run);
    CHECK_THAT(sharded.losses.back(), Catch::Matchers::WithinRel(single.losses.back(), 1e-5));
  }
}

TEST_CASE("rank 17: memory of an mlp is as predicted", "[rank17][memory]") {
  at::set_num_threads(1);
  TinyRun run = mlp_run();
  run.features = GENERATE(16, 300);
  run.dim = GENERATE(32, 256);
  run.global_batch = GENERATE(12, 960);
  run.strategy = GENERATE(as<std::string>(), "single", "ddp", "fsdp");
  run.world_size = run.strategy == "single" ? 1 : 2;
  run.dropout = GENERATE(0.0, 0.1);
  run.recompute = GENERATE(false, true);
  const ModelSpec spec = tiny_spec(run);
  const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
  const auto measured = measure_memory(run);
  INFO(run.strategy << ", features " << run.features << ", width " << run.dim << ", rows " << run.global_batch
                    << ", dropout " << run.dropout << ", recompute " << run.recompute);
  CHECK(measured.between_steps == claim.between_steps);
  check_claim(claim, measured);
}

TEST_CASE("rank 15: classifiers of texts train alike under single, ddp, fsdp and zero", "[rank15][parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "bert", "roberta", "gpt", "llama", "gemma2");
  run.labels = 3;
  run.pairs = run.family == "bert" || run.family == "llama";
  run.n_layers = 2;
  run.steps = 3;
  run.short_last = 7;
  run.loss = GENERATE(as<std::string>(), "cross_entropy", "mse");
  run.dropout = run.loss == "mse" ? 0.1 : 0;
  run.optimizer.lr = 1e-3;
  run.recompute = run.loss == "mse";
  const auto single = train_tiny(run);
  run.world_size = 2;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  REQUIRE(ddp.losses.size() == single.losses.size());
  for (size_t i = 0; i < ddp.losses.size(); ++i)
    CHECK_THAT(ddp.losses[i], Catch::Matchers::WithinRel(single.losses[i], 1e-5));
  for (const char* same : {"dp", "fsdp"}) {
    run.strategy = same;
    check_equal(train_tiny(run), ddp);
  }
  run.strategy = "zero";
  for (int stage : {1, 2, 3}) {
    run.options = {{"stage", stage}};
    check_equal(train_tiny(run), ddp);
  }
}

TEST_CASE("rank 15: with adapters the classifier is trained, too, but norms and BERT's pooler only if they are named",
          "[rank15]") {
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "bert", "roberta", "gpt", "llama");
  run.labels = 3;
  run.fine_tune.method = "lora";
  const auto trained = [&] {
    std::vector<std::string> names;
    const auto spec = tiny_spec(run);
    for (const auto* parameter : spec.parameters())
      if (parameter->trainable && parameter->name.starts_with("head")) names.push_back(parameter->name);
    return names;
  };
  const std::vector<std::string> all = {"head.dense.weight", "head.dense.bias", "head.weight", "head.bias"};
  if (run.family == "roberta") CHECK(trained() == all);  // both layers are its classifier
  if (run.family == "bert") CHECK(trained() == std::vector<std::string>{"head.weight", "head.bias"});
  if (run.family == "gpt" || run.family == "llama") {
    CHECK(trained() == std::vector<std::string>{"head.weight"});
    return;
  }
  run.fine_tune.modules_to_save = {"pooler"};
  if (run.family == "bert") CHECK(trained() == all);
}

TEST_CASE("rank 15: memory of classifiers of texts is as predicted", "[rank15][memory]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "bert", "roberta", "gpt", "llama");
  run.labels = 3;
  run.dim = 64;
  run.n_layers = 2;
  run.seq_len = GENERATE(16, 64);
  run.dropout = GENERATE(0.0, 0.1);
  run.pairs = run.dropout > 0;
  run.global_batch = 24;
  run.strategy = GENERATE(as<std::string>(), "single", "fsdp");
  run.world_size = run.strategy == "single" ? 1 : 2;
  run.recompute = GENERATE(false, true);
  const ModelSpec spec = tiny_spec(run);
  const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
  const auto measured = measure_memory(run);
  INFO(run.family << ", " << run.seq_len << " tokens, " << run.strategy << ", dropout " << run.dropout << ", recompute "
                  << run.recompute << ": claimed " << claim.total() << ", measured " << measured.peak);
  CHECK(measured.between_steps == claim.between_steps);
  CHECK_THAT(static_cast<double>(claim.total()), Catch::Matchers::WithinRel(static_cast<double>(measured.peak), 0.05));
}

TEST_CASE("rank 11: a vit trains alike under single, ddp, fsdp and zero", "[rank11][parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = "vit";
  run.vocab = 5;
  run.n_layers = 2;
  run.steps = 3;
  run.dropout = GENERATE(0.0, 0.1);
  run.mixes = run.dropout > 0;
  run.short_last = 7;
  run.optimizer.lr = 1e-3;
  run.recompute = GENERATE(false, true);
  const auto single = train_tiny(run);
  run.world_size = 2;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  for (size_t i = 0; i < ddp.losses.size(); ++i)
    CHECK_THAT(ddp.losses[i], Catch::Matchers::WithinRel(single.losses[i], 1e-5));
  run.strategy = "fsdp";
  check_equal(train_tiny(run), ddp);
  run.strategy = "zero";
  for (int stage : {1, 3}) {
    run.options = {{"stage", stage}};
    check_equal(train_tiny(run), ddp);
  }
}

TEST_CASE("rank 11: a rank without rows takes part in a step with mixed rows", "[rank11][parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = "vit";
  run.vocab = 5;
  run.n_layers = 1;
  run.steps = 2;
  run.mixes = true;
  run.short_last = 1;
  const auto single = train_tiny(run);
  run.world_size = 3;
  run.strategy = "fsdp";
  CHECK_THAT(train_tiny(run).losses.back(), Catch::Matchers::WithinRel(single.losses.back(), 1e-5));
}

TEST_CASE("rank 11: a resnet trains alike under single, ddp, fsdp and zero, with the same running statistics",
          "[rank11][parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = "resnet";
  run.vocab = 5;
  run.steps = 3;
  run.optimizer.lr = 1e-3;
  run.layer_type = GENERATE(as<std::string>(), "basic", "bottleneck");
  run.recompute = GENERATE(false, true);
  run.sync_batchnorm = GENERATE(false, true);
  run.accumulation = run.sync_batchnorm ? 1 : 2;  // the micro-batches are those of two ranks
  const auto single = train_tiny(run);
  const auto moved = single.state.at("param/stem.norm.running_mean");
  CHECK(std::ranges::any_of(moved, [](float value) { return value != 0; }));
  run.accumulation = 1;
  run.world_size = 2;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  for (size_t i = 0; i < ddp.losses.size(); ++i)
    CHECK_THAT(ddp.losses[i], Catch::Matchers::WithinRel(single.losses[i], 1e-4));
  for (const auto& [name, values] : single.state)
    if (name.find("running") != std::string::npos)
      for (size_t i = 0; i < values.size(); ++i) {
        INFO(name);
        CHECK_THAT(ddp.state.at(name)[i],
                   Catch::Matchers::WithinRel(values[i], 1e-3f) || Catch::Matchers::WithinAbs(values[i], 1e-5));
      }
  run.strategy = "fsdp";
  check_equal(train_tiny(run), ddp);
  run.strategy = "zero";
  for (int stage : {1, 3}) {
    run.options = {{"stage", stage}};
    check_equal(train_tiny(run), ddp);
  }
}

TEST_CASE("rank 11: memory of vision models is as predicted", "[rank11][memory]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "vit", "resnet");
  run.layer_type = GENERATE(as<std::string>(), "basic", "bottleneck");
  if (run.family == "vit" && run.layer_type == "bottleneck") return;
  run.mixes = GENERATE(false, true);
  run.n_layers = 2;
  run.dim = 64;
  run.global_batch = 24;
  run.strategy = GENERATE(as<std::string>(), "single", "fsdp");
  run.world_size = run.strategy == "single" ? 1 : 2;
  run.vocab = run.mixes && run.strategy == "single" ? 2000 : 5;  // shares of many classes can be measured
  const ModelSpec spec = tiny_spec(run);
  const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
  const auto measured = measure_memory(run);
  INFO(run.family << " " << run.layer_type << " " << run.strategy);
  check_claim(claim, measured);
}
