#include "runner/import/deepspeed_keys.hpp"

#include <map>

#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Type = Option::Type;
using Fate = DeepSpeedKey::Fate;
using Keys = std::vector<DeepSpeedKey>;

/// Adds the rows of one block, a function for each fate.
class Rows {
 public:
  explicit Rows(Keys& keys, std::string block = "") : keys_(keys), block_(std::move(block)) {}

  void recipe(const std::string& name, const std::string& target) { add(Fate::recipe, named(name), target); }
  /// `target`: the option; empty: it has the same name.
  DeepSpeedKey& option(const std::string& name, const std::string& target = "") {
    return add(Fate::option, named(name), target.empty() ? name : target);
  }
  DeepSpeedKey& handled(const std::string& name, const std::string& target = "") {
    return add(Fate::handled, named(name), target);
  }
  DeepSpeedKey& handled(Option own, const std::string& target = "") {
    return add(Fate::handled, std::move(own), target);
  }
  void checked(const std::string& name, json only, const std::string& reason) {
    add(Fate::checked, named(name, std::move(only), reason));
  }
  void ignored(const std::string& name, json usual, const std::string& reason,
               const std::vector<std::string>& keys = {}) {
    add(Fate::ignored, named(name, std::move(usual), reason), "", keys);
  }
  DeepSpeedKey& refused(const std::string& name, const std::string& reason, const std::vector<std::string>& keys = {}) {
    return add(Fate::refused, named(name, nullptr, reason), "", keys);
  }
  /// Returns the rows of the block. `old_name_of`: it is an old name of that block.
  Rows block(const std::string& name, const std::string& old_name_of = "") {
    DeepSpeedKey& key = add(Fate::block, named(name));
    key.old_name_of = old_name_of;
    return Rows(keys_, key.path);
  }
  void inner(const std::string& name) { add(Fate::inner, named(name)); }

 private:
  static Option named(const std::string& name, json value = nullptr, const std::string& note = "") {
    return {
        .name = name, .type = Type::other, .default_value = std::move(value), .may_be_infinite = true, .note = note};
  }
  /// `keys`: those in the block that is ignored or refused with all of them.
  DeepSpeedKey& add(Fate fate, Option option, const std::string& target = "",
                    const std::vector<std::string>& keys = {}) {
    DeepSpeedKey key{std::move(option)};
    key.fate = fate;
    key.path = block_.empty() ? key.name : block_ + "." + key.name;
    key.name = key.path.substr(key.path.rfind('.') + 1);
    key.target = target;
    for (const auto& name : keys) Rows(keys_, key.path).inner(name);
    keys_.push_back(std::move(key));
    return keys_.back();
  }

  Keys& keys_;
  std::string block_;
};

constexpr const char* measured = "`runner show` and `runner metrics` print times, rates and memory";
constexpr const char* logged =
    "every step is in the ledger (`runner metrics`); the log of each rank is in the run's folder";
constexpr const char* one_copy = "every weight has one float32 master, and optimizer state is float32";

void add_batch(Rows rows) {
  rows.handled("train_batch_size", "train.global_batch_size");
  rows.handled("train_micro_batch_size_per_gpu", "train.micro_batch_size");
  rows.handled("gradient_accumulation_steps", "train.accumulate_grad_batches");
  rows.checked("managed_gradient_accumulation", true, "the trainer always counts the micro-batches of a step");
  rows.handled("gradient_clipping", "train.gradient_clip_val");
  rows.option("prescale_gradients");
  rows.option("gradient_predivide_factor");
  rows.checked("gradient_allreduce_op", "mean", "the loss is the mean over all tokens of the global batch");
  rows.option("communication_data_type");
  rows.ignored("seq_parallel_communication_data_type", "fp32",
               "ranks of a context axis exchange values in the compute dtype");
  rows.checked("sparse_gradients", false, "gradients of embeddings are dense");
  rows.checked("disable_allgather", false, "without the all-gather, ranks would not have the updated parameters");
  rows.recipe("steps_per_print", "train.print_every_n_steps");
  rows.ignored("wall_clock_breakdown", false, measured);
  rows.ignored("memory_breakdown", false, measured);
  rows.ignored("dump_state", false, "`runner print` and `runner show` print every value of a run");
  rows.ignored("dataloader_drop_last", false,
               "the last, short batch of an epoch is trained on, and its tokens weigh as much as others");
  rows.ignored("vocabulary_size", nullptr, "model.vocab_size sets it");
  rows.ignored("log_level", nullptr, logged);
  rows.refused("weight_quantization", "weights are not quantized; leave it out").open = true;
  rows.ignored("graph_harvesting", false, "there are no CUDA graphs here");
  rows.ignored("zero_allow_untested_optimizer", nullptr, "every optimizer here is tested with every stage");
  rows.ignored("zero_force_ds_cpu_optimizer", true, "there is one CPU Adam");
  Rows types = rows.block("data_types");
  types.checked("grad_accum_dtype", "fp32", "sums of several micro-batches are float32");
  types.refused("param_dtype", "precision.mode decides; write fp16 or bf16");
  types.refused("buffer_dtype", "precision.mode decides; write fp16 or bf16");
  rows.block("timers");
  Rows throughput = rows.block("timers.throughput");
  throughput.ignored("enabled", true, measured);
  throughput.ignored("synchronized", true, measured);
}

