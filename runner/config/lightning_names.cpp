// The names of Lightning's Trainer and of what it is given: devices, plugins, callbacks, data loaders.
#include <algorithm>

#include "runner/base/layer_class.hpp"
#include "runner/base/text.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Names = std::vector<ForeignName>;
using Values = ForeignName::Values;

const auto accepted = ForeignName::accepted;
const auto refused = ForeignName::refused;
const auto renamed = ForeignName::renamed;
const auto one_of = ForeignName::one_of;

// Meanings: they translate a value of a name.

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

/// Several devices of DataParallel. DistributedDataParallel has the one of the rank.
std::optional<Values> devices_of_replicas(const json& value) {
  return value.is_array() && value.size() > 1 ? several_devices(value) : Values{};
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

/// Lightning's auto_scale_batch_size. Its two ways of search have the same result.
std::optional<Values> scaled_batch(const json& value) {
  if (value == false) return Values{};
  bool search = value == true || value == "power" || value == "binsearch";
  return search ? std::optional(Values{{"train.micro_batch_size", "auto"}}) : std::nullopt;
}

/// A value of `key`, but not a class in Python: the text tells which plug-in takes its place.
ForeignName unless_a_class(const char* name, const char* key, const char* refusal) {
  const auto meaning = [key](const json& value) -> std::optional<Values> {
    json known = value;
    const std::string word = value.is_string() ? value.get<std::string>() : "";
    const auto within = [](char first, char last) { return [=](char c) { return c >= first && c <= last; }; };
    const bool camel = !word.empty() && within('A', 'Z')(word.front()) && std::ranges::any_of(word, within('a', 'z'));
    return camel && check_option(*find_key(key), known) ? std::nullopt : std::optional(Values{{key, value}});
  };
  return {.name = name, .key = key, .meaning = meaning, .refusal = refusal};
}

Names device_names() {
  constexpr const char* device_of_rank = "nothing to do: each rank has one device; devices.devices chooses the devices";
  return {
      {.name = "parallel_devices",
       .key = "devices.devices",
       .meaning = several_devices,
       .refusal = "it is a number of devices, indices such as [0, 1], or names such as [\"cuda:0\", \"cuda:1\"]"},
      {.name = "device",
       .key = "devices.devices",
       .meaning = one_device,
       .refusal = "it is \"cpu\", \"cuda\" or a device such as \"cuda:1\""},
      unless_a_class("cluster_environment", "devices.cluster",
                     "it is a launcher such as slurm; plugins.cluster_environment = \"FILE.lua\" is one of your own"),
      unless_a_class("accelerator", "devices.accelerator",
                     "it is auto, cpu, cuda, tpu, hpu or ipu; plugins.accelerator = \"FILE.so\" is one of your own"),
      unless_a_class("precision_plugin", "precision.mode",
                     "it is a mode such as bf16-mixed; plugins.precision = \"FILE.so\" is one of your own"),
      accepted("start_method",
               "nothing to do: it is about how Python starts processes; this program starts one process per rank"),
      accepted("device_id", device_of_rank),
      {.name = "device_ids",
       .key = "devices.devices",
       .meaning = devices_of_replicas,
       .note = "each rank has one device; devices.devices chooses the devices"},
      accepted("output_device", device_of_rank),
      refused("tpu_cores",
              "set devices.accelerator = \"tpu\", devices.devices = N, strategy.name = \"xla\" and strategy.plugin"),
  };
}

Names recomputation_names() {
  return {
      {.name = "activation_checkpointing",
       .key = "activation_checkpointing.mode",
       .meaning = recomputed_or_not,
       .refusal = "it is true or false; layer classes go into activation_checkpointing_policy, and "
                  "[activation_checkpointing] has more modes"},
      {.name = "activation_checkpointing_policy",
       .key = "activation_checkpointing.blocks",
       .meaning = recomputed_blocks,
       .refusal = "it is a list of layer classes such as [\"TransformerEncoderLayer\"], or of block names"},
      renamed("cpu_checkpointing", "activation_checkpointing.cpu_checkpointing"),
  };
}

Names plugin_names() {
  return {
      {.name = "checkpoint_io",
       .meaning = one_of({"torchcheckpointio", "asynccheckpointio"}),
       .note = "checkpoints are safetensors files here; checkpoint.async determines whether a background thread writes "
               "them",
       .refusal =
           "checkpoints are safetensors in the run's folder, and checkpoint.async determines whether a background "
           "thread writes them; plugins.checkpoint_io = \"FILE.lua\" stores them in another place"},
      accepted("logging_level",
               "nothing to do: the log of each rank is in the run's folder, and the variable RUNNER_LOG (info, warning "
               "or error) decides what is printed"),
      {.name = "logger",
       .meaning = one_of({true, false}),
       .note = "nothing to do: the ledger keeps every step (`runner metrics`)",
       .refusal = "logging.loggers = [\"tensorboard\", \"csv\", \"mlflow\", \"wandb\"] writes these in addition to the "
                  "ledger, which "
                  "keeps every step (`runner metrics`)"},
      // The name of logging.loggers in recipes of runs that were made before there was [logging].
      {.name = "loggers",
       .key = "logging.loggers",
       .meaning = ForeignName::same_value_of("logging.loggers"),
       .sections = {"run"}},
      refused("callbacks",
              "[hooks] names functions in Lua; [checkpoint] is for ModelCheckpoint, train.early_stopping for "
              "EarlyStopping"),
      refused(
          "plugins",
          "precision, devices.cluster and [checkpoint] have the settings of Lightning's plugins, and [plugins] names "
          "plug-ins of your own"),
      accepted("enable_autolog_hparams", "nothing to do: the ledger keeps every value of the recipe"),
      refused("model_registry", "there is no registry; `runner export` writes the weights as a Hugging Face folder"),
      renamed("profiler", "run.profiler"),
      {.name = "sync_batchnorm",
       .key = "model.sync_batchnorm",
       .meaning = ForeignName::same_value_of("model.sync_batchnorm"),
       .note = "ignored: only resnet has batch normalization, and its key is model.sync_batchnorm"},
      accepted("load_full_weights",
               "already the case here: a checkpoint can be loaded by every strategy on any number of ranks"),
      {.name = "exclude_frozen_parameters",
       .meaning = one_of({false}),
       .note = "already the case here: checkpoints contain every parameter",
       .refusal = "checkpoints contain every parameter, also those of model.frozen, but no optimizer state of these"},
  };
}

/// Arguments of Lightning's Trainer whose counterpart has another form, or which have none.
Names trainer_names() {
  constexpr const char* no_test = "`runner evaluate RUN --limit N` tests a run, and `runner predict RUN` predicts";
  constexpr const char* no_minimum =
      "a run has no minimum; a larger `patience` in train.early_stopping prevents an early end";
  return {
      {.name = "check_val_every_n_epoch",
       .meaning = one_of({1}),
       .note = "already the case here: without train.val_check_interval, each epoch ends with a validation",
       .refusal =
           "without train.val_check_interval, each epoch ends with a validation; that key counts optimizer steps"},
      accepted("num_sanity_val_steps",
               "nothing to do: there is no validation before the first step; `runner check` looks at the data"),
      {.name = "overfit_batches",
       .meaning = one_of({0, 0.0}),
       .note = "already the case here: all training data are used",
       .refusal = "name a small file in data.train instead, and set train.max_epochs"},
      refused("limit_test_batches", no_test),
      refused("limit_predict_batches", no_test),
      refused("min_epochs", no_minimum),
      refused("min_steps", no_minimum),
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
      accepted("inference_mode", "nothing to do: validation never records gradients"),
      accepted(
          "enable_progress_bar",
          "nothing to do: progress is drawn on terminals only; elsewhere, train.print_every_n_steps sets the lines"),
      accepted("enable_model_summary", "nothing to do: `runner run` prints the size of the model"),
      refused("default_root_dir",
              "runs are in the nearest .runner of the current folder and its parents; the environment variable "
              "RUNNER_HOME names another folder"),
      renamed("seed_everything", "run.seed"),
      refused("ckpt_path",
              "`runner resume RUN` continues a run from its newest checkpoint, or from another one with --checkpoint; "
              "model.init_from starts with other weights"),
      {.name = "auto_scale_batch_size",
       .key = "train.micro_batch_size",
       .meaning = scaled_batch,
       .refusal = "it is true, false, \"power\" or \"binsearch\"; all of them mean train.micro_batch_size = \"auto\""},
      {.name = "scale_batch_size",
       .key = "train.micro_batch_size",
       .meaning = scaled_batch,
       .refusal = "it is \"power\" or \"binsearch\"; both mean train.micro_batch_size = \"auto\""},
      accepted("track_grad_norm",
               "already the case here: `runner metrics` has the norm of the gradients (grad_norm) of every step"),
      {.name = "barebones",
       .meaning = one_of({false}),
       .note = "already the case here: every run is recorded",
       .refusal =
           "every run is recorded, except with run.fast_dev_run; checkpoint.save_at_end = false writes no checkpoint"},
  };
}

/// Arguments of Lightning's ModelCheckpoint, and the Trainer's switch for it.
Names checkpoint_names() {
  constexpr const char* in_run = "checkpoints are in the run's folder, as checkpoints/step-000100";
  constexpr const char* no_epochs =
      "checkpoint.every_n_steps counts optimizer steps, and checkpoint.save_top_k writes at every validation";
  return {
      {.name = "enable_checkpointing",
       .meaning = one_of({true}),
       .note = "already the case here: each run ends with a checkpoint; [checkpoint] sets further ones",
       .refusal = "set checkpoint.save_at_end = false, and no other key of [checkpoint] that asks for checkpoints"},
      {.name = "checkpoint.mode",
       .meaning = one_of({"min", "max"}),
       .note =
           "nothing to do: of a loss and of val_mae the lowest value is the best, and of other metrics the highest"},
      refused("filename", in_run),
      refused("dirpath", std::string(in_run) + "; the environment variable RUNNER_HOME names another folder for runs"),
      refused("every_n_epochs", no_epochs),
      {.name = "save_on_train_epoch_end",
       .meaning = one_of({false}),
       .note = "already the case here: epochs do not decide when a checkpoint is written",
       .refusal = no_epochs},
      renamed("train_time_interval", "checkpoint.every"),
      accepted("save_last", "nothing to do: the newest checkpoint is always kept, and `runner resume` finds it"),
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
}

/// Arguments of Lightning's EarlyStopping that train.early_stopping does not have.
Names early_stopping_names() {
  constexpr const char* no_threshold = "a hook can end the run at a threshold: ctx:stop(REASON)";
  return {
      {.name = "verbose",
       .in_strategy = false,
       .refusal = "leave it out: an early end and its reason are always reported"},
      refused("strict", "leave it out: a metric that does not exist always ends the run with an error"),
      refused("check_finite", "leave it out: train.on_nonfinite determines what happens when a loss is not finite"),
      refused("stopping_threshold", no_threshold),
      refused("divergence_threshold", no_threshold),
  };
}

Names data_names() {
  constexpr const char* not_pinned =
      "already the case here: batches are copied through pinned memory to devices that have it";
  const auto either = one_of({true, false});
  constexpr const char* own_sampler =
      "every rank reads its part of each global batch; data.order = \"FILE.lua\" has an order of your own, and "
      "data.shuffle = false keeps the order of the files";
  return {
      {.name = "use_distributed_sampler", .meaning = either, .note = own_sampler},
      {.name = "replace_sampler_ddp", .meaning = either, .note = own_sampler},
      refused("sampler", own_sampler),
      refused("batch_sampler", own_sampler),
      refused("collate_fn", "all samples have data.seq_len tokens, so a batch is a stack of them"),
      accepted("pin_memory_device", not_pinned),
      renamed("num_workers", "data.num_workers"),
      {.name = "pin_memory", .in_strategy = false, .meaning = ForeignName::any_value(), .note = not_pinned},
      accepted("persistent_workers", "already the case here: the threads that prepare batches live as long as the run"),
  };
}

}  // namespace

std::vector<ForeignName> lightning_names() {
  Names all;
  const auto add = [&](Names names, const std::vector<std::string>& sections = {}) {
    for (auto& name : names) {
      name.sections = sections;
      all.push_back(std::move(name));
    }
  };
  add(device_names());
  add(recomputation_names());
  add(plugin_names());
  add(trainer_names());
  add(checkpoint_names(), {"", "train", "checkpoint"});
  add(early_stopping_names(), {"", "train"});
  add(data_names());
  return all;
}

}  // namespace runner
