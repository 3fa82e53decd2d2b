// The options of [strategy], checked with the catalog.
#include "runner/selection/strategy_options.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/key_table.hpp"
#include "runner/selection/rules.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;

namespace {

std::vector<Diagnostic> problems(const std::string& name, nlohmann::json options) {
  Recipe recipe;
  recipe.strategy.name = name;
  recipe.strategy.options = std::move(options);
  std::vector<Diagnostic> diagnostics;
  resolve_strategy(recipe, diagnostics);
  return diagnostics;
}

std::string only_message(const std::string& name, nlohmann::json options) {
  auto list = problems(name, std::move(options));
  REQUIRE(list.size() == 1);
  return list[0].message;
}

}  // namespace

TEST_CASE("every name, alias and class of Lightning's strategies maps to one of ours") {
  struct Row {
    const char* entry;
    std::vector<const char*> names;
  };
  const Row rows[] = {
      {"single", {"single", "single_device", "SingleDeviceStrategy"}},
      {"ddp",
       {"ddp", "DDP", "DDPStrategy", "ddp_spawn", "DDPSpawnStrategy", "ddp_fork", "ddp_notebook",
        "ddp_find_unused_parameters_true", "ddp_find_unused_parameters_false",
        "ddp_spawn_find_unused_parameters_true"}},
      {"dp", {"dp", "data_parallel", "DataParallelStrategy"}},
      {"ddp2", {"ddp2", "DDP2Strategy"}},
      {"colossalai", {"colossalai", "ColossalAI", "ColossalAIStrategy"}},
      {"horovod", {"horovod", "HorovodStrategy"}},
      {"bagua", {"bagua", "Bagua", "BaguaStrategy"}},
      {"fsdp",
       {"fsdp", "FSDPStrategy", "fsdp_cpu_offload", "fsdp_native", "DDPFullyShardedNativeStrategy", "ddp_fully_sharded",
        "DDPFullyShardedStrategy"}},
      {"zero",
       {"deepspeed", "DeepSpeedStrategy", "deepspeed_stage_1", "deepspeed_stage_1_offload", "deepspeed_stage_2",
        "deepspeed_stage_2_offload", "deepspeed_stage_3", "deepspeed_stage_3_offload", "deepspeed_stage_3_offload_nvme",
        "ddp_sharded", "ddp_sharded_spawn", "ddp_sharded_find_unused_parameters_false", "DDPShardedStrategy",
        "DDPSpawnShardedStrategy"}},
      {"model_parallel", {"model_parallel", "ModelParallelStrategy", "tensor_parallel", "tp"}},
      {"pipeline", {"pipeline", "pp"}},
  };
  for (const auto& row : rows)
    for (const char* name : row.names) {
      INFO(name);
      REQUIRE(find_strategy(name));
      CHECK(find_strategy(name)->entry->name == row.entry);
      CHECK(problems(name, nlohmann::json::object()).empty());
    }
  CHECK_FALSE(find_strategy("magic"));
  CHECK(find_strategy("ddp_find_unused_parameters_true")->preset == nlohmann::json{{"find_unused_parameters", true}});
  CHECK(find_strategy("fsdp_cpu_offload")->preset == nlohmann::json{{"cpu_offload", true}});
}

TEST_CASE("an option must not contradict what the name of the strategy means") {
  CHECK(problems("deepspeed_stage_3", {{"stage", 3}}).empty());
  CHECK(problems("deepspeed_stage_3", {{"stage", 2}}).size() == 1);
  CHECK(problems("fsdp_cpu_offload", {{"cpu_offload", false}}).size() == 1);
}

namespace {

/// Refused as unavailable, with a message that begins like this, and never suggested.
void check_unavailable(const std::string& name, const std::string& message) {
  INFO(name);
  const auto list = problems(name, nlohmann::json::object());
  REQUIRE(list.size() == 1);
  CHECK(list[0].code == "unavailable");
  CHECK(list[0].message.starts_with(message));
  const auto suggestable = strategy_names();
  CHECK(std::ranges::find(suggestable, name) == suggestable.end());
}

}  // namespace

