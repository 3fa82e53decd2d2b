// Fine-tuning: adapters train the same under every strategy, and the base keeps its values.
#include <ATen/Parallel.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/models/adapters.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/recorded_traffic.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

TinyRun lora_run(const std::string& family = "llama", const std::string& method = "lora") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = family;
  run.fine_tune.method = method;
  run.fine_tune.rank = 4;
  run.fine_tune.alpha = 8;
  run.steps = 3;
  run.accumulation = 2;
  return run;
}

bool trained(const std::string& parameter) { return !adapted_matrix(parameter).empty(); }

int64_t elements(const TinyRun& run, bool of_trained) {
  int64_t count = 0;
  const ModelSpec spec = tiny_spec(run);
  for (const auto* parameter : spec.parameters())
    if (parameter->trainable == of_trained) count += parameter->numel();
  return count;
}

}  // namespace

TEST_CASE("adapters begin with the loss of the base, and only they are trained", "[fine_tune][rank4][rank6][rank20]") {
  TinyRun run = lora_run(GENERATE(as<std::string>(), "gpt", "llama", "phi3", "gemma2", "gpt_neox"),
                         GENERATE(as<std::string>(), "lora", "dora"));
  TinyRun base = run, none = run;
  base.fine_tune = {};
  none.steps = 0;
  const auto result = train_tiny(run), of_base = train_tiny(base), initial = train_tiny(none);
  // Norms are computed in fp32 in the step, and in double for the initial magnitudes.
  CHECK_THAT(result.losses.front(),
             Catch::Matchers::WithinRel(of_base.losses.front(), run.fine_tune.has_magnitudes() ? 1e-6 : 0));
  CHECK(result.losses[1] != of_base.losses[1]);
  for (const auto& [name, values] : result.state) {
    INFO(name);
    const auto parameter = name.substr(name.rfind('/') + 1);
    if (name.starts_with("param/"))
      CHECK((values != initial.state.at(name)) == trained(parameter));
    else
      CHECK(trained(parameter));
  }
}

TEST_CASE("adapters train the same under every strategy", "[fine_tune][parity][rank4][rank6][rank20]") {
  TinyRun run = lora_run(GENERATE(as<std::string>(), "gpt", "llama"), GENERATE(as<std::string>(), "lora", "dora"));
  run.fine_tune.dropout = GENERATE(0.0, 0.2);
  run.recompute = GENERATE(false, true);
  run.tied = GENERATE(false, true);
  const auto single = train_tiny(run);
  run.world_size = 2;
  const std::vector<std::pair<std::string, nlohmann::json>> forms = {
      {"ddp", nlohmann::json::object()},
      {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
      {"fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}, {"auto_wrap_policy", "none"}}},
      {"zero", {{"stage", 1}}},
      {"zero", {{"stage", 2}, {"reduce_bucket_size", 500}}},
      {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 100}}}};
  for (const auto& [strategy, options] : forms) {
    run.strategy = strategy;
    run.options = options;
    INFO(strategy << " " << options.dump() << ", recomputed " << run.recompute);
    const auto result = train_tiny(run);
    for (size_t i = 0; i < single.losses.size(); ++i)
      CHECK_THAT(result.losses[i], Catch::Matchers::WithinRel(single.losses[i], 1e-6));
    REQUIRE(result.state.size() == single.state.size());
  }
}

TEST_CASE("only gradients of adapters are sent", "[fine_tune][rank6]") {
  TinyRun run = lora_run();
  run.strategy = "ddp";
  run.world_size = 2;
  const auto claimed = claimed_traffic(run, {});
  for (const auto& steps : record_traffic(run, launch_threads))
    for (const auto& step : steps) CHECK(step.strategy == claimed);
  int64_t bytes = 0;
  const ModelSpec spec = tiny_spec(run);
  for (const auto& traffic : find_strategy("ddp")->entry->traffic(tiny_job(run, spec))) bytes += traffic.payload_bytes;
  CHECK(bytes == 4 * elements(run, true));
}