void add_precision(Rows rows) {
  const Option enabled{.name = "enabled", .type = Type::boolean};
  Rows half = rows.block("fp16");
  half.handled(enabled, "precision.mode");
  half.ignored("auto_cast", false, "the inputs of the model are token ids");
  half.option("loss_scale");
  half.option("initial_scale_power");
  half.option("loss_scale_window");
  half.option("hysteresis");
  half.option("consecutive_hysteresis");
  half.option("min_loss_scale");
  half.checked("fp16_master_weights_and_grads", false, one_copy);
  Rows brain = rows.block("bf16");
  rows.block("bfloat16", "bf16");
  brain.handled(enabled, "precision.mode");
  brain.handled("check_grad_overflow");
  brain.ignored("immediate_grad_update", false, "ZeRO stage and accumulation determine where gradients are summed");
  brain.checked("bf16_master_weights_and_grads", false, one_copy);
  brain.checked("bf16_optimizer_states", false, one_copy);
  rows.refused("torch_autocast",
               "modules are not cast one by one; write \"bf16\": {\"enabled\": true} (precision.mode = \"bf16-mixed\")",
               {"enabled", "dtype", "lower_precision_safe_modules"});
  rows.refused("amp",
               "Apex does not work with ZeRO; write \"fp16\": {\"enabled\": true} (precision.mode = \"16-mixed\")",
               {"enabled", "opt_level"})
      .open = true;
}

void add_zero(Rows rows) {
  constexpr const char* quantized =
      "gradients and weights are sent unquantized; communication_data_type \"bf16\" halves the size of float32";
  constexpr const char* whole_blocks = "stage 3 gathers one block at a time: every block is a leaf module";
  constexpr const char* all_checkpoints =
      "any strategy on any number of ranks can load a checkpoint, master weights included";
  Rows zero = rows.block("zero_optimization");
  zero.handled("stage");
  for (const char* name :
       {"contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_partitions", "allgather_bucket_size",
        "overlap_comm", "sub_group_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
        "stage3_model_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance",
        "stage3_gather_16bit_weights_on_model_save", "round_robin_gradients"})
    zero.option(name);
  zero.ignored("use_multi_rank_bucket_allreduce", true, "a bucket is reduced by one collective");
  zero.ignored("load_from_fp32_weights", true, all_checkpoints);
  zero.ignored("elastic_checkpoint", false, all_checkpoints);
  zero.ignored("legacy_stage1", false, "there is only one implementation of stage 1");
  zero.ignored("ignore_unused_parameters", true, "every parameter of the models here is used");
  zero.ignored("stage3_module_granularity_threshold", 0, whole_blocks);
  zero.ignored("stage3_use_all_reduce_for_fetch_params", false, "a block is gathered by one all-gather");
  zero.ignored("stage3_allgather_sequential", false, "a block is gathered by one all-gather");
  zero.ignored("leaf_module", nullptr, whole_blocks, {"classes", "names", "name_suffixes"});
  zero.checked("zero_hpz_partition_size", 1,
               "there is no second set of shards; mics_shard_size shards within groups of ranks");
  zero.checked("zero_quantized_weights", false, quantized);
  zero.checked("zero_quantized_nontrainable_weights", false, quantized);
  zero.checked("zero_quantized_gradients", false, quantized);
  zero.refused("zeropp_loco_param", quantized, {"err_beta", "reset_T"});
  zero.handled("mics_shard_size", "mics_shard_size");
  zero.checked("mics_hierarchical_params_gather", false, "one collective gathers all shards; see mics_shard_size");
  zero.ignored("memory_efficient_linear", true, "blocks use the gathered weights directly");
  zero.ignored("override_module_apply", true, "initial weights depend only on the seed and the parameter's name");
  zero.ignored("pipeline_loading_checkpoint", false, "shards are read in place");
  zero.ignored("log_trace_cache_warnings", false, "blocks are used in the order of the model: there is no trace");
  zero.ignored("enable_sanity_checks", false, "mismatched collectives are always detected");
  zero.ignored("save_muon_momentum_buffer_in_memory", false, "checkpoints contain every state of the optimizer");
  zero.refused("zenflow", "all gradients are applied in the step they belong to; leave it out",
               {"topk_ratio", "select_strategy", "select_interval", "update_interval", "overlap_step", "offload",
                "auto_ratio", "full_warm_up_rounds", "pt_reserved_cores_perc"});
  zero.handled("cpu_offload").old_name_of = "zero_optimization.offload_optimizer";
  zero.handled("cpu_offload_param").old_name_of = "zero_optimization.offload_param";
  zero.option("cpu_offload_use_pin_memory", "pin_memory").old_name_of =
      "zero_optimization.offload_optimizer.pin_memory";
  zero.option("stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save").old_name_of =
      "zero_optimization.stage3_gather_16bit_weights_on_model_save";
}

