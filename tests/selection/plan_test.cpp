// Plans: batches, precision, automatic choices, refusals.
#include "runner/selection/plan.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "strategies/fsdp/entry.hpp"
#include "strategies/program/block_memory.hpp"
#include "tests/selection/small_plans.hpp"

using namespace runner;

TEST_CASE("auto chooses single on one device and ddp on several, and gives the reason") {
  auto one = make_plan(small_recipe(), cpus(1), 256);
  CHECK(one.entry->name == "single");
  CHECK(one.reason == "118.5 k parameters are under 500M and there is one device");
  auto four = make_plan(small_recipe(), cpus(4), 256);
  CHECK(four.entry->name == "ddp");
  CHECK(four.rule == "under 500M parameters, across devices -> DDP");
  CHECK(four.recipe.strategy.options.at("bucket_cap_mb") == 25);
  CHECK(four.recipe.origin("strategy.name").kind == Origin::Kind::decided);
}

TEST_CASE("the micro-batch is the largest divisor up to 8") {
  struct Row {
    int64_t global;
    int ranks;
    int64_t micro, accumulation;
  };
  for (const auto& row : {Row{16, 2, 8, 1}, Row{16, 1, 8, 2}, Row{12, 2, 6, 1}, Row{36, 2, 6, 3}, Row{7, 1, 7, 1},
                          Row{22, 2, 1, 11}, Row{26, 1, 2, 13}}) {
    auto r = small_recipe();
    r.train.global_batch_size = row.global;
    auto plan = make_plan(r, cpus(row.ranks), 256);
    CHECK(plan.job.micro_batch_size == row.micro);
    CHECK(plan.job.accumulation == row.accumulation);
  }
}

TEST_CASE("batches that do not divide are refused, with the values that work") {
  auto r = small_recipe();
  r.train.global_batch_size = 16;
  CHECK(refusal(r, cpus(3)) == "global_batch_size = 16 cannot be divided among 3 data-parallel ranks");
  CHECK(mistakes(r, cpus(3))[0].allowed == std::vector<std::string>{"15", "18"});
  r.train.micro_batch_size = 2;
  CHECK(mistakes(r, cpus(3))[0].allowed == std::vector<std::string>{"12", "18"});
  r.train.micro_batch_size = 3;
  CHECK(refusal(r, cpus(2)) ==
        "micro_batch_size = 3 does not divide the 8 sequences that each of 2 ranks has of a global batch of 16");
}

TEST_CASE("a micro-batch whose memory takes minutes to predict is refused where its size is set") {
  auto r = small_recipe();
  r.train.micro_batch_size = 1 << 30;
  CHECK(refusal(r, cpus(2)) ==
        "a micro-batch of 1073741824 sequences of 32 tokens is too large: a rank has at most 4194304 tokens at a time");
  r = small_recipe();
  r.model.max_seq_len = 1 << 24;
  CHECK(refusal(r, cpus(2)) ==
        "a micro-batch of 1 sequence of 16777216 tokens is too large: a rank has at most 4194304 tokens at a time");
  r.data.seq_len = 32;
  CHECK(refusal(r, cpus(2)).empty());
  r.data.seq_len = 1 << 20;
  r.model.loss_chunk_tokens = 0;  // so that the prediction is quick
  CHECK(make_plan(r, cpus(2), 256).job.micro_batch_size <= 4);
}

TEST_CASE("an accumulation schedule sets the global batch by epoch") {
  auto r = small_recipe();
  r.train.micro_batch_size = 2;
  r.train.accumulate_grad_batches = AccumulationSchedule{{0, 8}, {5, 4}};
  auto plan = make_plan(r, cpus(3), 256);
  CHECK(global_batch_size(plan.recipe, 3, 0) == 48);
  CHECK(global_batch_size(plan.recipe, 3, 4) == 48);
  CHECK(global_batch_size(plan.recipe, 3, 5) == 24);
  CHECK(global_batch_size(plan.recipe, 3, 9) == 24);
}

