// The table of names of other tools. Edit distance would not find the keys for them.
#include "runner/config/foreign_names.hpp"

#include <map>

#include "runner/base/layer_class.hpp"
#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Values = ForeignName::Values;

/// Names whose values may have another meaning than those of the key: the key is only suggested.
constexpr std::pair<const char*, const char*> suggested_names[] = {
    // Hugging Face
    {"per_device_train_batch_size", "train.micro_batch_size"},
    {"per_device_eval_batch_size", "train.micro_batch_size"},
    {"gradient_accumulation_steps", "train.accumulate_grad_batches"},
    {"learning_rate", "optimizer.lr"},
    {"num_train_epochs", "train.max_epochs"},
    {"save_steps", "checkpoint.every_n_steps"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"logging_steps", "train.log_every_n_steps"},
    {"steps_per_print", "train.print_every_n_steps"},
    {"eval_steps", "train.val_check_interval"},
    {"lr_scheduler_type", "lr_scheduler.name"},
    {"prefetch_factor", "data.prefetch"},
    {"patience", "train.early_stopping"},
    {"min_delta", "train.early_stopping"},
    {"warmup_ratio", "lr_scheduler.warmup_steps"},
    {"max_grad_norm", "train.gradient_clip_val"},
    {"gradient_checkpointing", "activation_checkpointing.mode"},
    {"output_dir", "run.name"},
    {"run_name", "run.name"},
    {"hidden_size", "model.dim"},
    {"num_hidden_layers", "model.n_layers"},
    {"num_attention_heads", "model.n_heads"},
    {"num_key_value_heads", "model.n_kv_heads"},
    {"intermediate_size", "model.hidden_dim"},
    {"max_position_embeddings", "model.max_seq_len"},
    {"rms_norm_eps", "model.norm_eps"},
    {"layer_norm_epsilon", "model.norm_eps"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"hidden_act", "model.activation"},
    {"activation_function", "model.activation"},
    {"initializer_range", "model.init_std"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_epsilon", "optimizer.eps"},
    {"optim", "optimizer.name"},
    {"fp16", "precision.mode"},
    {"bf16", "precision.mode"},
    {"resid_pdrop", "model.dropout"},
    {"attn_pdrop", "model.dropout"},
    {"embd_pdrop", "model.dropout"},
    // GPT-2, nanoGPT
    {"n_embd", "model.dim"},
    {"d_model", "model.dim"},
    {"embed_dim", "model.dim"},
    {"n_layer", "model.n_layers"},
    {"num_layers", "model.n_layers"},
    {"n_head", "model.n_heads"},
    {"num_heads", "model.n_heads"},
    {"n_positions", "model.max_seq_len"},
    {"n_ctx", "model.max_seq_len"},
    {"block_size", "model.max_seq_len"},
    {"context_length", "model.max_seq_len"},
    {"n_inner", "model.hidden_dim"},
    {"ffn_dim", "model.hidden_dim"},
    {"max_iters", "train.max_steps"},
    {"warmup_iters", "lr_scheduler.warmup_steps"},
    {"lr_decay_iters", "train.max_steps"},
    {"min_lr", "lr_scheduler.min_lr_ratio"},
    {"grad_clip", "train.gradient_clip_val"},
    {"eval_interval", "train.val_check_interval"},
    {"eval_iters", "train.limit_val_batches"},
    {"batch_size", "train.micro_batch_size"},
    {"dtype", "precision.mode"},
    {"beta1", "optimizer.betas"},
    {"beta2", "optimizer.betas"},
    // torchtitan, Megatron, DeepSpeed, Lightning
    {"steps", "train.max_steps"},
    {"max_norm", "train.gradient_clip_val"},
    {"clip_grad", "train.gradient_clip_val"},
    {"gradient_clipping", "train.gradient_clip_val"},
    {"local_batch_size", "train.micro_batch_size"},
    {"train_batch_size", "train.global_batch_size"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch_size"},
    {"global_batch", "train.global_batch_size"},
    {"reshard_after_forward", "strategy.sharding_strategy"},
    {"zero_stage", "strategy.name"},
    {"vocabulary_size", "model.vocab_size"},
    {"max_length", "data.seq_len"},
    {"sequence_length", "data.seq_len"},
    {"seq_length", "data.seq_len"},
    {"gpus", "devices.devices"},
    {"nproc_per_node", "devices.devices"},
    {"nnodes", "devices.num_nodes"},
    {"save_interval", "checkpoint.every_n_steps"},
    {"every_n_train_steps", "checkpoint.every_n_steps"},
    {"epochs", "train.max_epochs"},
    {"limit_train_batches", "train.max_steps"},
    {"scheduler", "lr_scheduler.name"},
};

// Meanings: they translate a value of a name.

ForeignName::Meaning same_value_of(std::string key) {
  return [key = std::move(key)](const json& value) { return Values{{key, value}}; };
}

const auto any_value = ForeignName::any_value;
const auto one_of = ForeignName::one_of;

/// "cuda:1" -> 1.
std::optional<int> cuda_index(const json& value) {
  const std::string prefix = "cuda:";
  if (!value.is_string() || !value.get<std::string>().starts_with(prefix)) return std::nullopt;
  auto digits = value.get<std::string>().substr(prefix.size());
  bool number = !digits.empty() && digits.size() < 5 && digits.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::optional(std::stoi(digits)) : std::nullopt;
}

/// torch.device("cpu"), torch.device("cuda", 1).
std::optional<Values> one_device(const json& value) {
  if (value == "cpu" || value == "cuda") return Values{{"devices.accelerator", value}, {"devices.devices", 1}};
  auto index = cuda_index(value);
  return index ? std::optional(Values{{"devices.devices", json::array({*index})}}) : std::nullopt;
}

/// A list of torch.device, or what devices.devices takes.
std::optional<Values> several_devices(const json& value) {
  if (!value.is_array() || value.empty() || !value[0].is_string()) return Values{{"devices.devices", value}};
  auto indices = json::array();
  for (const auto& item : value)
    if (auto index = cuda_index(item)) indices.push_back(*index);
  bool cpus = std::all_of(value.begin(), value.end(), [](const json& item) { return item == "cpu"; });
  if (cpus) return Values{{"devices.accelerator", "cpu"}, {"devices.devices", value.size()}};
  return indices.size() == value.size() ? std::optional(Values{{"devices.devices", indices}}) : std::nullopt;
}

std::optional<Values> recomputed_or_not(const json& value) {
  if (!value.is_boolean()) return std::nullopt;
  return Values{{"activation_checkpointing.mode", value == true ? "all" : "none"}};
}

/// Layer classes mean all transformer blocks. Other words are globs over block names.
std::optional<Values> recomputed_blocks(json value) {
  if (value.is_string()) value = json::array({value});
  if (!value.is_array() || value.empty()) return std::nullopt;
  bool classes = true;
  for (const auto& item : value) {
    if (!item.is_string()) return std::nullopt;
    classes = classes && names_layer_class(item.get<std::string>());
  }
  if (classes) return Values{{"activation_checkpointing.mode", "all"}};
  return Values{{"activation_checkpointing.mode", "named"}, {"activation_checkpointing.blocks", value}};
}

/// Horovod's compression ("fp16", "Compression.fp16") as one of PyTorch's comm hooks.
std::optional<Values> compression(const json& value) {
  if (!value.is_string()) return std::nullopt;
  auto name = value.get<std::string>();
  name = lower(name.substr(name.rfind('.') + 1));
  if (name == "none") return Values{};
  return name == "fp16" ? std::optional(Values{{"strategy.ddp_comm_hook", "fp16_compress"}}) : std::nullopt;
}

using Names = std::vector<ForeignName>;

/// Lightning's auto_scale_batch_size. Its two ways of search have the same result.
std::optional<Values> scaled_batch(const json& value) {
  if (value == false) return Values{};
  bool search = value == true || value == "power" || value == "binsearch";
  return search ? std::optional(Values{{"train.micro_batch_size", "auto"}}) : std::nullopt;
}

void add_devices(Names& names) {
  constexpr const char* one_group =
      "the group is made of all ranks; `hybrid_group_size` (fsdp) and `mics_shard_size` (zero) make groups";
  constexpr const char* device_of_rank = "nothing to do: each rank has one device; devices.devices chooses the devices";
  Names more = {
      {.name = "parallel_devices",
       .key = "devices.devices",
       .meaning = several_devices,
       .refusal = "it is a number of devices, indices such as [0, 1], or names such as [\"cuda:0\", \"cuda:1\"]"},
      {.name = "device",
       .key = "devices.devices",
       .meaning = one_device,
       .refusal = "it is \"cpu\", \"cuda\" or a device such as \"cuda:1\""},
      {.name = "cluster_environment", .key = "devices.cluster", .meaning = same_value_of("devices.cluster")},
      {.name = "accelerator", .key = "devices.accelerator", .meaning = same_value_of("devices.accelerator")},
      {.name = "precision_plugin", .key = "precision.mode", .meaning = same_value_of("precision.mode")},
      {.name = "start_method",
       .meaning = any_value(),
       .note = "nothing to do: it is about how Python starts processes; this program starts one process per rank"},
      {.name = "process_group", .refusal = one_group},
      {.name = "process_set", .refusal = one_group},
      {.name = "device_id", .meaning = any_value(), .note = device_of_rank},
      {.name = "device_ids", .meaning = any_value(), .note = device_of_rank},
      {.name = "output_device", .meaning = any_value(), .note = device_of_rank},
      {.name = "tpu_cores", .refusal = "strategies run on CPUs and CUDA devices: devices.devices"},
      {.name = "device_mesh",
       .refusal = "`hybrid_group_size` (fsdp) and `mics_shard_size` (zero) determine how many ranks share one copy"},
  };
  names.insert(names.end(), more.begin(), more.end());
}

void add_recomputation(Names& names) {
  Names more = {
      {.name = "activation_checkpointing",
       .key = "activation_checkpointing.mode",
       .meaning = recomputed_or_not,
       .refusal = "it is true or false; layer classes go into activation_checkpointing_policy, and "
                  "[activation_checkpointing] has more modes"},
      {.name = "activation_checkpointing_policy",
       .key = "activation_checkpointing.blocks",
       .meaning = recomputed_blocks,
       .refusal = "it is a list of layer classes such as [\"TransformerEncoderLayer\"], or of block names"},
      {.name = "cpu_checkpointing",
       .key = "activation_checkpointing.cpu_checkpointing",
       .meaning = same_value_of("activation_checkpointing.cpu_checkpointing")},
  };
  names.insert(names.end(), more.begin(), more.end());
}

void add_plugins(Names& names) {
  Names more = {
      {.name = "checkpoint_io",
       .meaning = one_of({"torchcheckpointio", "asynccheckpointio"}),
       .note = "checkpoints are safetensors files here; checkpoint.async determines whether a background thread writes "
               "them",
       .refusal = "checkpoints have one format here, safetensors in the run's folder; checkpoint.async determines "
                  "whether a background thread writes them"},
      {.name = "logging_level",
       .meaning = any_value(),
       .note = "nothing to do: the log of each rank is in the run's folder, and RUNNER_LOG determines what is printed"},
      {.name = "logger",
       .meaning = one_of({true, false}),
       .note = "nothing to do: the ledger keeps every step (`runner metrics`)",
       .refusal =
           "the ledger keeps every step (`runner metrics`), and a hook can write elsewhere (on_train_batch_end)"},
      {.name = "callbacks",
       .refusal = "[hooks] names functions in Lua; [checkpoint] is for ModelCheckpoint, train.early_stopping for "
                  "EarlyStopping"},
      {.name = "plugins",
       .refusal = "precision, devices.cluster and [checkpoint] have the settings of Lightning's plugins"},
      {.name = "enable_autolog_hparams",
       .meaning = any_value(),
       .note = "nothing to do: the ledger keeps every value of the recipe"},
      {.name = "model_registry",
       .refusal = "there is no registry; `runner export` writes the weights as a Hugging Face folder"},
      {.name = "profiler",
       .meaning = one_of({"simple"}),
       .note = "already the case here: `runner show` prints the time of steps, the wait for data, and memory",
       .refusal =
           "`runner show` prints the time of steps, the wait for data, and memory; there is no trace of kernels"},
      {.name = "sync_batchnorm",
       .meaning = any_value(),
       .note = "nothing to do: no model here has batch normalization"},
      {.name = "load_full_weights",
       .meaning = any_value(),
       .note = "already the case here: a checkpoint can be loaded by every strategy on any number of ranks"},
      {.name = "exclude_frozen_parameters",
       .meaning = any_value(),
       .note = "nothing to do: checkpoints contain every parameter"},
  };
  names.insert(names.end(), more.begin(), more.end());
}

/// Arguments of Lightning's Trainer whose counterpart has another form, or which have none.
void add_trainer(Names& names) {
  constexpr const char* no_test = "there is no test or prediction here, only validation: train.limit_val_batches";
  constexpr const char* no_minimum =
      "a run has no minimum; a larger `patience` in train.early_stopping prevents an early end";
  Names more = {
      {.name = "check_val_every_n_epoch",
       .meaning = one_of({1}),
       .note = "already the case here: without train.val_check_interval, each epoch ends with a validation",
       .refusal =
           "without train.val_check_interval, each epoch ends with a validation; that key counts optimizer steps"},
      {.name = "num_sanity_val_steps",
       .meaning = any_value(),
       .note = "nothing to do: there is no validation before the first step; `runner check` looks at the data"},
      {.name = "overfit_batches",
       .meaning = one_of({0, 0.0}),
       .note = "already the case here: all training data are used",
       .refusal = "name a small file in data.train instead, and set train.max_epochs"},
      {.name = "limit_test_batches", .refusal = no_test},
      {.name = "limit_predict_batches", .refusal = no_test},
      {.name = "min_epochs", .refusal = no_minimum},
      {.name = "min_steps", .refusal = no_minimum},
      {.name = "reload_dataloaders_every_n_epochs",
       .meaning = one_of({0}),
       .note = "already the case here: the data are opened once",
       .refusal = "the data are opened once, and their order changes with the epoch (data.shuffle)"},
      {.name = "detect_anomaly",
       .meaning = one_of({false}),
       .note = "nothing to do: gradients that are not finite are always found",
       .refusal =
           "gradients that are not finite are always found, and train.on_nonfinite determines what happens then; "
           "there is no search for the operation that made them"},
      {.name = "inference_mode", .meaning = any_value(), .note = "nothing to do: validation never records gradients"},
      {.name = "enable_progress_bar",
       .meaning = any_value(),
       .note =
           "nothing to do: progress is drawn on terminals only; elsewhere, train.print_every_n_steps sets the lines"},
      {.name = "enable_model_summary",
       .meaning = any_value(),
       .note = "nothing to do: `runner run` prints the size of the model"},
      {.name = "default_root_dir",
       .refusal = "runs are in the nearest .runner of the current folder and its parents; the environment variable "
                  "RUNNER_HOME names another folder"},
      {.name = "seed_everything", .key = "run.seed", .meaning = same_value_of("run.seed")},
      {.name = "ckpt_path",
       .refusal = "`runner resume RUN` continues a run from its newest checkpoint, or from another one with "
                  "--checkpoint; model.init_from starts with other weights"},
      {.name = "auto_scale_batch_size",
       .key = "train.micro_batch_size",
       .meaning = scaled_batch,
       .refusal = "it is true, false, \"power\" or \"binsearch\"; all of them mean train.micro_batch_size = \"auto\""},
      {.name = "track_grad_norm",
       .meaning = any_value(),
       .note = "already the case here: `runner metrics` has the norm of the gradients (grad_norm) of every step"},
      {.name = "barebones",
       .meaning = one_of({false}),
       .note = "already the case here: every run is recorded",
       .refusal =
           "every run is recorded, except with run.fast_dev_run; checkpoint.save_at_end = false writes no checkpoint"},
  };
  names.insert(names.end(), more.begin(), more.end());
}

/// Arguments of Lightning's ModelCheckpoint, and the Trainer's switch for it.
void add_checkpoints(Names& names) {
  constexpr const char* in_run = "checkpoints are in the run's folder, as checkpoints/step-000100";
  constexpr const char* no_epochs =
      "checkpoint.every_n_steps counts optimizer steps, and checkpoint.save_top_k writes at every validation";
  Names more = {
      {.name = "enable_checkpointing",
       .meaning = one_of({true}),
       .note = "already the case here: each run ends with a checkpoint; [checkpoint] sets further ones",
       .refusal = "set checkpoint.save_at_end = false, and no other key of [checkpoint] that asks for checkpoints"},
      {.name = "checkpoint.mode",
       .meaning = one_of({"min"}),
       .note = "already the case here: checkpoint.monitor is a loss, and lower is better",
       .refusal = "checkpoint.monitor is a loss, and lower is better"},
      {.name = "filename", .refusal = in_run},
      {.name = "dirpath",
       .refusal = std::string(in_run) + "; the environment variable RUNNER_HOME names another folder for runs"},
      {.name = "every_n_epochs", .refusal = no_epochs},
      {.name = "save_on_train_epoch_end",
       .meaning = one_of({false}),
       .note = "already the case here: epochs do not decide when a checkpoint is written",
       .refusal = no_epochs},
      {.name = "train_time_interval", .key = "checkpoint.every", .meaning = same_value_of("checkpoint.every")},
      {.name = "save_last",
       .meaning = any_value(),
       .note = "nothing to do: the newest checkpoint is always kept, and `runner resume` finds it"},
      {.name = "save_weights_only",
       .meaning = one_of({false}),
       .note = "already the case here: checkpoints have all that `runner resume` needs",
       .refusal = "checkpoints have all that `runner resume` needs; `runner export` writes only the weights"},
      {.name = "save_on_exception",
       .meaning = one_of({false}),
       .note = "already the case here: no checkpoint is written after an error",
       .refusal =
           "no checkpoint is written after an error; checkpoint.every and checkpoint.every_n_steps determine how "
           "much a resume repeats"},
  };
  names.insert(names.end(), more.begin(), more.end());
}

/// Arguments of Lightning's EarlyStopping that train.early_stopping does not have.
void add_early_stopping(Names& names) {
  constexpr const char* no_threshold = "a hook can end the run at a threshold: ctx:stop(REASON)";
  Names more = {
      {.name = "verbose", .refusal = "leave it out: an early end and its reason are always reported"},
      {.name = "strict", .refusal = "leave it out: a metric that does not exist always ends the run with an error"},
      {.name = "check_finite",
       .refusal = "leave it out: train.on_nonfinite determines what happens when a loss is not finite"},
      {.name = "stopping_threshold", .refusal = no_threshold},
      {.name = "divergence_threshold", .refusal = no_threshold},
  };
  names.insert(names.end(), more.begin(), more.end());
}

void add_data(Names& names) {
  constexpr const char* not_pinned =
      "nothing to do: a batch is a few kilobytes of token ids, and they are copied directly";
  constexpr const char* own_sampler =
      "every rank reads its part of each global batch; a sampler cannot be replaced, and data.shuffle = false keeps "
      "the order of the files";
  for (const char* name : {"use_distributed_sampler", "replace_sampler_ddp"})
    names.push_back({.name = name,
                     .meaning = one_of({true}),
                     .note = "already the case here: every rank reads its part of each global batch",
                     .refusal = own_sampler});
  Names more = {
      {.name = "sampler", .refusal = own_sampler},
      {.name = "batch_sampler", .refusal = own_sampler},
      {.name = "collate_fn", .refusal = "all samples have data.seq_len tokens, so a batch is a stack of them"},
      {.name = "pin_memory_device", .meaning = any_value(), .note = not_pinned},
      {.name = "num_workers",
       .meaning = any_value(),
       .note = "nothing to do: one thread per rank prepares data.prefetch batches in advance"},
      {.name = "pin_memory", .in_strategy = false, .meaning = any_value(), .note = not_pinned},
      {.name = "persistent_workers",
       .meaning = any_value(),
       .note = "already the case here: the thread that prepares batches lives as long as the run"},
  };
  names.insert(names.end(), more.begin(), more.end());
}

void add_ddp(Names& names) {
  constexpr const char* grouped = "nothing to do: gradients are reduced in buckets of `bucket_cap_mb` (ddp)";
  Names more = {
      {.name = "ddp_comm_state",
       .refusal = "the options of a comm hook go into `ddp_comm_hook_options`, and a Lua hook keeps its own state"},
      {.name = "ddp_comm_wrapper",
       .refusal = "hooks are not wrapped; ddp_comm_hook = \"fp16_compress\" or \"bf16_compress\" sends 16 bits, and a "
                  "Lua hook can cast by itself"},
      {.name = "model_averaging_period",
       .refusal = "name = \"lua:local_sgd\" with `every` = N averages the parameters every N steps"},
      {.name = "broadcast_buffers",
       .meaning = any_value(),
       .note = "nothing to do: no model here has buffers that training changes"},
      {.name = "init_sync",
       .meaning = any_value(),
       .note = "nothing to do: initial values depend only on the seed and the parameter's name, so they are equal on "
               "all ranks"},
      {.name = "delay_all_reduce_named_params",
       .refusal = "all gradients are reduced in buckets, as soon as a bucket is full"},
      {.name = "op",
       .meaning = one_of({"average", "sum"}),
       .note = "gradients are those of the mean over all tokens of the global batch",
       .refusal = "gradients are summed over ranks, and the loss is the mean over all tokens of the global batch; "
                  "there is no Adasum"},
      {.name = "compression",
       .key = "strategy.ddp_comm_hook",
       .meaning = compression,
       .refusal = "it is \"none\" or \"fp16\""},
      {.name = "backward_passes_per_step",
       .key = "train.accumulate_grad_batches",
       .meaning = same_value_of("train.accumulate_grad_batches"),
       .note = "Horovod adds the gradients of the passes; here the loss is the mean over all of them"},
      {.name = "algorithm",
       .meaning = one_of({"gradient_allreduce"}),
       .note = "gradients are summed by all-reduce, as in every data-parallel strategy",
       .refusal = "of Bagua's algorithms, only \"gradient_allreduce\" is supported; lua:topk compresses gradients, "
                  "lua:gossip averages parameters with neighbours, lua:local_sgd every few steps"},
      {.name = "hierarchical",
       .meaning = any_value(),
       .note = "nothing to do: the backend chooses the algorithm of an all-reduce"},
      {.name = "flatten", .meaning = any_value(), .note = "nothing to do: a bucket is one contiguous tensor"},
      {.name = "num_groups", .meaning = any_value(), .note = grouped},
      {.name = "strategy.groups", .meaning = any_value(), .note = grouped},
      {.name = "named_parameters", .meaning = any_value(), .note = "nothing to do: parameters always have names here"},
  };
  names.insert(names.end(), more.begin(), more.end());
}

void add_fsdp(Names& names) {
  constexpr const char* whole_model = "every parameter is trained and sharded; a hook can freeze some of them";
  Names more = {
      {.name = "ignored_modules", .refusal = whole_model},
      {.name = "ignored_states", .refusal = whole_model},
      {.name = "param_init_fn",
       .refusal = "each rank creates only its shards; model.init_std and model.init_from determine their values"},
  };
  names.insert(names.end(), more.begin(), more.end());
}

Names make_names() {
  Names names;
  for (const auto& [name, key] : suggested_names) names.push_back({.name = name, .key = key, .only_suggested = true});
  const auto add = [&](void (*group)(Names&), const std::vector<std::string>& sections = {}) {
    const size_t before = names.size();
    group(names);
    for (size_t i = before; i < names.size(); ++i) names[i].sections = sections;
  };
  add(add_devices);
  add(add_recomputation);
  add(add_plugins);
  add(add_trainer);
  add(add_checkpoints, {"", "train", "checkpoint"});
  add(add_early_stopping, {"", "train"});
  add(add_data);
  add(add_ddp, {"", "train", "strategy"});
  add(add_fsdp, {"", "train", "strategy"});
  return names;
}

}  // namespace

ForeignName::Meaning ForeignName::any_value() {
  return [](const json&) { return Values{}; };
}

ForeignName::Meaning ForeignName::one_of(std::vector<json> values) {
  return [values = std::move(values)](const json& value) -> std::optional<Values> {
    json wanted = value.is_string() ? json(lower(value.get<std::string>())) : value;
    bool found = std::find(values.begin(), values.end(), wanted) != values.end();
    return found ? std::optional(Values{}) : std::nullopt;
  };
}

const ForeignName* find_foreign_name(const std::string& name) {
  static const std::map<std::string, ForeignName> table = [] {
    std::map<std::string, ForeignName> all;
    for (auto& entry : make_names()) all.emplace(entry.name, entry);
    return all;
  }();
  auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

std::optional<std::string> key_meant_by(const std::string& name) {
  for (const auto& key : key_table())
    if (key.name == name) return key.dotted();
  const auto* foreign = find_foreign_name(name);
  return foreign && !foreign->key.empty() ? std::optional(foreign->key) : std::nullopt;
}

}  // namespace runner
