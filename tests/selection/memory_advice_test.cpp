// The advice after running out of memory: the parts of the memory, and only those changes that help.
#include "runner/selection/memory_advice.hpp"

#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "runner/selection/plan.hpp"

using namespace runner;

namespace {

Plan plan(const std::string& strategy, int ranks, int64_t micro_batch_size, int64_t vocab = 256) {
  Recipe recipe;
  recipe.model.name = "gpt";
  recipe.model.n_layers = 4;
  recipe.model.dim = 256;
  recipe.model.n_heads = 4;
  recipe.model.max_seq_len = 256;
  recipe.data.format = "text";
  recipe.strategy.name = strategy;
  recipe.train.max_steps = 1;
  recipe.train.global_batch_size = 8 * ranks;
  recipe.train.micro_batch_size = micro_batch_size;
  Topology topology;
  topology.devices_per_node = ranks;
  topology.cores = 8;
  return make_plan(recipe, topology, vocab);
}

std::vector<std::string> changes(const Plan& plan) {
  std::vector<std::string> list;
  for (const auto& way : ways_out_of_memory(*plan.entry, plan.job)) list.push_back(way.change);
  return list;
}

}  // namespace

TEST_CASE("the advice names the parts, the largest first, and the changes, the cheapest first") {
  auto ddp = plan("ddp", 2, 8);
  // The kernels for bfloat16, and so the memory that they need, depend on the processor.
  const std::regex bf16("(bf16-mixed\"  \\(saves )6[0-9]\\.[0-9]");
  CHECK(
      std::regex_replace(memory_advice(*ddp.entry, ddp.job), bf16, "$1NN") ==
      "a step of this recipe needs 179.2 MiB a rank: activations 139.5 MiB, optimizer state 25.1 MiB, parameters 12.6 "
      "MiB, gradients "
      "2.01 MiB\n"
      "possible changes, cheapest first:\n"
      "  train.micro_batch_size = 4  (saves 58.6 MiB; the global batch stays the same, in more micro-batches)\n"
      "  strategy = \"fsdp\"  (saves 15.3 MiB; parameters are gathered for each use, 50 % more bytes on the wire)\n"
      "  activation_checkpointing = \"all\"  (saves 81.6 MiB; one more forward pass for each backward pass, about a "
      "third more "
      "compute)\n"
      "  precision = \"bf16-mixed\"  (saves NN MiB; products are rounded to bfloat16, so the losses differ a "
      "little)\n"
      "  strategy = {name = \"deepspeed_stage_3_offload_nvme\", max_in_cpu = 0, nvme_path = "
      "\"FOLDER\", stage3_param_persistence_threshold = 0}  (saves 17.6 MiB; parameters and optimizer state pass "
      "through a disk in every step)");
}

const std::string on_nvme =
    "strategy = {name = \"deepspeed_stage_3_offload_nvme\", max_in_cpu = 0, nvme_path = \"FOLDER\", "
    "stage3_param_persistence_threshold = 0}";

TEST_CASE("a change is named only if it is possible and saves memory") {
  CHECK(changes(plan("single", 1, 8)) == std::vector<std::string>{"train.micro_batch_size = 4",
                                                                  "activation_checkpointing = \"all\"",
                                                                  "precision = \"bf16-mixed\"", on_nvme});
  // Parameters need most of the memory, so sharding helps most.
  auto wide = plan("ddp", 4, 1, 50'000);
  CHECK(changes(wide) == std::vector<std::string>{"strategy = \"fsdp\"", "activation_checkpointing = \"all\"",
                                                  "precision = \"bf16-mixed\"", on_nvme});
  // Logits need most of the memory.
  auto logits = plan("single", 1, 8, 50'000);
  CHECK(changes(logits).at(0) == "model.loss_chunk_tokens = 256");
  auto last = plan("deepspeed_stage_3", 2, 1);
  last.job.precision = precision_policy("bf16-mixed");
  last.job.options.update({{"offload_optimizer", true},
                           {"offload_optimizer_device", "nvme"},
                           {"offload_parameters", true},
                           {"offload_params_device", "nvme"},
                           {"nvme_path", "/"},
                           {"max_in_cpu", 0},
                           {"stage3_param_persistence_threshold", 0}});
  last.job.recompute = {false, true, true, true, true, false};
  INFO(memory_advice(*last.entry, last.job));
  CHECK(changes(last).empty());
  CHECK(memory_advice(*last.entry, last.job).ends_with("; no change would need much less"));
}

TEST_CASE("the memory that is exceeded, or comes closest to its limit, is the one that a message names") {
  const MemoryLimit cuda{.device = 100, .host = 200, .context = 0, .reason = ""};
  CHECK_FALSE(cuda.decided_by_host(101, 300));  // the device lacks memory first
  CHECK(cuda.decided_by_host(100, 201));
  CHECK(cuda.decided_by_host(50, 199));
  CHECK_FALSE(cuda.decided_by_host(99, 150));  // within the limit, but less than the prediction's error
  const MemoryLimit cpu{.device = 100, .host = 0, .context = 0, .reason = ""};
  CHECK_FALSE(cpu.decided_by_host(99, 0));
  CHECK(MemoryLimit{}.decided_by_host(1, 1));
}