TEST_CASE("precision auto is bf16-mixed on devices that support it, and 32-true elsewhere") {
  CHECK(make_plan(small_recipe(), cpus(1), 256).recipe.precision.mode == "32-true");
  auto gpu = cpus(1);
  gpu.accelerator = cuda_accelerator();
  CHECK(make_plan(small_recipe(), gpu, 256).recipe.precision.mode == "32-true");
  gpu.bf16 = true;
  CHECK(make_plan(small_recipe(), gpu, 256).recipe.precision.mode == "bf16-mixed");
  auto r = small_recipe();
  r.precision.mode = "bf16-mixed";
  gpu.bf16 = false;
  CHECK(refusal(r, gpu) == "this CUDA device has no bf16");
}

TEST_CASE("contradicting values are refused") {
  auto r = small_recipe();
  r.data.seq_len = 64;
  CHECK(refusal(r, cpus(1)) == "data.seq_len = 64 is longer than model.max_seq_len = 32");
  r = small_recipe();
  r.model.vocab_size = 100;
  CHECK(refusal(r, cpus(1)) == "model.vocab_size = 100 is smaller than the tokenizer's 256");
  r = small_recipe();
  r.data.format = "bin";
  CHECK(refusal(r, cpus(1), std::nullopt) == "\"bin\" files do not contain the vocabulary size; set model.vocab_size");
  r = small_recipe();
  r.strategy.name = "single";
  CHECK(refusal(r, cpus(2)).starts_with("strategy `single` uses one device, but the recipe uses 2"));
  r.strategy.name = "fsdp";
  r.strategy.options = {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 3}};
  CHECK(refusal(r, cpus(4)) == "HYBRID_SHARD cannot cut 4 ranks into groups of 3; hybrid_group_size may be 1, 2, 4");
  r = small_recipe();
  r.activation_checkpointing.mode = "named";
  r.activation_checkpointing.blocks = {"blocks.7"};
  CHECK(refusal(r, cpus(1)) ==
        "no block is called `blocks.7`; names are \"embedding\", \"blocks.0\" to \"blocks.1\", \"head\", and parts "
        "such as \"blocks.0.mlp\"");
  r = small_recipe();
  r.optimizer.groups = {{.pattern = "blocks.*", .lr = 1e-4, .weight_decay = {}, .params = {}},
                        {.pattern = "blokcs.*", .lr = 1e-9, .weight_decay = {}, .params = {}}};
  CHECK(refusal(r, cpus(1)) == "no parameter matches the pattern `blokcs.*` of optimizer.groups");
  r = small_recipe();
  r.model.frozen = {"embedding.*", "haed.*"};
  CHECK(refusal(r, cpus(1)) == "no parameter matches the pattern `haed.*` of model.frozen");
  r.model.frozen = {"*"};
  CHECK(refusal(r, cpus(1)) == "model.frozen matches every parameter, so there is nothing to train");
  r = small_recipe();
  r.fine_tune.method = "lora";
  r.fine_tune.targets = {"q_prj"};
  CHECK(mistakes(r, cpus(1)).size() == 1);
  CHECK(refusal(r, cpus(1)) == "no module matches `q_prj` of fine_tune.targets");
  r.fine_tune.targets.clear();
  CHECK(refusal(r, cpus(1)) == "gpt has no matrix that fine_tune.targets could adapt, so there is nothing to train");
}

TEST_CASE("a mistake of the model's spec has the place of its key") {
  auto r = small_recipe();
  r.model.activation = "relu";
  r.origins["model.activation"].line = 7;
  r.origins["model.name"].line = 2;
  auto found = mistakes(r, cpus(1));
  REQUIRE(found.size() == 1);
  CHECK(found[0].message == "model.activation = \"relu\": allowed: gelu or gelu_tanh");
  CHECK(found[0].place.line == 7);
  r.origins.erase("model.activation");
  CHECK(mistakes(r, cpus(1)).at(0).place.line == 2);
}