TEST_CASE("strategies for devices without a backend are refused under all their names, and never suggested") {
  for (const char* name : {"hpu_single", "hpu_parallel", "HPUParallelStrategy", "SingleHPUStrategy"})
    check_unavailable(name, fmt::format("strategy `{}` is for Gaudi devices, and needs Intel's Gaudi software", name));
  for (const char* name : {"ipu_strategy", "IPUStrategy"})
    check_unavailable(name, fmt::format("strategy `{}` is for ", name));
  CHECK(problems("HSDPStrategy", {})[0].suggestion == "FSDPStrategy");
}

TEST_CASE("every name of XLA's strategies maps to one of ours; without XLA in the build they are refused") {
  const std::map<std::string, std::vector<std::string>> names{
      {"xla", {"xla", "xla_debug", "XLAStrategy", "tpu_spawn", "tpu_spawn_debug", "TPUSpawnStrategy"}},
      {"single_xla", {"single_xla", "SingleDeviceXLAStrategy", "SingleXLAStrategy", "single_tpu", "SingleTPUStrategy"}},
      {"xla_fsdp", {"xla_fsdp", "XLAFSDPStrategy", "XlaFullyShardedDataParallel"}}};
  for (const auto& [entry, all] : names)
    for (const auto& name : all) {
      INFO(name);
      REQUIRE(find_strategy(name));
      CHECK(find_strategy(name)->entry->name == entry);
#ifdef RUNNER_HAS_XLA
      CHECK(problems(name, nlohmann::json::object()).empty());
#else
      check_unavailable(name, fmt::format("strategy `{}` is not in this program, which was built without XLA; run "
                                          "scripts/setup --xla and build again",
                                          name));
#endif
    }
  CHECK(find_strategy("xla_debug")->preset == nlohmann::json{{"debug", true}});
  CHECK(find_strategy("tpu_spawn_debug")->preset == nlohmann::json{{"debug", true}});
#ifdef RUNNER_HAS_XLA
  CHECK(problems("xl", {})[0].suggestion == "xla");
#else
  CHECK(problems("xl", {})[0].suggestion == std::nullopt);
  Recipe simulated;
  simulated.strategy.name = "xla";
  simulated.devices.simulate = true;
  std::vector<Diagnostic> diagnostics;
  resolve_strategy(simulated, diagnostics);
  CHECK(diagnostics.size() == 1);  // nothing takes the place of a compiler
#endif
}

TEST_CASE("strategies for devices without a backend run if CPU processes take the place of the devices") {
  for (const char* name : {"hpu_parallel", "HPUParallelStrategy", "ipu", "IPUStrategy"}) {
    INFO(name);
    Recipe recipe;
    recipe.strategy.name = name;
    recipe.devices.simulate = true;
    std::vector<Diagnostic> diagnostics;
    const auto resolved = resolve_strategy(recipe, diagnostics);
    CHECK(diagnostics.empty());
    REQUIRE(resolved.notes.size() == 1);
    CHECK(resolved.notes[0] ==
          fmt::format("strategy `{}` is simulated: CPU processes train replicas, as with `ddp`", name));
  }
}

TEST_CASE("an alias of another system gives a note with the differences") {
  auto notes = [](const std::string& name) {
    Recipe recipe;
    recipe.strategy.name = name;
    std::vector<Diagnostic> diagnostics;
    auto resolved = resolve_strategy(recipe, diagnostics);
    REQUIRE(resolved.notes.size() == 1);
    return resolved.notes[0];
  };
  CHECK(notes("ddp_sharded").starts_with("`ddp_sharded` runs as `zero`: FairScale's OSS with ShardedDataParallel is "));
  CHECK(notes("ddp_sharded_spawn").ends_with("calls it \"optimizer sharded\", which is stage = 1"));
  CHECK(notes("ddp_fully_sharded").starts_with("`ddp_fully_sharded` runs as `fsdp`: FairScale's FSDP became"));
  for (const char* name : {"deepspeed", "deepspeed_stage_1", "deepspeed_stage_2_offload", "deepspeed_stage_3"})
    CHECK(notes(name).ends_with("the DeepSpeed library is not used"));
  CHECK(find_strategy("ddp_sharded")->preset == nlohmann::json{{"stage", 2}});
}

TEST_CASE("a name of another tool is not also an option of a strategy") {
  for (const auto& entry : catalog())
    for (const auto& option : entry.options) {
      INFO(option.name);
      const auto* foreign = find_foreign_name(option.name, find_argument);
      CHECK((!foreign || foreign->only_suggested || !foreign->in_strategy));
    }
}

