// Predicted compared with published throughput: the accuracy of the device table before any run.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/models/models.hpp"
#include "runner/selection/device_kinds.hpp"
#include "runner/selection/step_time.hpp"
#include "runner/selection/strategy_options.hpp"

using namespace runner;

namespace {

/// One line of a published benchmark: bf16, FSDP over all devices (unless there is one), tokens per second and device.
struct Published {
  std::string source;
  std::string family;
  int64_t vocab, dim, layers, heads, kv_heads, hidden, tokens, micro_batch;
  bool recompute;
  std::string sharding;  ///< "" on one device
  std::string device;
  int devices, nodes;
  double tokens_per_s;
};

const std::vector<Published> published = {
    {"llm-foundry, 125M T2048", "gpt", 50368, 768, 12, 12, 12, 0, 2048, 8, false, "FULL_SHARD", "a100-80g", 8, 1,
     142'830},
    {"llm-foundry, 350M T1024", "gpt", 50368, 1024, 24, 16, 16, 0, 1024, 16, false, "FULL_SHARD", "a100-80g", 8, 1,
     64'813},
    {"llm-foundry, 760M T1024", "gpt", 50368, 1536, 24, 12, 12, 0, 1024, 16, false, "FULL_SHARD", "h100-80g", 8, 1,
     78'581},
    {"llm-foundry, 1B T2048", "gpt", 50368, 2048, 24, 16, 16, 0, 2048, 8, false, "FULL_SHARD", "h100-80g", 8, 1,
     45'455},
    {"llm-foundry, 7B T2048", "gpt", 50368, 4096, 32, 32, 32, 0, 2048, 6, false, "FULL_SHARD", "h100-80g", 8, 1,
     10'643},
    {"llm-foundry, 13B", "gpt", 50368, 5120, 40, 40, 40, 0, 2048, 4, true, "FULL_SHARD", "h100-80g", 8, 1, 4'792},
    {"fms-fsdp, Llama2-7B", "llama", 32000, 4096, 32, 32, 32, 11008, 4096, 2, false, "HYBRID_SHARD", "a100-80g", 8, 16,
     4'550},
    {"fms-fsdp, Llama2-7B", "llama", 32000, 4096, 32, 32, 32, 11008, 4096, 2, false, "HYBRID_SHARD", "h100-80g", 8, 12,
     9'600},
    {"fms-fsdp, Llama2-13B", "llama", 32000, 5120, 40, 40, 40, 13824, 4096, 1, false, "FULL_SHARD", "a100-80g", 8, 16,
     2'150},
    {"fms-fsdp, Llama2-13B", "llama", 32000, 5120, 40, 40, 40, 13824, 4096, 2, false, "FULL_SHARD", "h100-80g", 8, 12,
     4'850},
    {"torchtitan, Llama3-8B", "llama", 128256, 4096, 32, 32, 8, 14336, 8192, 1, false, "FULL_SHARD", "h100-80g", 8, 1,
     6'667},
    {"KempnerForge, 8B T4096", "llama", 128256, 4096, 32, 32, 8, 14336, 4096, 4, true, "", "h200", 1, 1, 10'471},
    {"Thunder, Llama2-7B T4096", "llama", 32000, 4096, 32, 32, 32, 11008, 4096, 1, false, "", "h100-80g", 1, 1, 10'690},
};

double predicted_tokens_per_s(const Published& one) {
  Recipe::Model recipe;
  recipe.name = one.family;
  recipe.n_layers = one.layers;
  recipe.dim = one.dim;
  recipe.n_heads = one.heads;
  if (one.kv_heads != one.heads) recipe.n_kv_heads = one.kv_heads;
  if (one.hidden > 0) recipe.hidden_dim = one.hidden;
  recipe.max_seq_len = one.tokens;
  ModelSpec model = make_spec(recipe, one.vocab, one.tokens);
  Candidate candidate;
  Job& job = candidate.job;
  job.model = &model;
  job.precision = precision_policy("bf16-mixed");
  job.accelerator = cuda_accelerator();
  job.mesh = data_mesh(one.devices * one.nodes);
  job.local_size = one.devices;
  job.num_nodes = one.nodes;
  job.micro_batch_size = one.micro_batch;
  for (const auto& block : model.blocks) job.recompute.push_back(one.recompute && block.kind == BlockKind::transformer);
  candidate.entry = find_strategy(job.world_size() > 1 ? "fsdp" : "single")->entry;
  auto options = nlohmann::json::object();
  if (!one.sharding.empty()) options["sharding_strategy"] = one.sharding;
  job.options = with_defaults(candidate.entry->options, options);
  candidate.memory = candidate.entry->memory(job);
  auto rates = rates_of(*find_device_kind(one.device), job.precision.compute, job.local_size);
  REQUIRE(rates);
  auto load = step_load(candidate);
  REQUIRE(load);
  auto time = step_time(*load, *rates);
  REQUIRE(time);
  return static_cast<double>(one.micro_batch * one.tokens) / time->total();
}

}  // namespace

TEST_CASE("published throughputs are predicted within the stated error of the device table") {
  std::vector<double> errors;
  std::string table;
  for (const auto& one : published) {
    double predicted = predicted_tokens_per_s(one);
    errors.push_back(std::abs(predicted / one.tokens_per_s - 1));
    table += fmt::format("{}, {} x {}: {:.0f} published, {:.0f} predicted\n", one.source, one.nodes * one.devices,
                         one.device, one.tokens_per_s, predicted);
  }
  INFO(table);
  std::sort(errors.begin(), errors.end());
  CHECK(errors[errors.size() / 2] < 0.2);
  CHECK(errors.back() < 0.45);
}