TEST_CASE("settings without an effect in this plan give notes") {
  auto has = [](const Plan& plan, const std::string& begin) {
    return std::any_of(plan.notes.begin(), plan.notes.end(),
                       [&](const std::string& note) { return note.starts_with(begin); });
  };
  auto r = small_recipe();
  r.strategy.name = "ddp";
  r.activation_checkpointing.mode = "every";
  r.activation_checkpointing.every = 99;
  r.selection.policy = "smallest";
  r.devices.devices = {DeviceRequest::Kind::count, 4, {}};
  r.devices.cpu_processes = 2;
  auto plan = make_plan(r, cpus(2), 256);
  CHECK(has(plan, "activation_checkpointing.every = 99 is more than"));
  CHECK(has(plan, "[selection] has no effect"));
  CHECK(
      has(plan, "there is no GPU: devices.cpu_processes = 2 is the number of CPU ranks, and devices.devices = 4 has"));
  auto frozen = r;
  frozen.model.frozen = {"embedding.*", "blocks.*"};
  frozen.activation_checkpointing.every = 1;
  frozen.optimizer.groups = {{.pattern = "embedding.*", .lr = 1e-4, .weight_decay = {}, .params = {}}};
  plan = make_plan(frozen, cpus(2), 256);
  CHECK(
      has(plan,
          "[activation_checkpointing] has no effect: the blocks that it names have no backward, which ends at `head`"));
  CHECK(
      has(plan, "the group `embedding.*` of optimizer.groups has no effect: model.frozen matches all its parameters"));
  auto grouped = r;
  grouped.optimizer.groups = {{.pattern = "*norm*", .lr = {}, .weight_decay = 0.0, .params = {}},
                              {.pattern = "*attention_norm*", .lr = 1e-4, .weight_decay = {}, .params = {}}};
  plan = make_plan(grouped, cpus(2), 256);
  CHECK(has(plan,
            "the group `*attention_norm*` of optimizer.groups has no effect: earlier groups have all its parameters"));
  r.strategy.name = "auto";
  r.activation_checkpointing.every = 1;
  r.devices.devices = {};
  plan = make_plan(r, cpus(2), 256);
  CHECK_FALSE(has(plan, "activation_checkpointing"));
  CHECK_FALSE(has(plan, "[selection]"));
  CHECK_FALSE(has(plan, "there is no GPU"));
}

TEST_CASE("zero refuses invalid options, also extreme values") {
  struct Row {
    nlohmann::json options;
    std::string words;
  };
  for (const auto& row : {
           Row{{{"stage", 4}}, "`stage` must be at most 3, not 4"},
           Row{{{"mics_shard_size", 3}}, "MiCS cannot cut 4 ranks into groups of 3; mics_shard_size may be 1, 2, 4"},
           Row{{{"mics_shard_size", int64_t{1} << 32}},
               "MiCS cannot cut 4 ranks into groups of 4294967296; mics_shard_size may be 1, 2, 4"},
           Row{{{"gradient_predivide_factor", 0.0}}, "`gradient_predivide_factor` must be above 0, not 0.0"},
           Row{{{"gradient_predivide_factor", HUGE_VAL}}, "`gradient_predivide_factor` must be finite"},
           Row{{{"initial_scale_power", 2000}}, "a loss scale must not be above 2^126"},
           Row{{{"loss_scale", 1e300}}, "a loss scale must not be above 2^126"},
           Row{{{"initial_scale_power", 3}, {"min_loss_scale", 16.0}},
               "min_loss_scale = 16 is above the initial scale of 8"},
       }) {
    auto r = small_recipe();
    r.strategy.name = "deepspeed";
    r.strategy.options = row.options;
    CHECK(refusal(r, cpus(4)) == row.words);
  }
}

TEST_CASE("FULL_SHARD's traffic is two all-gathers and one reduce-scatter per unit, one all-gather at the ends") {
  auto r = small_recipe();
  r.model.tie_embeddings = false;
  r.strategy.name = "fsdp";
  auto plan = make_plan(r, cpus(4), 256);
  REQUIRE(plan.traffic.size() == 2);
  CHECK(plan.traffic[0].collective == "all_gather");
  CHECK(plan.traffic[0].calls == 1 + 2 + 2 + 1);  // embedding and head once, two blocks twice
  CHECK(plan.traffic[1].collective == "reduce_scatter");
  CHECK(plan.traffic[1].calls == 4);
  CHECK(plan.traffic[1].wire_bytes == plan.traffic[1].payload_bytes * 3 / 4);
}

