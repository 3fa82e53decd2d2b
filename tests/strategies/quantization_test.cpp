// A base in NF4 under adapters: it computes as its dequantized values do, the same under every strategy, in the memory that is
// predicted.
#include <ATen/Parallel.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/contract/quantized_source.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/recorded_traffic.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinRel;

namespace {

using Forms = std::vector<std::pair<std::string, nlohmann::json>>;

TinyRun quantized_run(const std::string& family = "llama", const std::string& method = "lora") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = family;
  run.fine_tune.method = method;
  run.fine_tune.rank = 4;
  run.fine_tune.quantization = "nf4";
  run.steps = 3;
  run.accumulation = 2;
  return run;
}

/// The same adapters on a base in full precision that has the dequantized values.
TinyRun rounded(TinyRun run) {
  const ModelSpec spec = tiny_spec(run);
  run.change_source = [spec](const ModelSpec&, ParameterSource source) {
    return dequantized_source(spec, std::move(source));
  };
  run.fine_tune.quantization = "none";
  return run;
}

int64_t quantized_elements(const ModelSpec& spec) {
  int64_t count = 0;
  for (const auto* parameter : spec.parameters()) count += parameter->quantized ? parameter->numel() : 0;
  return count;
}

int64_t base_element_bytes(const TinyRun& run) { return bytes_of(precision_policy(run.precision).parameter); }

}  // namespace

TEST_CASE("the frozen matrices of layers are quantized, and nothing else", "[quantization][rank20]") {
  TinyRun run = quantized_run(GENERATE(as<std::string>(), "gpt", "llama", "phi3", "gpt_neox"));
  run.tied = false;
  run.fine_tune.targets = {"*.mlp.*"};
  const ModelSpec spec = tiny_spec(run);
  for (const auto& block : spec.blocks)
    for (const auto& parameter : block.parameters) {
      INFO(parameter.name);
      const bool matrix_of_layer = block.kind == BlockKind::transformer && parameter.shape.size() == 2;
      CHECK(parameter.quantized == (matrix_of_layer && parameter.name.ends_with(".weight")));
      CHECK(parameter.of_base == parameter.quantized);  // the others are in checkpoints, as there is no model.init_from
    }
}

TEST_CASE("a base in NF4 computes as its dequantized values", "[quantization][rank20]") {
  TinyRun run = quantized_run(GENERATE(as<std::string>(), "gpt", "llama"), GENERATE(as<std::string>(), "lora", "dora"));
  run.fine_tune.double_quantization = GENERATE(false, true);
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed", "64-true");
  const auto result = train_tiny(run), expected = train_tiny(rounded(run));
  CHECK(result.losses == expected.losses);
  TinyRun plain = run;
  plain.fine_tune.quantization = "none";
  CHECK(result.losses.front() != train_tiny(plain).losses.front());
  for (const auto& [name, values] : result.state) {
    INFO(name);
    CHECK(values == expected.state.at(name));
  }
}

TEST_CASE("a base in NF4 trains the same under every strategy", "[quantization][parity][rank20]") {
  const auto [family, method] = GENERATE(std::pair{"gpt", "lora"}, std::pair{"llama", "dora"});
  TinyRun run = quantized_run(family, method);
  run.fine_tune.double_quantization = GENERATE(false, true);
  run.recompute = run.fine_tune.double_quantization;
  const auto single = train_tiny(run);
  const Forms forms = {{"ddp", nlohmann::json::object()},
                       {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
                       {"fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}, {"auto_wrap_policy", "none"}}},
                       {"fsdp", {{"sharding_strategy", "NO_SHARD"}}},
                       {"zero", {{"stage", 1}}},
                       {"zero", {{"stage", 2}, {"reduce_bucket_size", 500}}},
                       {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 100}}}};
  for (const int ranks : {2, 3})
    for (const auto& [strategy, options] : forms) {
      run.world_size = ranks;
      run.strategy = strategy;
      run.options = options;
      INFO(strategy << " " << options.dump() << ", " << ranks << " ranks, recomputed " << run.recompute);
      const auto result = train_tiny(run), expected = train_tiny(rounded(run));
      CHECK(result.losses == expected.losses);
      for (size_t i = 0; i < single.losses.size(); ++i) CHECK_THAT(result.losses[i], WithinRel(single.losses[i], 1e-6));
      REQUIRE(result.state.size() == single.state.size());
    }
}

TEST_CASE("training does not change a base in NF4", "[quantization][rank20]") {
  TinyRun run = quantized_run();
  run.strategy = GENERATE(as<std::string>(), "single", "fsdp");
  run.world_size = run.strategy == "single" ? 1 : 2;
  launch_threads(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      const auto batch = tiny_batch(run, 0, 4);
      std::vector<torch::Tensor> initial;
      for (const auto& tensor : strategy.parameters()) initial.push_back(tensor.read(0, tensor.numel()).clone());
      const double before = strategy.evaluate(batch);
      for (int64_t step = 0; step < 3; ++step) strategy.step(tiny_input(run, world.rank, step));
      RANK_CHECK(strategy.evaluate(batch) != before);
      size_t i = 0;
      for (const auto& tensor : strategy.parameters()) tensor.write(0, initial[i++]);
      strategy.state_loaded();
      RANK_CHECK(strategy.evaluate(batch) == before);
    });
  });
}