TEST_CASE("memory with adapters is as predicted, and less than without", "[fine_tune][memory][rank6][rank20]") {
  TinyRun run = lora_run(GENERATE(as<std::string>(), "gpt", "llama"), GENERATE(as<std::string>(), "lora", "dora"));
  run.dim = 64;
  run.seq_len = 64;
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.fine_tune.targets = {GENERATE(as<std::string>(), "all-linear", "*.mlp.*", "*attention.*")};
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  run.fine_tune.dropout = GENERATE(0.0, 0.1);
  run.recompute = GENERATE(false, true);
  run.strategy = GENERATE(as<std::string>(), "single", "fsdp");
  run.world_size = run.strategy == "single" ? 1 : 2;
  static EveryNth chosen(7);
  if (!chosen()) return;
  const ModelSpec spec = tiny_spec(run);
  const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
  const auto measured = measure_memory(run);
  const double error = static_cast<double>(claim.total()) / static_cast<double>(measured.peak) - 1;
  INFO(run.family << ", " << run.fine_tune.method << ", dropout " << run.fine_tune.dropout << ", " << run.strategy
                  << ", " << run.precision << ", recomputed " << run.recompute << ", targets "
                  << run.fine_tune.targets.front() << ": " << 100 * error << " %");
  CHECK(measured.between_steps == claim.between_steps);
  CHECK(error >= -0.01);
  CHECK(error <= 0.03);
  TinyRun full = run;
  full.fine_tune = {};
  if (!run.fine_tune.has_magnitudes()) CHECK(measured.peak < measure_memory(full).peak);
}

TEST_CASE("fine_tune.method = freeze trains the parameters that it names", "[fine_tune][rank6]") {
  TinyRun run = lora_run();
  run.fine_tune = {};
  run.fine_tune.method = "freeze";
  run.fine_tune.trainable = {"blocks.2.*", "head.*"};
  TinyRun none = run;
  none.steps = 0;
  const auto result = train_tiny(run), initial = train_tiny(none);
  for (const auto& [name, values] : result.state)
    if (name.starts_with("param/")) {
      INFO(name);
      CHECK((values != initial.state.at(name)) ==
            (name.starts_with("param/blocks.2.") || name.starts_with("param/head.")));
    }
}

TEST_CASE("memory is as predicted if only the head is trained", "[fine_tune][memory][rank6]") {
  EveryNth chosen(7);
  for (const std::string family :
       {"gpt", "llama", "gemma2", "gpt_neox", "qwen3", "phi3", "olmo2", "mistral", "granite", "bert"})
    for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"})
      for (const double dropout : {0.0, 0.1}) {
        if (!chosen()) continue;
        TinyRun run = lora_run(family);
        run.fine_tune = {};
        run.fine_tune.method = "freeze";
        run.fine_tune.trainable = {"head.*"};
        run.precision = precision;
        run.dropout = dropout;
        run.tied = family == "bert";  // its output layer always is
        run.dim = 64;
        run.seq_len = dropout > 0 ? 192 : 64;
        run.vocab = 503;
        run.loss_chunk_tokens = 128;
        const ModelSpec spec = tiny_spec(run);
        const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
        const auto measured = measure_memory(run);
        const double error = static_cast<double>(claim.total()) / static_cast<double>(measured.peak) - 1;
        INFO(family << ", " << precision << ", dropout " << dropout << ": " << 100 * error << " %");
        CHECK(error >= -0.01);
        CHECK(error <= 0.03);
      }
}

TEST_CASE("modules_to_save are trained completely beside adapters", "[fine_tune][rank4]") {
  TinyRun run = lora_run();
  run.tied = false;
  run.fine_tune.targets = {"q_proj", "attention.wv"};
  run.fine_tune.modules_to_save = {"lm_head"};
  const ModelSpec spec = tiny_spec(run);
  std::vector<std::string> names;
  for (const auto* parameter : spec.parameters())
    if (parameter->trainable && !parameter->name.starts_with("blocks.1.") && !parameter->name.starts_with("blocks.2."))
      names.push_back(parameter->name);
  CHECK(names == std::vector<std::string>{"blocks.0.attention.wq.lora_a", "blocks.0.attention.wq.lora_b",
                                          "blocks.0.attention.wv.lora_a", "blocks.0.attention.wv.lora_b",
                                          "head.weight"});
  const auto result = train_tiny(run);
  run.steps = 0;
  CHECK(result.state.at("param/head.weight") != train_tiny(run).state.at("param/head.weight"));
}