TEST_CASE("a plan notes an option without effect, and an avoidable cost") {
  auto r = small_recipe();
  r.strategy.name = "fsdp";
  r.strategy.options = {{"cpu_offload", true}};
  r.train.global_batch_size = 12;
  r.train.micro_batch_size = 2;
  CHECK(make_plan(r, cpus(2), 256).notes ==
        std::vector<std::string>{"`cpu_offload`: no effect on CPU, where shards are always in host memory",
                                 "gradients are reduced after each of 3 micro-batches, so that they stay sharded; "
                                 "reduce_every_micro_batch = false reduces once a step and keeps 463.0 KiB of "
                                 "unsharded gradients on every rank"});
}

TEST_CASE("cpu_checkpointing moves inputs of recomputed blocks to host memory, if the device has separate memory") {
  auto r = small_recipe();
  r.strategy.name = "zero";
  r.activation_checkpointing.mode = "all";
  Topology gpus = topology_of(*find_device_kind("h100-80g"), 2, 1);
  auto kept = make_plan(r, gpus, 256);
  CHECK(kept.memory.host == 0);
  r.activation_checkpointing.cpu_checkpointing = true;
  auto moved = make_plan(r, gpus, 256);
  CHECK(moved.job.host_checkpoints);
  CHECK(moved.notes == kept.notes);
  auto inputs = checkpoint_bytes(moved.job);
  REQUIRE(inputs.size() == static_cast<size_t>(r.model.n_layers));
  int64_t pinned = 0;
  for (int64_t bytes : inputs) pinned += pinned_bytes(bytes);
  CHECK(moved.memory.host == pinned);
  CHECK(moved.memory.total() <= kept.memory.total());
  auto on_cpu = make_plan(r, cpus(2), 256);
  CHECK_FALSE(on_cpu.job.host_checkpoints);
  CHECK(on_cpu.notes.back() == "`cpu_checkpointing`: nothing to do on CPU, where host memory is the device's");
  r.activation_checkpointing.mode = "none";
  CHECK(make_plan(r, gpus, 256).notes.back() ==
        "`cpu_checkpointing`: nothing to do, because no layer is recomputed; activation_checkpointing.mode = \"all\" "
        "recomputes every layer");
}

TEST_CASE("DeepSpeed's three batch numbers determine the micro-batch, or are refused with values that work") {
  auto r = small_recipe();
  r.strategy.name = "zero";
  r.strategy.options = {{"stage", 2}, {"gradient_accumulation_steps", 4}};
  r.train.global_batch_size = 32;
  auto plan = make_plan(r, cpus(2), 256);
  CHECK(plan.job.micro_batch_size == 4);
  CHECK(plan.job.accumulation == 4);

  r.train.micro_batch_size = 2;
  CHECK(make_plan(r, cpus(4), 256).job.accumulation == 4);
  CHECK(refusal(r, cpus(2)) ==
        "train_batch_size 32 is not micro-batch 2 x accumulation 4 x 2 ranks; use train_batch_size 16 or "
        "gradient_accumulation_steps 8 or 4 ranks");

  r.train.micro_batch_size.reset();
  for (int64_t steps : {3, 32}) {
    r.strategy.options["gradient_accumulation_steps"] = steps;
    auto wrong = mistakes(r, cpus(2));
    REQUIRE(wrong.size() == 1);
    CHECK(wrong[0].message == "gradient_accumulation_steps = " + std::to_string(steps) +
                                  " does not divide the 16 sequences that each of 2 ranks has of a global batch of 32");
    CHECK(wrong[0].allowed == std::vector<std::string>{"1", "2", "4", "8", "16"});
  }
}

