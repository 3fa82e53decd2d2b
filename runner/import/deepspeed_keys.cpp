#include "runner/import/deepspeed_keys.hpp"

#include <map>

#include "runner/base/text.hpp"

namespace runner {

namespace {

using F = DeepSpeedKey::Fate;
using Keys = std::vector<DeepSpeedKey>;

constexpr const char* measured = "`runner show` and `runner metrics` print times, rates and memory";
constexpr const char* logged =
    "every step is in the ledger (`runner metrics`); the log of each rank is in the run's folder";
constexpr const char* one_copy = "every weight has one float32 master, and optimizer state is float32";

void add_batch(Keys& keys) {
  Keys more = {
      {"train_batch_size", F::handled, "train.global_batch_size"},
      {"train_micro_batch_size_per_gpu", F::handled, "train.micro_batch_size"},
      {"gradient_accumulation_steps", F::handled, "train.accumulate_grad_batches"},
      {.path = "managed_gradient_accumulation",
       .fate = F::checked,
       .works = true,
       .reason = "the trainer always counts the micro-batches of a step"},
      {"gradient_clipping", F::handled, "train.gradient_clip_val"},
      {"prescale_gradients", F::option, "prescale_gradients"},
      {"gradient_predivide_factor", F::option, "gradient_predivide_factor"},
      {.path = "gradient_allreduce_op",
       .fate = F::checked,
       .works = "mean",
       .reason = "the loss is the mean over all tokens of the global batch"},
      {"communication_data_type", F::option, "communication_data_type"},
      {.path = "seq_parallel_communication_data_type",
       .fate = F::ignored,
       .works = "fp32",
       .reason = "there is no sequence parallelism here"},
      {.path = "sparse_gradients", .fate = F::checked, .works = false, .reason = "gradients of embeddings are dense"},
      {.path = "disable_allgather",
       .fate = F::checked,
       .works = false,
       .reason = "without the all-gather, ranks would not have the updated parameters"},
      {"steps_per_print", F::recipe, "train.print_every_n_steps"},
      {.path = "wall_clock_breakdown", .fate = F::ignored, .works = false, .reason = measured},
      {.path = "memory_breakdown", .fate = F::ignored, .works = false, .reason = measured},
      {.path = "dump_state",
       .fate = F::ignored,
       .works = false,
       .reason = "`runner print` and `runner show` print every value of a run"},
      {.path = "dataloader_drop_last",
       .fate = F::ignored,
       .works = false,
       .reason = "the last, short batch of an epoch is trained on, and its tokens weigh as much as others"},
      {.path = "vocabulary_size", .fate = F::ignored, .reason = "model.vocab_size sets it"},
      {.path = "log_level", .fate = F::ignored, .reason = logged},
      {.path = "weight_quantization", .fate = F::refused, .reason = "weights are not quantized; leave it out",
       .open = true},
      {.path = "graph_harvesting", .fate = F::ignored, .works = false, .reason = "there are no CUDA graphs here"},
      {.path = "zero_allow_untested_optimizer",
       .fate = F::ignored,
       .reason = "every optimizer here is tested with every stage"},
      {.path = "zero_force_ds_cpu_optimizer", .fate = F::ignored, .works = true, .reason = "there is one CPU Adam"},
      {"data_types", F::block},
      {.path = "data_types.grad_accum_dtype",
       .fate = F::checked,
       .works = "fp32",
       .reason = "sums of several micro-batches are float32"},
      {.path = "data_types.param_dtype", .fate = F::refused, .reason = "precision.mode decides; write fp16 or bf16"},
      {.path = "data_types.buffer_dtype", .fate = F::refused, .reason = "precision.mode decides; write fp16 or bf16"},
      {"timers", F::block},
      {"timers.throughput", F::block},
      {.path = "timers.throughput.enabled", .fate = F::ignored, .works = true, .reason = measured},
      {.path = "timers.throughput.synchronized", .fate = F::ignored, .works = true, .reason = measured},
  };
  keys.insert(keys.end(), more.begin(), more.end());
}

void add_precision(Keys& keys) {
  Keys more = {
      {"fp16", F::block},
      {"fp16.enabled", F::handled, "precision.mode"},
      {.path = "fp16.auto_cast", .fate = F::ignored, .works = false, .reason = "the inputs of the model are token ids"},
      {"fp16.loss_scale", F::option, "loss_scale"},
      {"fp16.initial_scale_power", F::option, "initial_scale_power"},
      {"fp16.loss_scale_window", F::option, "loss_scale_window"},
      {"fp16.hysteresis", F::option, "hysteresis"},
      {"fp16.consecutive_hysteresis", F::option, "consecutive_hysteresis"},
      {"fp16.min_loss_scale", F::option, "min_loss_scale"},
      {.path = "fp16.fp16_master_weights_and_grads", .fate = F::checked, .works = false, .reason = one_copy},
      {"bf16", F::block},
      {.path = "bfloat16", .fate = F::block, .old_name_of = "bf16"},
      {"bf16.enabled", F::handled, "precision.mode"},
      {"bf16.check_grad_overflow", F::handled},
      {.path = "bf16.immediate_grad_update", .fate = F::ignored, .works = false,
       .reason = "ZeRO stage and accumulation determine where gradients are summed"},
      {.path = "bf16.bf16_master_weights_and_grads", .fate = F::checked, .works = false, .reason = one_copy},
      {.path = "bf16.bf16_optimizer_states", .fate = F::checked, .works = false, .reason = one_copy},
      {.path = "torch_autocast", .fate = F::refused,
       .reason = "modules are not cast one by one; write \"bf16\": {\"enabled\": true} (precision.mode = "
                 "\"bf16-mixed\")"},
      {"torch_autocast.enabled", F::inner},
      {"torch_autocast.dtype", F::inner},
      {"torch_autocast.lower_precision_safe_modules", F::inner},
      {.path = "amp", .fate = F::refused,
       .reason = "Apex does not work with ZeRO; write \"fp16\": {\"enabled\": true} (precision.mode = \"16-mixed\")",
       .open = true},
      {"amp.enabled", F::inner},
      {"amp.opt_level", F::inner},
  };
  keys.insert(keys.end(), more.begin(), more.end());
}

/// Keys that have the same name in [strategy].
void add_stage_options(Keys& keys) {
  for (const char* name :
       {"contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_partitions", "allgather_bucket_size",
        "overlap_comm", "sub_group_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
        "stage3_model_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance",
        "stage3_gather_16bit_weights_on_model_save", "round_robin_gradients"})
    keys.push_back({std::string("zero_optimization.") + name, F::option, name});
}

void add_zero(Keys& keys) {
  constexpr const char* quantized =
      "gradients and weights are sent unquantized; communication_data_type \"bf16\" halves the size of float32";
  constexpr const char* whole_blocks = "stage 3 gathers one block at a time: every block is a leaf module";
  constexpr const char* all_checkpoints =
      "any strategy on any number of ranks can load a checkpoint, master weights included";
  keys.push_back({"zero_optimization", F::block});
  keys.push_back({"zero_optimization.stage", F::handled});
  add_stage_options(keys);
  Keys more = {
      {.path = "use_multi_rank_bucket_allreduce", .fate = F::ignored, .works = true,
       .reason = "a bucket is reduced by one collective"},
      {.path = "load_from_fp32_weights", .fate = F::ignored, .works = true, .reason = all_checkpoints},
      {.path = "elastic_checkpoint", .fate = F::ignored, .works = false, .reason = all_checkpoints},
      {.path = "legacy_stage1", .fate = F::ignored, .works = false,
       .reason = "there is only one implementation of stage 1"},
      {.path = "ignore_unused_parameters", .fate = F::ignored, .works = true,
       .reason = "every parameter of the models here is used"},
      {.path = "stage3_module_granularity_threshold", .fate = F::ignored, .works = 0, .reason = whole_blocks},
      {.path = "stage3_use_all_reduce_for_fetch_params", .fate = F::ignored, .works = false,
       .reason = "a block is gathered by one all-gather"},
      {.path = "stage3_allgather_sequential", .fate = F::ignored, .works = false,
       .reason = "a block is gathered by one all-gather"},
      {.path = "leaf_module", .fate = F::ignored, .reason = whole_blocks},
      {"leaf_module.classes", F::inner},
      {"leaf_module.names", F::inner},
      {"leaf_module.name_suffixes", F::inner},
      {.path = "zero_hpz_partition_size", .fate = F::checked, .works = 1,
       .reason = "there is no second set of shards; mics_shard_size shards within groups of ranks"},
      {.path = "zero_quantized_weights", .fate = F::checked, .works = false, .reason = quantized},
      {.path = "zero_quantized_nontrainable_weights", .fate = F::checked, .works = false, .reason = quantized},
      {.path = "zero_quantized_gradients", .fate = F::checked, .works = false, .reason = quantized},
      {.path = "zeropp_loco_param", .fate = F::refused, .reason = quantized},
      {"zeropp_loco_param.err_beta", F::inner},
      {"zeropp_loco_param.reset_T", F::inner},
      {"mics_shard_size", F::handled, "mics_shard_size"},
      {.path = "mics_hierarchical_params_gather", .fate = F::checked, .works = false,
       .reason = "one collective gathers all shards; see mics_shard_size"},
      {.path = "memory_efficient_linear", .fate = F::ignored, .works = true,
       .reason = "blocks use the gathered weights directly"},
      {.path = "override_module_apply", .fate = F::ignored, .works = true,
       .reason = "initial weights depend only on the seed and the parameter's name"},
      {.path = "pipeline_loading_checkpoint", .fate = F::ignored, .works = false, .reason = "shards are read in place"},
      {.path = "log_trace_cache_warnings", .fate = F::ignored, .works = false,
       .reason = "blocks are used in the order of the model: there is no trace"},
      {.path = "enable_sanity_checks", .fate = F::ignored, .works = false,
       .reason = "mismatched collectives are always detected"},
      {.path = "save_muon_momentum_buffer_in_memory", .fate = F::ignored, .works = false,
       .reason = "there is no Muon here"},
      {.path = "zenflow", .fate = F::refused,
       .reason = "all gradients are applied in the step they belong to; leave it out"},
      {"zenflow.topk_ratio", F::inner},
      {"zenflow.select_strategy", F::inner},
      {"zenflow.select_interval", F::inner},
      {"zenflow.update_interval", F::inner},
      {"zenflow.overlap_step", F::inner},
      {"zenflow.offload", F::inner},
      {"zenflow.auto_ratio", F::inner},
      {"zenflow.full_warm_up_rounds", F::inner},
      {"zenflow.pt_reserved_cores_perc", F::inner},
      {.path = "cpu_offload", .fate = F::handled, .old_name_of = "zero_optimization.offload_optimizer"},
      {.path = "cpu_offload_param", .fate = F::handled, .old_name_of = "zero_optimization.offload_param"},
      {.path = "cpu_offload_use_pin_memory", .fate = F::option, .target = "pin_memory",
       .old_name_of = "zero_optimization.offload_optimizer.pin_memory"},
      {.path = "stage3_gather_fp16_weights_on_model_save", .fate = F::option,
       .target = "stage3_gather_16bit_weights_on_model_save",
       .old_name_of = "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
  };
  for (auto& key : more) key.path = "zero_optimization." + key.path;
  keys.insert(keys.end(), more.begin(), more.end());
}

void add_offload(Keys& keys) {
  constexpr const char* ahead = "tiles are always read ahead and written behind the update";
  Keys more = {
      {"zero_optimization.offload_optimizer", F::block},
      {"zero_optimization.offload_optimizer.device", F::handled, "offload_optimizer_device"},
      {"zero_optimization.offload_optimizer.pin_memory", F::option, "pin_memory"},
      {"zero_optimization.offload_optimizer.nvme_path", F::option, "nvme_path"},
      {"zero_optimization.offload_optimizer.buffer_count", F::option, "optimizer_buffer_count"},
      {.path = "zero_optimization.offload_optimizer.pipeline_read", .fate = F::ignored, .works = false,
       .reason = ahead},
      {.path = "zero_optimization.offload_optimizer.pipeline_write", .fate = F::ignored, .works = false,
       .reason = ahead},
      {.path = "zero_optimization.offload_optimizer.fast_init", .fate = F::ignored, .works = false,
       .reason = "the states are initialised with zeros"},
      {.path = "zero_optimization.offload_optimizer.ratio", .fate = F::checked, .works = 1,
       .reason = "the update is offloaded completely or not at all"},
      {.path = "zero_optimization.offload_optimizer.super_offload", .fate = F::checked, .works = false,
       .reason = "the update is offloaded as for device \"cpu\""},
      {.path = "zero_optimization.offload_optimizer.cpuadam_cores_perc", .fate = F::ignored, .works = 0.8,
       .reason = "devices.threads_per_rank sets the number of threads of a rank"},
      {"zero_optimization.offload_param", F::block},
      {"zero_optimization.offload_param.device", F::handled, "offload_params_device"},
      {"zero_optimization.offload_param.pin_memory", F::option, "pin_memory"},
      {"zero_optimization.offload_param.nvme_path", F::option, "nvme_path"},
      {"zero_optimization.offload_param.buffer_count", F::option, "params_buffer_count"},
      {"zero_optimization.offload_param.buffer_size", F::option, "params_buffer_size"},
      {"zero_optimization.offload_param.max_in_cpu", F::option, "max_in_cpu"},
      {"aio", F::block},
      {"aio.block_size", F::option, "block_size"},
      {"aio.queue_depth", F::option, "queue_depth"},
      {"aio.single_submit", F::option, "single_submit"},
      {"aio.overlap_events", F::option, "overlap_events"},
      {"aio.intra_op_parallelism", F::option, "thread_count"},
      {.path = "aio.thread_count", .fate = F::option, .target = "thread_count",
       .old_name_of = "aio.intra_op_parallelism"},
      {.path = "aio.use_gds", .fate = F::checked, .works = false, .reason = "files are read into host memory"},
  };
  keys.insert(keys.end(), more.begin(), more.end());
}

void add_optimizer(Keys& keys) {
  constexpr const char* other_type = "no optimizer here has this parameter";
  keys.push_back({"optimizer", F::block});
  keys.push_back({"optimizer.type", F::handled});
  keys.push_back({.path = "optimizer.legacy_fusion", .fate = F::ignored, .works = false,
                  .reason = "there is one implementation of each optimizer"});
  keys.push_back({"optimizer.params", F::block});
  Keys params = {
      {"lr", F::recipe, "optimizer.lr"},
      {"betas", F::recipe, "optimizer.betas"},
      {"eps", F::recipe, "optimizer.eps"},
      {"weight_decay", F::handled, "optimizer.weight_decay"},
      {"momentum", F::handled, "optimizer.momentum"},
      {"nesterov", F::handled, "optimizer.nesterov"},
      {.path = "torch_adam", .fate = F::ignored, .works = false,
       .reason = "there is one Adam, and its results are PyTorch's"},
      {"adam_w_mode", F::handled},
      {.path = "bias_correction", .fate = F::checked, .works = true, .reason = "Adam always corrects its bias"},
      {.path = "amsgrad", .fate = F::checked, .works = false, .reason = "there is no AMSGrad here"},
  };
  for (const char* name : {"freeze_step", "cuda_aware", "comm_backend_name", "var_freeze_step", "var_update_scaler",
                           "local_step_scaler", "local_step_clipper", "max_coeff", "min_coeff", "coeff_beta",
                           "factor_max", "factor_min", "factor_threshold", "muon_lr", "adam_lr", "ns_method"})
    params.push_back({.path = name, .fate = F::refused, .reason = other_type});
  for (auto& key : params) key.path = "optimizer.params." + key.path;
  keys.insert(keys.end(), params.begin(), params.end());
  keys.push_back({"scheduler", F::block});
  keys.push_back({"scheduler.type", F::handled});
  keys.push_back({"scheduler.params", F::block});
  Keys of_schedule = {
      {.path = "warmup_min_lr", .fate = F::handled, .works = 0},
      {"warmup_max_lr", F::handled, "optimizer.lr"},
      {"warmup_num_steps", F::handled, "lr_scheduler.warmup_steps"},
      {"warmup_type", F::handled, "lr_scheduler.warmup"},
      {"total_num_steps", F::handled, "train.max_steps"},
      {.path = "warmup_min_ratio", .fate = F::handled, .works = 0},
      {"cos_min_ratio", F::handled, "lr_scheduler.min_lr_ratio"},
      {"last_batch_iteration", F::handled},
  };
  for (auto& key : of_schedule) key.path = "scheduler.params." + key.path;
  keys.insert(keys.end(), of_schedule.begin(), of_schedule.end());
}

void add_recomputation(Keys& keys) {
  Keys more = {
      {"activation_checkpointing", F::block},
      {.path = "activation_checkpointing.partition_activations", .fate = F::ignored, .works = false,
       .reason = "DeepSpeed partitions activations over tensor-parallel ranks, and there is no tensor parallelism "
                 "here"},
      {"activation_checkpointing.cpu_checkpointing", F::recipe, "activation_checkpointing.cpu_checkpointing"},
      {.path = "activation_checkpointing.contiguous_memory_optimization", .fate = F::ignored, .works = false,
       .reason = "all block inputs have the same size, so the allocator reuses their memory without fragmentation"},
      {.path = "activation_checkpointing.synchronize_checkpoint_boundary", .fate = F::ignored, .works = false,
       .reason = "events order copies and kernels, so the device needs no synchronization between blocks"},
      {.path = "activation_checkpointing.profile", .fate = F::ignored, .works = false, .reason = measured},
      {.path = "activation_checkpointing.number_checkpoints", .fate = F::ignored,
       .reason = "the recipe determines which blocks are recomputed: activation_checkpointing.mode = \"all\", "
                 "\"every\" or \"named\""},
  };
  keys.insert(keys.end(), more.begin(), more.end());
}

/// A block that is ignored or refused with all its keys. `names`: the keys.
void add_block(Keys& keys, DeepSpeedKey block, const std::vector<std::string>& names) {
  for (const auto& name : names) keys.push_back({block.path + "." + name, F::inner});
  keys.push_back(std::move(block));
}

void add_tools(Keys& keys) {
  add_block(
      keys, {.path = "flops_profiler", .fate = F::ignored, .reason = measured},
      {"enabled", "profile_step", "module_depth", "top_modules", "detailed", "recompute_fwd_factor", "output_file"});
  add_block(
      keys,
      {.path = "autotuning", .fate = F::refused,
       .reason = "there are no tuning runs; strategy.name = \"auto\" chooses by prediction, and `runner print` shows "
                 "the choice"},
      {"enabled", "fast", "metric", "start_profile_step", "end_profile_step", "tuner_type", "tuner_early_stopping",
       "tuner_num_trials", "num_tuning_micro_batch_sizes", "overwrite", "mp_size", "results_dir", "exps_dir"});
  add_block(keys, {.path = "comms_logger", .fate = F::ignored, .reason = measured},
            {"enabled", "verbose", "prof_all", "prof_ops", "debug"});
  add_block(keys, {.path = "tensorboard", .fate = F::ignored, .reason = logged},
            {"enabled", "output_path", "job_name"});
  add_block(keys, {.path = "csv_monitor", .fate = F::ignored, .reason = logged},
            {"enabled", "output_path", "job_name"});
  add_block(keys, {.path = "wandb", .fate = F::ignored, .reason = logged}, {"enabled", "group", "team", "project"});
  add_block(keys, {.path = "comet", .fate = F::ignored, .reason = logged},
            {"enabled", "samples_log_interval", "project", "workspace", "api_key", "experiment_name", "experiment_key",
             "online", "mode"});
  constexpr const char* one_kind =
      "checkpoints are safetensors shards that any strategy on any number of ranks can load";
  add_block(keys, {.path = "checkpoint", .fate = F::ignored, .reason = one_kind},
            {"tag_validation", "load_universal", "use_node_local_storage", "parallel_write",
             "parallel_write.pipeline_stage", "checkpoint_serialization", "writer", "writer.type",
             "writer.io_buffer_size", "writer.io_buffer_double", "writer.data_parallel", "writer.io_multiplier"});
}

void add_other_parallelism(Keys& keys) {
  constexpr const char* data_only = "ranks split data, not layers or sequences";
  add_block(keys,
            {.path = "elasticity", .fate = F::refused,
             .reason = "train.global_batch_size is the same on any number of ranks that divides it"},
            {"enabled", "max_train_batch_size", "micro_batch_sizes", "min_gpus", "max_gpus", "min_time",
             "prefer_larger_batch", "version", "num_gpus_per_node", "model_parallel_size"});
  add_block(
      keys, {.path = "pipeline", .fate = F::ignored, .reason = "there is no pipeline parallelism here"},
      {"stages", "partition", "seed_layers", "activation_checkpoint_interval", "pipe_partitioned", "grad_partitioned"});
  keys.push_back({"tensor_parallel", F::block});
  keys.push_back({.path = "tensor_parallel.autotp_size", .fate = F::checked, .works = 0, .reason = data_only});
  keys.push_back({.path = "tensor_parallel.layer_specs", .fate = F::refused, .reason = data_only});
  keys.push_back({"expert_parallel", F::block});
  keys.push_back({.path = "expert_parallel.autoep_size", .fate = F::checked, .works = 1, .reason = data_only});
  keys.push_back({.path = "use_data_before_expert_parallelism", .fate = F::ignored, .works = false,
                  .reason = "there is no expert parallelism here"});
  keys.push_back({.path = "sequence_parallel_size", .fate = F::checked, .works = 1, .reason = data_only});
  keys.push_back({"compile", F::block});
  keys.push_back({.path = "compile.deepcompile", .fate = F::checked, .works = false,
                  .reason = "models are not compiled here"});
  for (const char* name : {"passes", "offload_activation", "offload_opt_states", "offload_parameters", "double_buffer",
                           "symmetric_memory"})
    keys.push_back({std::string("compile.") + name, F::inner});
  for (const char* name : {"curriculum_learning", "data_efficiency", "progressive_layer_drop", "eigenvalue",
                           "compression_training", "sparse_attention", "hybrid_engine", "nebula", "datastates_ckpt"})
    keys.push_back({.path = name, .fate = F::refused,
                    .reason = "it is not implemented here; leave it out", .open = true});
}

}  // namespace

const std::vector<DeepSpeedKey>& deepspeed_keys() {
  static const Keys table = [] {
    Keys keys;
    add_batch(keys);
    add_precision(keys);
    add_zero(keys);
    add_offload(keys);
    add_optimizer(keys);
    add_recomputation(keys);
    add_tools(keys);
    add_other_parallelism(keys);
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
  static const std::map<std::string, const char*> types = {
      {"lamb", not_here},     {"adagrad", not_here}, {"lion", not_here}, {"muon", not_here},  {"onebitadam", exact},
      {"zerooneadam", exact}, {"onebitlamb", exact}, {"muadam", no_mup}, {"muadamw", no_mup}, {"musgd", no_mup},
  };
  auto found = types.find(lower(type));
  return found == types.end() ? std::nullopt : std::optional<std::string>(found->second);
}

std::optional<std::string> refused_scheduler(const std::string& type) {
  constexpr const char* instead =
      "it is not implemented here; use \"WarmupDecayLR\" or \"WarmupCosineLR\", or a recipe's [lr_scheduler] "
      "(constant, linear, cosine, wsd, step)";
  auto small = lower(type);
  return small == "onecycle" || small == "lrrangetest" ? std::optional<std::string>(instead) : std::nullopt;
}

}  // namespace runner