TEST_CASE("memory with a base in NF4 is as predicted", "[quantization][memory][rank20]") {
  TinyRun run = quantized_run(GENERATE(as<std::string>(), "gpt", "llama"));
  run.dim = 128;
  run.seq_len = 64;
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.fine_tune.double_quantization = GENERATE(false, true);
  run.fine_tune.method = run.fine_tune.double_quantization ? "dora" : "lora";
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  run.recompute = GENERATE(false, true);
  const auto form = GENERATE(std::pair<std::string, nlohmann::json>{"single", nlohmann::json::object()},
                             std::pair<std::string, nlohmann::json>{"ddp", nlohmann::json::object()},
                             std::pair<std::string, nlohmann::json>{"fsdp", nlohmann::json::object()},
                             std::pair<std::string, nlohmann::json>{"zero", {{"stage", 3}}});
  run.strategy = form.first;
  run.options = form.second;
  run.world_size = run.strategy == "single" ? 1 : 2;
  static EveryNth chosen(5);
  if (!chosen()) return;
  const ModelSpec spec = tiny_spec(run);
  const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
  const auto measured = measure_memory(run);
  const double error = static_cast<double>(claim.total()) / static_cast<double>(measured.peak) - 1;
  INFO(run.family << ", " << run.fine_tune.method << ", " << run.strategy << ", " << run.precision << ", recomputed "
                  << run.recompute << ": " << 100 * error << " %");
  CHECK(measured.between_steps == claim.between_steps);
  CHECK(error >= -0.01);
  CHECK(error <= 0.03);
}

TEST_CASE("the row norms of DoRA are in the claim where tokens need little memory", "[quantization][memory][rank20]") {
  for (const bool quantized : {true, false})
    for (const char* family : {"gpt", "llama"})
      for (const bool recompute : {false, true}) {
        TinyRun run = quantized_run(family, "dora");
        run.dim = 128;
        run.n_layers = 2;
        run.vocab = 503;
        run.global_batch = 4;
        run.recompute = recompute;
        run.fine_tune.quantization = quantized ? "nf4" : "none";
        run.precision = quantized ? "bf16-mixed" : "bf16-true";
        const ModelSpec spec = tiny_spec(run);
        const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
        const auto measured = measure_memory(run);
        const double error = static_cast<double>(claim.total()) / static_cast<double>(measured.peak) - 1;
        INFO(family << ", quantized " << quantized << ", recomputed " << recompute << ": " << 100 * error << " %");
        CHECK(error >= -0.01);
        CHECK(error <= 0.03);
      }
}

TEST_CASE("a weight of a base in NF4 takes about half a byte", "[quantization][memory][rank20]") {
  TinyRun run = quantized_run();
  run.dim = 256;
  run.fine_tune.double_quantization = GENERATE(false, true);
  TinyRun plain = run;
  plain.fine_tune.quantization = "none";
  const double weights = static_cast<double>(quantized_elements(tiny_spec(run)));
  const double saved = static_cast<double>(measure_memory(plain).between_steps - measure_memory(run).between_steps);
  const double bytes_each = static_cast<double>(base_element_bytes(run)) - saved / weights;
  INFO(bytes_each << " bytes for each of " << weights << " weights");
  CHECK(bytes_each < (run.fine_tune.double_quantization ? 0.53 : 0.57));
  CHECK(bytes_each > 0.5);
}

TEST_CASE("sharded bases in NF4 are sent packed", "[quantization][recording][rank20]") {
  TinyRun run = quantized_run();
  run.dim = 64;
  run.world_size = 2;
  run.strategy = "fsdp";
  run.fine_tune.double_quantization = GENERATE(false, true);
  const auto claimed = claimed_traffic(run, {});
  for (const auto& steps : record_traffic(run, launch_threads))
    for (const auto& step : steps) CHECK(step.strategy == claimed);
  const auto sent = [](const TinyRun& run) {
    const ModelSpec spec = tiny_spec(run);
    int64_t bytes = 0;
    for (const auto& traffic : find_strategy("fsdp")->entry->traffic(tiny_job(run, spec)))
      if (traffic.collective == "all_gather") bytes += traffic.payload_bytes;
    return static_cast<double>(bytes);
  };
  TinyRun plain = run;
  plain.fine_tune.quantization = "none";
  const double gathers = 4;  // forward and backward of two micro-batches
  const double weights = gathers * static_cast<double>(quantized_elements(tiny_spec(run)));
  CHECK_THAT(sent(plain) - sent(run),
             WithinRel(weights * (4 - (run.fine_tune.double_quantization ? 0.515625 : 0.5625)), 1e-2));
}