TEST_CASE("host traffic: gradients are copied once per reduction, shards once per gather") {
  auto gpus = topology_of(*find_device_kind("h100-80g"), 4, 1);
  auto work = [&](const std::string& strategy, const nlohmann::json& options) {
    auto r = small_recipe();
    r.strategy.name = strategy;
    r.strategy.options = options;
    r.precision.mode = "bf16-mixed";
    r.train.micro_batch_size = 2;
    r.train.accumulate_grad_batches = AccumulationSchedule{{0, 3}};
    auto plan = make_plan(r, gpus, 256);
    auto host = plan.entry->host_work(plan.job);
    CHECK((host.updated == 0 || host.updated == plan.memory.held));
    return std::pair(host.copied_bytes / plan.memory.held, host.copied_bytes % plan.memory.held);
  };
  using Elements = std::pair<int64_t, int64_t>;  // bytes per element of the rank's shards, and the remainder
  CHECK(work("zero", {{"stage", 2}}) == Elements{0, 0});
  // Three fp32 sums of one micro-batch each, then the new values in bf16 once.
  CHECK(work("zero", {{"stage", 2}, {"offload_optimizer", true}}) == Elements{3 * 4 + 2, 0});
  CHECK(work("zero", {{"stage", 1}, {"offload_optimizer", true}}) == Elements{2 + 2, 0});  // one sum, in bf16
  CHECK(work("fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}, {"cpu_offload", true}}) == Elements{3 * 4 + 3 * 2, 0});
  CHECK(work("fsdp",
             {{"sharding_strategy", "SHARD_GRAD_OP"}, {"cpu_offload", true}, {"reduce_every_micro_batch", false}}) ==
        Elements{4 + 3 * 2, 0});
  auto full = work("fsdp", {{"sharding_strategy", "FULL_SHARD"}, {"cpu_offload", true}});
  CHECK(full > Elements{3 * 4 + 3 * 2, 0});  // blocks are gathered twice, embedding and head once
  CHECK(full < Elements{3 * 4 + 6 * 2, 0});
}

TEST_CASE("policy smallest explains its micro-batch and checkpointing") {
  auto r = small_recipe();
  r.selection.policy = "smallest";
  auto plan = make_plan(r, topology_of(*find_device_kind("h100-80g"), 2, 1), 256);
  CHECK(plan.rule.starts_with("any size, maximum memory efficiency -> "));
  CHECK(plan.recipe.origin("train.micro_batch_size").note == "for the least memory");
  CHECK(plan.recipe.origin("activation_checkpointing.mode").note == "for the least memory");
}

TEST_CASE("the note of a plan that does not fit names the memory that is too small") {
  auto r = small_recipe();
  r.strategy.name = "deepspeed_stage_2_offload";
  r.train.micro_batch_size = 1;
  auto gpus = topology_of(*find_device_kind("h100-80g"), 2, 1);
  gpus.host_memory_bytes = 1 << 20;
  auto notes = make_plan(r, gpus, 256).notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("a rank, and the limit is 512.0 KiB of host memory: it may run out of memory") !=
           std::string::npos;
  }));
}

TEST_CASE("notes from reading a recipe are notes of its plan") {
  auto r = small_recipe();
  r.notes = {"`wall_clock_breakdown` is ignored"};
  CHECK(make_plan(r, cpus(1), 256).notes.at(0) == r.notes[0]);
}

TEST_CASE("a job contains the largest factor of its accumulation schedule") {
  auto r = small_recipe();
  r.train.micro_batch_size = 2;
  r.train.accumulate_grad_batches = AccumulationSchedule{{0, 1}, {2, 6}, {5, 4}};
  auto job = make_plan(r, cpus(2), 256).job;
  CHECK(job.accumulation == 1);
  CHECK(job.accumulation_most == 6);
  r.train.accumulate_grad_batches.reset();
  r.train.global_batch_size = 12;
  job = make_plan(r, cpus(2), 256).job;
  CHECK(job.accumulation == 3);
  CHECK(job.accumulation_most == 3);
}