void add_offload(Rows rows) {
  const Option device{.name = "device", .type = Type::choice, .choices = {"none", "cpu", "nvme"}};
  constexpr const char* ahead = "tiles are always read ahead and written behind the update";
  Rows optimizer = rows.block("zero_optimization.offload_optimizer");
  optimizer.handled(device, "offload_optimizer_device");
  optimizer.option("pin_memory");
  optimizer.option("nvme_path");
  optimizer.option("buffer_count", "optimizer_buffer_count");
  optimizer.ignored("pipeline_read", false, ahead);
  optimizer.ignored("pipeline_write", false, ahead);
  optimizer.ignored("fast_init", false, "the states are initialised with zeros");
  optimizer.checked("ratio", 1, "the update is offloaded completely or not at all");
  optimizer.checked("super_offload", false, "the update is offloaded as for device \"cpu\"");
  optimizer.ignored("cpuadam_cores_perc", 0.8, "devices.threads_per_rank sets the number of threads of a rank");
  Rows parameters = rows.block("zero_optimization.offload_param");
  parameters.handled(device, "offload_params_device");
  parameters.option("pin_memory");
  parameters.option("nvme_path");
  parameters.option("buffer_count", "params_buffer_count");
  parameters.option("buffer_size", "params_buffer_size");
  parameters.option("max_in_cpu");
  Rows aio = rows.block("aio");
  aio.option("block_size");
  aio.option("queue_depth");
  aio.option("single_submit");
  aio.option("overlap_events");
  aio.option("intra_op_parallelism", "thread_count");
  aio.option("thread_count").old_name_of = "aio.intra_op_parallelism";
  aio.checked("use_gds", false, "files are read into host memory");
}