TEST_CASE("each name is in the catalog once") {
  std::vector<std::string> names;
  for (const auto& entry : catalog()) {
    names.push_back(lower(entry.name));
    for (const auto& alias : entry.aliases) names.push_back(lower(alias.name));
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEST_CASE("mistakes in [strategy] are reported with a solution") {
  CHECK(only_message("fsdpp", {}) == "unknown strategy `fsdpp`");
  CHECK(problems("fsdpp", {})[0].suggestion == "fsdp");
  CHECK(
      only_message("context_parallel", {}) ==
      "unknown strategy `context_parallel`: context parallelism is an axis that any strategy can have: devices.mesh = "
      "{ context = 2 }, with strategy.context_parallel = \"gather\", \"ring\" or \"ulysses\"");
  CHECK(!problems("context_parallel", {})[0].suggestion);
  for (const char* name : {"ParallelStrategy", "Strategy"})
    CHECK(problems(name, {})[0].message.find("it is a base class in Lightning") != std::string::npos);
  CHECK(
      only_message("MegatronStrategy", {}) ==
      "unknown strategy `MegatronStrategy`: any strategy can have several axes: strategy = \"fsdp\" with devices.mesh "
      "= { pipeline = 2, shard = 2, tensor = 2 }");
  CHECK(only_message("sequence-parallel", {}).find("strategy.sequence_parallel = true") != std::string::npos);
  CHECK(only_message("hsdp", {}).find("devices.mesh = { replicate = 2, shard = 4 }") != std::string::npos);
  CHECK(only_message("ipu", {}).starts_with("strategy `ipu` is for Graphcore devices, and needs Poplar, "));
  for (const char* stage : {"1", "2", "3"})
    for (const char* word : {"zero", "zero_", "ZeRO-", "zero_stage_", "stage", "deepspeed_zero_"})
      CHECK(problems(word + std::string(stage), {})[0].suggestion == std::string("deepspeed_stage_") + stage);
  CHECK(problems("zero3_offload", {})[0].suggestion == "deepspeed_stage_3_offload");
  CHECK(only_message("ddp", {{"sharding_strategy", "FULL_SHARD"}}) ==
        "`sharding_strategy` is an option of `fsdp` or `xla_fsdp`, not of `ddp`");
  CHECK(only_message("ddp", {{"algorithm", "bytegrad"}}) == "`algorithm` is an option of `bagua`, not of `ddp`");
  CHECK(problems("horovod", {{"op", "Average"}, {"compression", "Compression.fp16"}}).empty());
  CHECK(problems("horovod", {{"op", "hvd.Adasum"}}).empty());
  CHECK(only_message("bagua", {{"sync_interval_ms", 9e15}}).starts_with("`sync_interval_ms` must be"));
  CHECK(only_message("fsdp", {{"shading_strategy", "FULL_SHARD"}}) ==
        "strategy `fsdp` has no option `shading_strategy`");
  CHECK(problems("fsdp", {{"shading_strategy", "FULL_SHARD"}})[0].suggestion == "sharding_strategy");
  CHECK(problems("fsdp", {{"learning_rate", 1e-3}})[0].suggestion == "optimizer.lr");
  CHECK(problems("auto", {{"max_steps", 10}})[0].suggestion == "train.max_steps");
  CHECK(only_message("ddp", {{"process_group_backend", "mpi"}}) ==
        "LibTorch is built without the \"mpi\" backend; \"gloo\" connects CPU ranks, \"nccl\" CUDA devices");
  CHECK(problems("ddp", {{"ddp_comm_hook", "powerSGD_hook.powerSGD_hook"}}).empty());
  CHECK(only_message("ddp", {{"ddp_comm_hook", "DDPCommHookType.POWER_SGD_RANK2"}}) ==
        "POWER_SGD_RANK2 is \"powerSGD_hook\" with ddp_comm_hook_options = { matrix_approximation_rank = 2 }");
  CHECK(only_message("fsdp", {{"sharding_strategy", "FULL"}}) == "`sharding_strategy` cannot be \"FULL\"");
  CHECK(only_message("fsdp", {{"min_num_params", 1e300}}) == "`min_num_params` must be an integer, not 1e+300");
  CHECK(only_message("fsdp", {{"cpu_offload", 3}}) == "`cpu_offload` must be true or false, not 3");
  CHECK(only_message("fsdp", {{"hybrid_group_size", 0}}) == "`hybrid_group_size` must be at least 1, not 0");
  CHECK(only_message("ddp", {{"timeout", "soon"}}) ==
        "`timeout` must be a duration such as \"30m\" or \"1d12h\", not \"soon\"");
  CHECK(problems("single", {{"timeout", "30m"}, {"process_group_backend", "gloo"}}).empty());
  CHECK(problems("fsdp", {{"sync_dist", true}})[0].other_message.starts_with("nearest: `"));
  CHECK(problems("auto", {{"cpu_offload", true}}).empty());
  CHECK(only_message("auto", {{"cpu_ofload", true}}) == "no strategy has an option `cpu_ofload`");
  CHECK(problems("auto", {{"cpu_ofload", true}})[0].suggestion == "cpu_offload");
  CHECK(only_message("auto", {{"cpu_offload", 3}}) == "`cpu_offload` must be true or false, not 3");
  CHECK(only_message("auto", {{"cpu_offload", true}, {"stage", 2}}) ==
        "no strategy takes `cpu_offload` and `stage` together");
  CHECK(problems("fsdp", {{"min_num_params", 2e8}, {"timeout", "30m"}, {"auto_wrap_policy", {"blocks.0"}}}).empty());
}

TEST_CASE("an option outside [strategy] is answered with the strategies that have it") {
  for (const auto& [given, answer] :
       {std::pair{"stage = 3", "unknown key `stage`: it is an option of `zero`"},
        {"[train]\nstage = 3", "unknown key `stage` in [train]: it is an option of `zero`"},
        {"static_graph = true", "unknown key `static_graph`: it is an option of `ddp`"}}) {
    std::vector<Diagnostic> diagnostics;
    TemporaryFolder folder;
    write_file_atomic(folder.path / "recipe.toml", std::string(given) + "\n[run]\nseed = 1\n");
    try {
      load_whole_recipe((folder.path / "recipe.toml").string(), {});
    } catch (const RecipeError& error) {
      diagnostics = error.diagnostics();
    }
    auto answered = [&answer = answer](const Diagnostic& one) { return one.message == answer; };
    auto found = std::find_if(diagnostics.begin(), diagnostics.end(), answered);
    INFO(answer);
    REQUIRE(found != diagnostics.end());
    CHECK(found->suggestion->starts_with("strategy.st"));
  }
}

TEST_CASE("the values of selection.prefer are the strategies that the rules name, the default first") {
  CHECK(find_key("selection.prefer")->choices == rule_book().preferences);
  CHECK(Recipe::Selection().prefer == rule_book().preferences.front());
}

TEST_CASE("options without an effect are accepted, with the reason") {
  Recipe recipe;
  recipe.strategy.name = "fsdp";
  recipe.strategy.options = {{"use_orig_params", true}, {"sync_module_states", true}};
  std::vector<Diagnostic> diagnostics;
  auto resolved = resolve_strategy(recipe, diagnostics);
  CHECK(diagnostics.empty());
  CHECK(resolved.notes.size() == 2);
}

TEST_CASE("an option without an effect in a job gives a note with its condition") {
  auto idle = [](const std::string& name, const nlohmann::json& given, Job job = {}) {
    const Entry& entry = *find_strategy(name)->entry;
    job.options = with_defaults(entry.options, given);
    return idle_options(given, entry, job);
  };
  auto note = [](const std::string& option, const std::string& need) {
    return std::vector<std::string>{"`" + option + "`: nothing to do here: it needs " + need};
  };
  Job pair, cuda;
  pair.mesh = data_mesh(2);
  cuda.accelerator = cuda_accelerator();
  CHECK(idle("fsdp", {{"hybrid_group_size", 2}}) == note("hybrid_group_size", "sharding_strategy = \"HYBRID_SHARD\""));
  CHECK(idle("fsdp", {{"hybrid_group_size", 2}, {"sharding_strategy", "HYBRID_SHARD"}}).empty());
  CHECK(idle("fsdp", {{"min_num_params", 5}}) == note("min_num_params", "auto_wrap_policy = \"size\""));
  CHECK(idle("fsdp", {{"min_num_params", 5}, {"auto_wrap_policy", "size_based_auto_wrap_policy"}}).empty());
  CHECK(idle("fsdp", {{"backward_prefetch", "BACKWARD_PRE"}}) ==
        note("backward_prefetch", "devices that have streams (CUDA)"));
  CHECK(idle("fsdp", {{"forward_prefetch", true}}).empty());  // its own note has the condition
  CHECK(idle("fsdp", {{"forward_prefetch", false}, {"backward_prefetch", "NONE"}}).empty());
  CHECK(idle("fsdp", {{"forward_prefetch", true}, {"backward_prefetch", "BACKWARD_PRE"}}, cuda).empty());
  CHECK(idle("ddp", {{"timeout", "30m"}}) == note("timeout", "several ranks"));
  CHECK(idle("single", {{"timeout", "30m"}}) == note("timeout", "several ranks"));
  CHECK(idle("ddp", {{"timeout", "30m"}, {"process_group_backend", "gloo"}}, pair).empty());
  CHECK(idle("zero", {{"stage3_max_live_parameters", 1}}) == note("stage3_max_live_parameters", "stage = 3"));
  CHECK(idle("zero", {{"stage3_max_live_parameters", 1}, {"stage", 3}}).empty());
  CHECK(idle("zero", {{"offload_optimizer_device", "nvme"}}) ==
        note("offload_optimizer_device", "offload_optimizer = true"));
  CHECK(idle("zero", {{"queue_depth", 4}}) ==
        note("queue_depth", "offload_optimizer_device = \"nvme\" or offload_params_device = \"nvme\""));
  CHECK(idle("zero", {{"queue_depth", 4}, {"offload_optimizer", true}, {"offload_optimizer_device", "nvme"}}).empty());
  CHECK(idle("zero", {{"hysteresis", 3}}) == note("hysteresis", "precision = \"16-mixed\""));
  Job half;
  half.precision = precision_policy("16-mixed");
  CHECK(idle("zero", {{"hysteresis", 3}}, half).empty());
}

TEST_CASE("different sizes for the buckets of ZeRO give a note with the size that is used") {
  const Entry& zero = *find_strategy("zero")->entry;
  Job job;
  job.mesh = data_mesh(2);
  auto notes = [&](const nlohmann::json& options) {
    job.options = with_defaults(zero.options, options);
    return zero.notes(job);
  };
  CHECK(notes({{"reduce_bucket_size", 1000}, {"allgather_bucket_size", 1000}}).empty());
  CHECK(notes({{"reduce_bucket_size", 1000}, {"allgather_bucket_size", 200}}) ==
        std::vector<std::string>{"the same buckets are reduced and gathered, so the smaller size is used for both: "
                                 "allgather_bucket_size = 200"});
}

TEST_CASE("the condition of every option is met by some job") {
  Job job;
  job.accelerator = cuda_accelerator();
  job.mesh = data_mesh(2);
  job.local_size = 2;
  job.accumulation = 2;
  job.precision = precision_policy("16-mixed");
  for (const auto& entry : catalog())
    for (const auto& option : entry.options) {
      if (!option.only_with.holds) continue;
      INFO(entry.name << " " << option.name);
      job.options = with_defaults(entry.options, {{"sharding_strategy", "HYBRID_SHARD"},
                                                  {"auto_wrap_policy", "size"},
                                                  {"stage", 3},
                                                  {"offload_optimizer", true},
                                                  {"offload_optimizer_device", "nvme"},
                                                  {"offload_parameters", true},
                                                  {"offload_params_device", "nvme"},
                                                  {"op", "adasum"},
                                                  {"algorithm", "decentralized"},
                                                  {"placement_policy", "static"}});
      if (option.name == "warmup_steps" || option.name == "sync_interval_ms") job.options["algorithm"] = "async";
      if (option.name == "average") job.options["algorithm"] = "bytegrad";
      CHECK(option.only_with.holds(job));
      CHECK(!option.only_with.what.empty());
    }
}

TEST_CASE("choices are accepted in PyTorch's spelling") {
  auto options = [](const std::string& name, nlohmann::json given) {
    Recipe recipe;
    recipe.strategy.name = name;
    recipe.strategy.options = std::move(given);
    std::vector<Diagnostic> diagnostics;
    auto resolved = resolve_strategy(recipe, diagnostics);
    CHECK(diagnostics.empty());
    return resolved.options;
  };
  CHECK(options("fsdp", {{"sharding_strategy", "ShardingStrategy.HYBRID_SHARD"}})["sharding_strategy"] ==
        "HYBRID_SHARD");
  CHECK(options("ddp", {{"ddp_comm_hook", "default_hooks.fp16_compress_hook"}})["ddp_comm_hook"] == "fp16_compress");
  CHECK(options("fsdp", {{"sharding_strategy",
                          "torch.distributed.fsdp.ShardingStrategy.SHARD_GRAD_OP"}})["sharding_strategy"] ==
        "SHARD_GRAD_OP");
  CHECK(options("ddp",
                {{"ddp_comm_hook",
                  "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook"}})["ddp_comm_hook"] ==
        "bf16_compress");
  CHECK(options("fsdp", {{"sharding_strategy", "full_shard"}})["sharding_strategy"] == "FULL_SHARD");
  CHECK(options("fsdp", {{"backward_prefetch", "BackwardPrefetch.BACKWARD_POST"}})["backward_prefetch"] ==
        "BACKWARD_POST");
  CHECK(options("fsdp", {{"state_dict_type", "StateDictType.FULL_STATE_DICT"}})["state_dict_type"] == "full");
  CHECK(options("FSDPStrategy", {{"state_dict_type", "sharded"}})["state_dict_type"] == "sharded");
}

namespace {

/// The only mistake of a recipe with these keys in [strategy], from line 2 on.
Diagnostic mistake_in_configuration(const std::string& strategy) {
  auto recipe = parse_recipe("[strategy]\n" + strategy +
                                 "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 8\nn_heads = 1\nmax_seq_len = 8\n"
                                 "[data]\nformat = \"text\"\ntrain = [\"a.txt\"]\n[train]\nmax_steps = 1\n",
                             "recipe.toml", {}, reader_help());
  std::vector<Diagnostic> diagnostics;
  resolve_strategy(recipe, diagnostics);
  REQUIRE(diagnostics.size() == 1);
  return diagnostics[0];
}

}  // namespace

TEST_CASE("an error in an option of a configuration is reported at its position there") {
  const auto mistake =
      mistake_in_configuration("name = \"zero\"\nconfig = { zero_optimization = { stage = \"two\" } }\n");
  CHECK(mistake.message == "`stage` must be an integer, not \"two\"");
  CHECK(mistake.place.line == 3);
  CHECK(mistake.place.column == 34);
}

TEST_CASE("a configuration that contradicts the name of the strategy is reported with both places") {
  const std::string file = RUNNER_SOURCE_DIR "/tests/cases/deepspeed/stage1.json";
  const std::string table = "{ zero_optimization = { stage = 1 } }";
  for (const auto& [config, where, line] :
       {std::tuple(table, std::string("recipe.toml"), 3), std::tuple("\"" + file + "\"", file, 4)}) {
    const auto mistake = mistake_in_configuration("name = \"deepspeed_stage_3\"\nconfig = " + config + "\n");
    CHECK(mistake.message ==
          "`deepspeed_stage_3` means stage = 3, and stage = 1 contradicts it: choose one of them, or write name = "
          "\"zero\"");
    CHECK(mistake.place.file == where);
    CHECK(mistake.place.line == line);
    REQUIRE(mistake.other);
    CHECK(mistake.other->file == "recipe.toml");
    CHECK(mistake.other->line == 2);
  }
}

TEST_CASE("a configuration is refused for strategies that do not read it") {
  const nlohmann::json config = {{"config", "ds.json"}};
  const std::string needs = "`config` needs a strategy with a name of DeepSpeed: name = \"deepspeed\"";
  CHECK(only_message("auto", config) == needs);
  CHECK(only_message("ddp_sharded", config) == needs);
  CHECK(only_message("fsdp", config) == "`config` is an option of `zero`, not of `fsdp`");
}

TEST_CASE("numbers that are too large are refused, not truncated") {
  CHECK(only_message("zero", {{"optimizer_buffer_count", int64_t{1} << 32}}) ==
        "`optimizer_buffer_count` must be at most 65536, not 4294967296");
  CHECK(only_message("zero", {{"params_buffer_count", int64_t{1} << 32}}) ==
        "`params_buffer_count` must be at most 65536, not 4294967296");
  CHECK(only_message("zero", {{"queue_depth", int64_t{1} << 62}}) ==
        "`queue_depth` must be at most 256, not 4611686018427387904");
  CHECK(only_message("zero", {{"thread_count", 257}}) == "`thread_count` must be at most 256, not 257");
  CHECK(problems("zero", {{"thread_count", 256}}).empty());
}
