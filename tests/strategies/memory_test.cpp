// The memory that every entry predicts, compared with the counting allocator: equal between steps, within 3 % at the
// peak.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/measured_memory.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

void check_memory_claim(const TinyRun& run) {
  ModelSpec spec = tiny_spec(run);
  Job job = tiny_job(run, spec);
  MemoryParts claim = find_strategy(run.strategy)->entry->memory(job);
  auto measured = measure_memory(run);
  INFO(run.strategy << " " << run.options.dump() << ", " << run.family << ", " << run.precision << ", "
                    << run.world_size << " ranks, accumulation " << run.accumulation << ", recompute " << run.recompute
                    << ", dropout " << run.dropout << ", tied " << run.tied << "; claimed " << claim.parameters << " "
                    << claim.gradients << " " << claim.optimizer << " " << claim.gathered << " " << claim.communication
                    << " " << claim.activations);
  CHECK(measured.between_steps == claim.between_steps);
  CHECK_THAT(static_cast<double>(claim.total()), Catch::Matchers::WithinRel(static_cast<double>(measured.peak), 0.03));
}

/// Large enough that memory outside the prediction (control values, small temporaries of kernels) is negligible.
TinyRun sized(const std::string& family, bool wide) {
  TinyRun run;
  run.family = family;
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.dim = wide ? 128 : 64;  // wide: parameters need more memory than activations
  run.n_layers = 2;
  run.seq_len = wide ? 16 : 64;
  run.global_batch = 12;
  return run;
}

}  // namespace

TEST_CASE("memory of single is as predicted", "[memory]") {
  at::set_num_threads(1);
  TinyRun run = sized(GENERATE(as<std::string>(), "gpt", "llama"), GENERATE(false, true));
  run.accumulation = GENERATE(1, 3);
  run.recompute = GENERATE(false, true);
  run.tied = GENERATE(false, true);
  check_memory_claim(run);
}

TEST_CASE("memory of single is as predicted for each family", "[memory][families]") {
  at::set_num_threads(1);
  for (const auto& family : model_families()) {
    if (family == "gpt" || family == "llama") continue;
    for (bool wide : {false, true})
      for (bool recompute : {false, true}) {
        TinyRun run = sized(family, wide);
        run.recompute = recompute;
        run.tied = family.starts_with("gemma") || family_kind(family) == "encoder";
        check_memory_claim(run);
      }
  }
}

TEST_CASE("memory of convolutions is as predicted for other batches and layers, and in float64", "[memory][families]") {
  at::set_num_threads(1);
  for (const std::string layer_type : {"basic", "bottleneck"})
    for (const std::string precision : {"32-true", "64-true"})
      for (const int64_t batch : {2, 12, 48})
        for (const bool recompute : {false, true}) {
          if (recompute && layer_type == "bottleneck") continue;
          TinyRun run = sized("resnet", false);
          run.layer_type = layer_type;
          run.precision = precision;
          run.global_batch = batch;
          run.recompute = recompute;
          check_memory_claim(run);
        }
}

TEST_CASE("memory of models with other norms and biases is as predicted for long sequences, with dropout and in bf16",
          "[memory][families]") {
  at::set_num_threads(1);
  EveryNth chosen(5);
  for (const std::string family : {"qwen3", "olmo2", "gpt_neox", "bert"})
    for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"})
      for (double dropout : {0.0, 0.1}) {
        if (!chosen()) continue;
        TinyRun run = sized(family, false);
        run.tied = family == "bert";
        run.packed = family == "bert";
        run.precision = precision;
        run.dropout = dropout;
        run.global_batch = 2;
        run.seq_len = 300;
        check_memory_claim(run);
      }
}

TEST_CASE("memory of sliding windows and soft caps is as predicted for long sequences", "[memory][families]") {
  at::set_num_threads(1);
  EveryNth chosen(7);
  for (const std::string family : {"mistral", "gemma2"})
    for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"})
      for (double dropout : {0.0, 0.1})
        for (bool recompute : {false, true})
          for (int64_t seq_len : {96, 300}) {
            if (!chosen()) continue;
            TinyRun run = sized(family, false);
            run.tied = family == "gemma2";
            run.precision = precision;
            run.dropout = dropout;
            run.recompute = recompute;
            run.global_batch = 2;
            run.seq_len = seq_len;
            check_memory_claim(run);
          }
}

TEST_CASE("memory of a loss that hooks compute is as predicted", "[memory]") {
  at::set_num_threads(1);
  EveryNth chosen(5);
  for (const char* family : {"gpt", "llama"})
    for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"})
      for (const int64_t chunk : {0, 128}) {
        if (!chosen()) continue;
        TinyRun run = sized(family, false);
        run.precision = precision;
        run.loss_chunk_tokens = chunk;
        run.token_loss = [](const torch::Tensor& logits, const torch::Tensor& targets) {
          return at::cross_entropy_loss(logits, targets, {}, at::Reduction::None);
        };
        check_memory_claim(run);
      }
}

TEST_CASE("memory of packed rows is as predicted", "[memory]") {
  at::set_num_threads(1);
  EveryNth chosen(7);
  for (const char* family : {"gpt", "llama", "qwen3"})
    for (const char* precision : {"32-true", "64-true", "bf16-mixed", "bf16-true"})
      for (bool recompute : {false, true})
        for (bool wide : {false, true})
          for (double dropout : {0.0, 0.1}) {
            if (!chosen()) continue;
            TinyRun run = sized(family, wide);
            run.packed = true;
            run.precision = precision;
            run.recompute = recompute;
            run.dropout = dropout;
            check_memory_claim(run);
          }
}

