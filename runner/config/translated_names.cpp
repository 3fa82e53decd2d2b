// The names of other tools whose values a function translates, or whose texts are computed. The others are rows of
// schemas/names/arguments.toml and strategies.toml.
#include <algorithm>
#include <map>

#include "runner/base/layer_class.hpp"
#include "runner/base/text.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/key_table.hpp"
#include "strategies/mesh/mesh.hpp"
#include "strategies/pipeline/schedule.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Names = std::vector<ForeignName>;
using Values = ForeignName::Values;

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

/// Words, in lower case, and the values of `key` that they mean.
ForeignName::Meaning one_of_words(const char* key, std::map<std::string, json> meant) {
  return [key, meant = std::move(meant)](const json& value) -> std::optional<Values> {
    const auto found = meant.find(value.is_string() ? lower(value.get<std::string>()) : "");
    return found == meant.end() ? std::nullopt : std::optional(Values{{key, found->second}});
  };
}

/// torchtitan's schedules and nanotron's engines, and the names that ours have.
ForeignName::Meaning schedule_meant() {
  return one_of_words("strategy.pipeline_schedule", {{"1f1b", name_of(PipelineSchedule::one_f_one_b)},
                                                     {"gpipe", name_of(PipelineSchedule::gpipe)},
                                                     {"afab", name_of(PipelineSchedule::gpipe)},
                                                     {"interleaved1f1b", name_of(PipelineSchedule::interleaved_1f1b)},
                                                     {"interleaved_1f1b", name_of(PipelineSchedule::interleaved_1f1b)},
                                                     {"zb_h1", name_of(PipelineSchedule::zb_h1)}});
}

/// Megatron's cp_comm_type.
ForeignName::Meaning form_meant() {
  return one_of_words("strategy.context_parallel", {{"p2p", name_of(ContextForm::ring)},
                                                    {"all_gather", name_of(ContextForm::gather)},
                                                    {"a2a", name_of(ContextForm::ulysses)}});
}

/// DeepSpeed's sequence_parallel_size.
std::optional<Values> ulysses_ranks(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  return Values{{"strategy.context_parallel_size", value},
                {"strategy.context_parallel", name_of(ContextForm::ulysses)}};
}

/// torchrun's --nnodes: N, "N" or "MIN:MAX".
std::optional<Values> nodes_meant(const json& value) {
  if (value.is_number_integer()) return Values{{"devices.num_nodes", value}};
  const auto parts = split(value.is_string() ? value.get<std::string>() : "", ':');
  std::vector<int64_t> counts;
  for (const auto& part : parts)
    if (const auto count = parse_number<int64_t>(part); count && *count > 0) counts.push_back(*count);
  if (counts.size() != parts.size() || counts.empty() || counts.size() > 2) return std::nullopt;
  if (counts.size() == 1) return Values{{"devices.num_nodes", counts[0]}};
  // torchrun waits a while for the most nodes.
  return Values{{"devices.min_nodes", counts[0]}, {"devices.max_nodes", counts[1]}, {"devices.num_nodes", counts[1]}};
}

/// Lightning's device_mesh of FSDP.
std::optional<Values> mesh_of_pair(const json& value) {
  const auto is_size = [](const json& size) { return size.is_number_integer() && size > 0; };
  if (!value.is_array() || value.size() != 2 || !std::ranges::all_of(value, is_size)) return std::nullopt;
  return Values{{"devices.mesh", {{"replicate", value[0]}, {"shard", value[1]}}}};
}

/// "/ip4/0.0.0.0/tcp/1440", or a list that begins with one.
std::optional<Values> from_host_maddrs(const json& value) {
  const auto& first = value.is_array() && !value.empty() ? value.front() : value;
  if (!first.is_string()) return std::nullopt;
  const auto text = first.get<std::string>();
  const std::string start = "/ip4/", middle = "/tcp/";
  const size_t at = text.find(middle);
  if (!text.starts_with(start) || at == std::string::npos) return std::nullopt;
  const auto port = text.substr(at + middle.size());
  if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return Values{{"strategy.host", text.substr(start.size(), at - start.size())}, {"strategy.port", std::stoi(port)}};
}

std::optional<Values> from_averager_opts(const json& value) {
  if (value.is_null() || (value.is_object() && value.empty())) return Values{};
  if (!value.is_object() || value.size() != 1 || !value.contains("request_timeout")) return std::nullopt;
  return Values{{"strategy.request_timeout", value.at("request_timeout")}};
}

Names device_names() {
  return {
      {.name = "parallel_devices",
       .key = "devices.devices",
       .meaning = several_devices,
       .refusal = "it is a number of devices, indices such as [0, 1], or names such as [\"cuda:0\", \"cuda:1\"]"},
      {.name = "device",
       .key = "devices.devices",
       .meaning = one_device,
       .refusal = "it is \"cpu\", \"cuda\" or a device such as \"cuda:1\""},
      {.name = "device_ids",
       .key = "devices.devices",
       .meaning = devices_of_replicas,
       .note = "each rank has one device; devices.devices chooses the devices"},
      unless_a_class("cluster_environment", "devices.cluster",
                     "it is a launcher such as slurm; plugins.cluster_environment = \"FILE.lua\" is one of your own"),
      unless_a_class("accelerator", "devices.accelerator",
                     "it is auto, cpu, cuda, tpu, hpu or ipu; plugins.accelerator = \"FILE.so\" is one of your own"),
      unless_a_class("precision_plugin", "precision.mode",
                     "it is a mode such as bf16-mixed; plugins.precision = \"FILE.so\" is one of your own"),
      {.name = "nnodes",
       .key = "devices.num_nodes",
       .meaning = nodes_meant,
       .refusal = "it is a number of nodes, or \"MIN:MAX\" for an elastic run",
       .sections = {"", "devices"}},
  };
}