void add_optimizer(Rows rows) {
  constexpr const char* other_type = "no optimizer here has this parameter";
  rows.block("optimizer");
  rows.handled("optimizer.type");
  rows.ignored("optimizer.legacy_fusion", false, "there is one implementation of each optimizer");
  Rows params = rows.block("optimizer.params");
  params.recipe("lr", "optimizer.lr");
  params.recipe("betas", "optimizer.betas");
  params.recipe("eps", "optimizer.eps");
  params.handled("weight_decay", "optimizer.weight_decay");
  params.handled("momentum", "optimizer.momentum");
  params.handled("nesterov", "optimizer.nesterov");
  params.ignored("torch_adam", false, "there is one Adam, and its results are PyTorch's");
  params.handled("adam_w_mode");
  params.checked("bias_correction", true, "Adam always corrects its bias");
  params.checked("amsgrad", false, "there is no AMSGrad here");
  for (const char* name : {"freeze_step", "cuda_aware", "comm_backend_name", "var_freeze_step", "var_update_scaler",
                           "local_step_scaler", "local_step_clipper", "max_coeff", "min_coeff", "coeff_beta",
                           "factor_max", "factor_min", "factor_threshold", "muon_lr", "adam_lr", "ns_method"})
    params.refused(name, other_type);
  rows.block("scheduler");
  rows.handled("scheduler.type");
  Rows schedule = rows.block("scheduler.params");
  schedule.handled({.name = "warmup_min_lr", .type = Type::other, .default_value = 0});
  schedule.handled("warmup_max_lr", "optimizer.lr");
  schedule.handled("warmup_num_steps", "lr_scheduler.warmup_steps");
  schedule.handled({.name = "warmup_type", .type = Type::choice, .choices = {"linear", "log"}}, "lr_scheduler.warmup");
  schedule.handled("total_num_steps", "train.max_steps");
  schedule.handled({.name = "warmup_min_ratio", .type = Type::other, .default_value = 0});
  schedule.handled("cos_min_ratio", "lr_scheduler.min_lr_ratio");
  schedule.handled("last_batch_iteration");
}

void add_recomputation(Rows rows) {
  Rows block = rows.block("activation_checkpointing");
  block.ignored("partition_activations", false,
                "the ranks of a tensor axis divide activations in any case: strategy.sequence_parallel");
  block.recipe("cpu_checkpointing", "activation_checkpointing.cpu_checkpointing");
  block.ignored("contiguous_memory_optimization", false,
                "all block inputs have the same size, so the allocator reuses their memory without fragmentation");
  block.ignored("synchronize_checkpoint_boundary", false,
                "events order copies and kernels, so the device needs no synchronization between blocks");
  block.ignored("profile", false, measured);
  block.ignored("number_checkpoints", nullptr,
                "the recipe determines which blocks are recomputed: activation_checkpointing.mode = \"all\", \"every\" "
                "or \"named\"");
}

void add_tools(Rows rows) {
  rows.ignored(
      "flops_profiler", nullptr, measured,
      {"enabled", "profile_step", "module_depth", "top_modules", "detailed", "recompute_fwd_factor", "output_file"});
  rows.refused(
      "autotuning",
      "there are no tuning runs; strategy.name = \"auto\" chooses by prediction, and `runner print` shows the choice",
      {"enabled", "fast", "metric", "start_profile_step", "end_profile_step", "tuner_type", "tuner_early_stopping",
       "tuner_num_trials", "num_tuning_micro_batch_sizes", "overwrite", "mp_size", "results_dir", "exps_dir"});
  rows.ignored("comms_logger", nullptr, measured, {"enabled", "verbose", "prof_all", "prof_ops", "debug"});
  rows.ignored("tensorboard", nullptr, logged, {"enabled", "output_path", "job_name"});
  rows.ignored("csv_monitor", nullptr, logged, {"enabled", "output_path", "job_name"});
  rows.ignored("wandb", nullptr, logged, {"enabled", "group", "team", "project"});
  rows.ignored("comet", nullptr, logged,
               {"enabled", "samples_log_interval", "project", "workspace", "api_key", "experiment_name",
                "experiment_key", "online", "mode"});
  constexpr const char* one_kind =
      "checkpoints are safetensors shards that any strategy on any number of ranks can load";
  rows.ignored("checkpoint", nullptr, one_kind,
               {"tag_validation", "load_universal", "use_node_local_storage", "parallel_write",
                "parallel_write.pipeline_stage", "checkpoint_serialization", "writer", "writer.type",
                "writer.io_buffer_size", "writer.io_buffer_double", "writer.data_parallel", "writer.io_multiplier"});
}