TEST_CASE("memory of ddp is as predicted, with each of its options", "[memory]") {
  at::set_num_threads(1);
  TinyRun run = sized(GENERATE(as<std::string>(), "gpt", "llama"), GENERATE(false, true));
  run.strategy = "ddp";
  run.world_size = 2;
  run.accumulation = GENERATE(1, 3);
  run.recompute = GENERATE(false, true);
  run.options = GENERATE(nlohmann::json::object(), nlohmann::json{{"gradient_as_bucket_view", false}},
                         nlohmann::json{{"ddp_comm_hook", "bf16_compress"}, {"bucket_cap_mb", 0.1}});
  check_memory_claim(run);
}

TEST_CASE("memory of fsdp is as predicted, with each of its options", "[memory]") {
  at::set_num_threads(1);
  TinyRun run = sized(GENERATE(as<std::string>(), "gpt", "llama"), GENERATE(false, true));
  run.strategy = "fsdp";
  run.accumulation = GENERATE(1, 3);
  run.recompute = GENERATE(false, true);
  static EveryNth chosen(3);
  for (std::string sharding : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"}) {
    run.world_size = sharding == "HYBRID_SHARD" ? 4 : 3;
    run.global_batch = 4 * run.world_size * run.accumulation;
    run.options = {{"sharding_strategy", sharding}};
    if (sharding == "HYBRID_SHARD") run.options["hybrid_group_size"] = 2;
    if (chosen()) check_memory_claim(run);
  }
}

TEST_CASE("memory of zero is as predicted, in each stage", "[memory]") {
  at::set_num_threads(1);
  TinyRun run = sized(GENERATE(as<std::string>(), "gpt", "llama"), GENERATE(false, true));
  run.strategy = "zero";
  auto [accumulation, recompute] = GENERATE(std::pair(1, false), std::pair(3, false), std::pair(1, true));
  run.accumulation = accumulation;
  run.recompute = recompute;
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  static EveryNth chosen(7);
  for (nlohmann::json options :
       {nlohmann::json{{"stage", 1}}, nlohmann::json{{"stage", 2}}, nlohmann::json{{"stage", 3}},
        nlohmann::json{{"stage", 1}, {"reduce_bucket_size", 10'000'000}},
        nlohmann::json{{"stage", 2}, {"reduce_bucket_size", 5'000}, {"sub_group_size", 20'000}},
        nlohmann::json{{"stage", 2}, {"reduce_scatter", false}, {"allgather_partitions", false}},
        nlohmann::json{{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}},
        nlohmann::json{{"stage", 3}, {"stage3_param_persistence_threshold", 1000}, {"stage3_max_reuse_distance", 0}}}) {
    run.world_size = 3;
    run.global_batch = 4 * run.world_size * run.accumulation;
    run.options = options;
    if (chosen()) check_memory_claim(run);
  }
}

TEST_CASE("a sharded strategy never has the unsharded model in memory, also while it is made or loaded", "[memory]") {
  at::set_num_threads(1);
  TinyRun run = sized("gpt", true);
  run.n_layers = 6;
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  for (int world_size : {1, 2, 3, 4})
    for (const auto& [strategy, options] : std::vector<std::pair<std::string, nlohmann::json>>{
             {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
             {"fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}}},
             {"fsdp", {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", world_size % 2 == 0 ? 2 : 1}}},
             {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}}) {
      run.world_size = world_size;
      run.global_batch = 4 * world_size;
      run.strategy = strategy;
      run.options = options;
      ModelSpec spec = tiny_spec(run);
      auto claim = find_strategy(strategy)->entry->memory(tiny_job(run, spec));
      constexpr int64_t piece = 4096, small = 4096;
      auto measured = measure_loading(run, piece);
      INFO(strategy << " " << options.dump() << ", " << run.precision << ", " << world_size << " ranks");
      CHECK(measured.placed <= claim.parameters + small);
      CHECK(measured.loaded <= claim.parameters + claim.optimizer + piece * 8 + small);
    }
}

TEST_CASE("memory is as predicted for other units, precisions, dropout and tied weights", "[memory]") {
  at::set_num_threads(1);
  auto family = GENERATE(as<std::string>(), "gpt", "llama");
  TinyRun run = sized(family, GENERATE(false, true));
  run.world_size = 2;
  for (std::string strategy : {"ddp", "fsdp"}) {
    run.strategy = strategy;
    for (std::string precision : {"bf16-mixed", "bf16-true", "64-true"}) {
      TinyRun other = run;
      other.precision = precision;
      check_memory_claim(other);
    }
    TinyRun dropped = run;
    dropped.dropout = 0.1;
    check_memory_claim(dropped);
    TinyRun untied = run;
    untied.tied = false;
    check_memory_claim(untied);
  }
  run.options = {{"auto_wrap_policy", "none"}};
  check_memory_claim(run);
  run.options = {{"auto_wrap_policy", "size"}, {"min_num_params", 40'000}};
  check_memory_claim(run);
  run.options = {{"reduce_every_micro_batch", false}};
  run.accumulation = 3;
  check_memory_claim(run);
}