/// Recomputation, and the size of a micro-batch.
Names memory_names() {
  return {
      {.name = "activation_checkpointing_policy",
       .key = "activation_checkpointing.blocks",
       .meaning = recomputed_blocks,
       .refusal = "it is a list of layer classes such as [\"TransformerEncoderLayer\"], or of block names"},
      {.name = "auto_scale_batch_size",
       .key = "train.micro_batch_size",
       .meaning = scaled_batch,
       .refusal = "it is true, false, \"power\" or \"binsearch\"; all of them mean train.micro_batch_size = \"auto\""},
      {.name = "scale_batch_size",
       .key = "train.micro_batch_size",
       .meaning = scaled_batch,
       .refusal = "it is \"power\" or \"binsearch\"; both mean train.micro_batch_size = \"auto\""},
  };
}

/// Axes of a mesh, and pipelines.
Names axis_names() {
  const std::string forms = "forms are " + join_or(context_form_names());
  Names names = {
      {.name = "cp_comm_type", .key = "strategy.context_parallel", .meaning = form_meant(), .refusal = forms},
      {.name = "hierarchical_context_parallel_sizes", .refusal = forms + ", each over all ranks of the axis"},
      {.name = "tp_mode",
       .key = "strategy.sequence_parallel",
       .meaning = one_of_words("strategy.sequence_parallel", {{"reduce_scatter", true}, {"all_reduce", false}}),
       .refusal = "it is \"REDUCE_SCATTER\" or \"ALL_REDUCE\"; sequence_parallel is true or false"},
  };
  for (const char* name : {"sequence_parallel_size", "ulysses_sequence_parallel_size"})
    names.push_back({.name = name,
                     .key = "strategy.context_parallel_size",
                     .meaning = ulysses_ranks,
                     .note = "DeepSpeed's sequence parallelism is Ulysses",
                     .refusal = "it is the number of ranks of Ulysses: context_parallel_size with context_parallel = "
                                "\"ulysses\""});
  for (const char* name : {"pipeline_parallel_schedule", "pp_engine"})
    names.push_back({.name = name,
                     .key = "strategy.pipeline_schedule",
                     .meaning = schedule_meant(),
                     .refusal = "schedules are " + join_or(pipeline_schedule_names()) +
                                "; the nearest to zero-bubble schedules is zb_h1, to LoopedBFS interleaved_1f1b"});
  for (auto& name : names) name.sections = {"", "train", "strategy", "devices"};
  return names;
}

/// A logger: true or false, or a table of settings. `settings`: their keys in a recipe.
ForeignName logger_named(const char* name, const char* logger, std::map<std::string, std::string> settings) {
  std::string lines = fmt::format("in a recipe: logging.loggers = [\"{}\"]", logger);
  for (const auto& [given, key] : settings)
    if (key.starts_with("logging.") && lines.find(key) == std::string::npos)
      lines += fmt::format(", {} = \"...\"", key);
  const auto meaning = [logger = std::string(logger),
                        settings = std::move(settings)](const json& value) -> std::optional<Values> {
    if (value == false || (value.is_object() && value.value("enabled", json(true)) == false)) return Values{};
    if (value != true && !value.is_object()) return std::nullopt;
    Values values = {{"logging.loggers", json::array({logger})}};
    const json table = value.is_object() ? value : json::object();
    for (const auto& [given, its_value] : table.items()) {
      if (given == "enabled") continue;
      const auto found = settings.find(given);
      if (found == settings.end()) return std::nullopt;
      values.emplace_back(found->second, its_value);
    }
    return values;
  };
  return {.name = name,
          .key = "logging.loggers",
          .meaning = meaning,
          .note = "the ledger keeps every step in any case",
          .refusal = lines,
          .sections = {"", "train", "logging", "run", "strategy"}};
}

Names logger_names() {
  return {logger_named("wandb", "wandb",
                       {{"project", "logging.wandb_project"},
                        {"entity", "logging.wandb_entity"},
                        {"team", "logging.wandb_entity"},
                        {"name", "run.name"}}),
          logger_named("mlflow", "mlflow",
                       {{"uri", "logging.mlflow_uri"},
                        {"tracking_uri", "logging.mlflow_uri"},
                        {"experiment", "logging.mlflow_experiment"},
                        {"experiment_name", "logging.mlflow_experiment"},
                        {"run_name", "run.name"}}),
          logger_named("tensorboard", "tensorboard", {}),
          logger_named("csv", "csv", {}),
          logger_named("csv_logger", "csv", {}),
          logger_named("csv_monitor", "csv", {})};
}

}  // namespace

std::vector<ForeignName> translated_strategy_names() {
  const std::vector<std::string> sections = {"strategy"};
  return {
      {.name = "device_mesh",
       .key = "devices.mesh",
       .meaning = mesh_of_pair,
       .refusal =
           "it is [replicas, ranks of a copy], and devices.mesh is a table such as { replicate = 2, shard = 4 }"},
      {.name = "host_maddrs",
       .key = "strategy.host",
       .meaning = from_host_maddrs,
       .note = "the first address is used, over TCP",
       .refusal = "give strategy.host and strategy.port, or an address such as \"/ip4/0.0.0.0/tcp/1440\"",
       .sections = sections},
      {.name = "averager_opts",
       .key = "strategy.request_timeout",
       .meaning = from_averager_opts,
       .note = "request_timeout is an option of its own",
       .refusal = "only request_timeout is known, as strategy.request_timeout",
       .sections = sections},
  };
}

std::vector<ForeignName> translated_names() {
  Names all = device_names();
  for (auto& names : {memory_names(), axis_names(), logger_names()}) all.insert(all.end(), names.begin(), names.end());
  return all;
}

}  // namespace runner