TEST_CASE("auto_wrap_policy accepts layer classes and PyTorch's policies") {
  auto units = [](const nlohmann::json& policy) {
    auto r = small_recipe();
    r.strategy.name = "fsdp";
    r.strategy.options = {{"auto_wrap_policy", policy}, {"mixed_precision", "torch.bfloat16"}};
    auto plan = make_plan(r, cpus(2), 256);
    return fsdp_plan(plan.job).units.size();
  };
  const size_t blocks = units("block");
  CHECK(blocks > 1);
  CHECK(units("none") == 1);
  CHECK(units("transformer_auto_wrap_policy") == blocks);
  CHECK(units({"nn.TransformerEncoderLayer", "GPTBlock"}) == blocks);
  CHECK(units("LlamaDecoderLayer") == blocks);
  CHECK(units("size_based_auto_wrap_policy") == 1);
  const auto noted = [](const std::string& strategy, const nlohmann::json& options, const std::string& note) {
    auto r = small_recipe();
    r.strategy.name = strategy;
    r.strategy.options = options;
    return std::ranges::count(make_plan(r, cpus(2), 256).notes, note);
  };
  const std::string classes =
      "`auto_wrap_policy`: a class of layers means \"block\": each block is a unit, of whichever class";
  CHECK(noted("fsdp", {{"auto_wrap_policy", {"ViTLayer"}}}, classes) == 1);
  CHECK(noted("fsdp", {{"auto_wrap_policy", "block"}}, classes) == 0);
  const std::string on_host = "`placement_policy`: no effect on CPU, where chunks are always in host memory";
  CHECK(noted("colossalai", {{"placement_policy", "cpu"}}, on_host) == 1);
  CHECK(noted("colossalai", {{"placement_policy", "cuda"}}, on_host) == 0);
  auto r = small_recipe();
  r.strategy.name = "fsdp";
  r.strategy.options = {{"auto_wrap_policy", {"nn.Linear"}}};
  CHECK(refusal(r, cpus(2)) ==
        "auto_wrap_policy: no block is called \"nn.Linear\"; names are \"embedding\", \"blocks.0\" to \"blocks.1\", "
        "\"head\", and parts such as \"blocks.0.mlp\"");
}

TEST_CASE("stage 2 with offload_parameters runs, with a note that no parameters are offloaded") {
  auto r = small_recipe();
  r.strategy.name = "DeepSpeedStrategy";
  r.strategy.options = {{"stage", 2}, {"offload_optimizer", true}, {"offload_parameters", true}};
  auto gpu = cpus(2);
  gpu.accelerator = cuda_accelerator();
  auto plan = make_plan(r, gpu, 256);
  CHECK(std::find(plan.notes.begin(), plan.notes.end(),
                  "`offload_parameters`: no effect in stage 2, where every rank keeps all parameters; DeepSpeed also "
                  "offloads parameters only in stage 3") != plan.notes.end());
  r.strategy.options = {{"stage", 2}, {"offload_optimizer", true}};
  CHECK(make_plan(r, gpu, 256).memory_bytes() == plan.memory_bytes());
}

TEST_CASE("on one rank, a note suggests `single` only if nothing is offloaded") {
  auto says_single = [](const std::string& name, bool cuda) {
    auto r = small_recipe();
    r.strategy.name = name;
    auto topology = cpus(1);
    if (cuda) topology.accelerator = cuda_accelerator();
    auto notes = make_plan(r, topology, 256).notes;
    return std::any_of(notes.begin(), notes.end(),
                       [](const auto& note) { return note.find("`single` does the same") != std::string::npos; });
  };
  CHECK(says_single("fsdp", true));
  CHECK(says_single("deepspeed", true));
  CHECK(says_single("deepspeed_stage_2_offload", false));
  CHECK_FALSE(says_single("deepspeed_stage_2_offload", true));
  CHECK_FALSE(says_single("deepspeed_stage_3_offload", true));
  CHECK_FALSE(says_single("fsdp_cpu_offload", true));
}

TEST_CASE("policy offload chooses DeepSpeed with offload if the device has separate memory") {
  auto r = small_recipe();
  r.selection.policy = "offload";
  auto gpu = cpus(2);
  gpu.accelerator = cuda_accelerator();
  auto plan = make_plan(r, gpu, 256);
  CHECK(plan.entry->name == "zero");
  CHECK(plan.recipe.strategy.options.at("offload_optimizer") == true);
  CHECK(plan.rule == "any size, maximum efficiency -> DeepSpeed with offload");
  CHECK(plan.reason.starts_with("policy \"offload\": zero stage 2, optimizer on CPU fits, "));
  auto cpu = make_plan(r, cpus(2), 256);
  CHECK(cpu.entry->name == "ddp");
  CHECK(cpu.reason.ends_with("; policy \"offload\": on CPUs the optimizer's state is in host memory already"));
}