void add_other_parallelism(Rows rows) {
  constexpr const char* no_axis = "ranks divide data, matrices, blocks and sequences, not experts";
  constexpr const char* known_division = "the models here know how ranks divide their matrices";
  rows.refused(
      "elasticity",
      "devices.min_nodes and devices.max_nodes make a run elastic, and train.global_batch_size is the same on any "
      "number of ranks that divides it",
      {"enabled", "max_train_batch_size", "micro_batch_sizes", "min_gpus", "max_gpus", "min_time",
       "prefer_larger_batch", "version", "num_gpus_per_node", "model_parallel_size"});
  Rows pipeline = rows.block("pipeline");
  pipeline.handled("stages", "strategy.pipeline_parallel_size");
  pipeline.ignored("partition", "best", "stages are balanced by predicted times: strategy.stages");
  pipeline.ignored("seed_layers", false, "initial values do not depend on the stages");
  pipeline.ignored("activation_checkpoint_interval", 0, "activation_checkpointing decides what is recomputed");
  for (const char* name : {"pipe_partitioned", "grad_partitioned"})
    pipeline.ignored(name, true, "what stages send is divided with the rows: strategy.sequence_parallel");
  Rows tensor = rows.block("tensor_parallel");
  tensor.handled("autotp_size", "strategy.tensor_parallel_size");
  Rows old = rows.block("tensor_parallel.tp");
  old.handled("tp_size", "strategy.tensor_parallel_size").old_name_of = "tensor_parallel.autotp_size";
  old.ignored("tp_grain_size", 1, known_division);
  tensor.ignored("tp_overlap_comm", false, "it does not change results");
  tensor.ignored("preset_model", nullptr, known_division);
  tensor.ignored("partition_config", nullptr, known_division, {"use_default_specs", "layer_specs"});
  tensor.ignored("layer_specs", nullptr, known_division);
  rows.block("expert_parallel");
  rows.checked("expert_parallel.autoep_size", 1, no_axis);
  rows.ignored("use_data_before_expert_parallelism", false, "there is no expert parallelism here");
  rows.handled("sequence_parallel_size", "strategy.context_parallel_size");
  Rows compile = rows.block("compile");
  compile.checked("deepcompile", false, "models are not compiled here");
  for (const char* name : {"passes", "offload_activation", "offload_opt_states", "offload_parameters", "double_buffer",
                           "symmetric_memory"})
    compile.inner(name);
  for (const char* name : {"curriculum_learning", "data_efficiency", "progressive_layer_drop", "eigenvalue",
                           "compression_training", "sparse_attention", "hybrid_engine", "nebula", "datastates_ckpt"})
    rows.refused(name, "it is not implemented here; leave it out").open = true;
}

}  // namespace

const std::vector<DeepSpeedKey>& deepspeed_keys() {
  static const Keys table = [] {
    Keys keys;
    for (auto add : {add_batch, add_precision, add_zero, add_offload, add_optimizer, add_recomputation, add_tools,
                     add_other_parallelism})
      add(Rows(keys));
    return keys;
  }();
  return table;
}

const DeepSpeedKey* find_deepspeed_key(const std::string& path) {
  for (const auto& key : deepspeed_keys())
    if (key.path == path) return &key;
  return nullptr;
}

std::optional<std::string> refused_optimizer(const std::string& type) {
  constexpr const char* exact =
      "gradients are sent uncompressed; \"AdamW\" with communication_data_type \"bf16\" halves the size of float32";
  constexpr const char* no_mup =
      "learning rates do not scale with the model's width; use \"AdamW\" or \"SGD\" with groups in [optimizer]";
  constexpr const char* not_here = "it is not implemented here; use \"AdamW\"";
  constexpr const char* own_muon =
      "its parameters are not translated; optimizer.name = \"muon\" in a recipe is this optimizer";
  static const std::map<std::string, const char*> types = {
      {"lamb", not_here},    {"adagrad", not_here}, {"muon", own_muon},  {"onebitadam", exact}, {"zerooneadam", exact},
      {"onebitlamb", exact}, {"muadam", no_mup},    {"muadamw", no_mup}, {"musgd", no_mup},
  };
  auto found = types.find(lower(type));
  return found == types.end() ? std::nullopt : std::optional<std::string>(found->second);
}

std::optional<std::string> refused_scheduler(const std::string& type) {
  const std::string instead =
      "it is not implemented here; use \"WarmupDecayLR\" or \"WarmupCosineLR\", or a recipe's [lr_scheduler] (" +
      join(find_key("lr_scheduler.name")->choices, ", ") + ")";
  auto small = lower(type);
  return small == "onecycle" || small == "lrrangetest" ? std::optional(instead) : std::nullopt;
}

}  // namespace runner
