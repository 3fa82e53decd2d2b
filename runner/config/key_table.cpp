#include "runner/config/key_table.hpp"

#include <algorithm>

#include "runner/base/option_table.hpp"
#include "runner/base/text.hpp"
#include "runner/config/device_request.hpp"
#include "strategies/optimizer/optimizer_spec.hpp"

namespace runner {

namespace {

using nlohmann::json;
using T = Option::Type;

/// What a key has in addition to an option.
struct Facts {
  std::string family = "";
  Need needs = {};
  json schema = nullptr;
};

Key key_of(const std::string& section, Option option, Facts facts) {
  Key key{std::move(option)};
  key.section = section;
  key.family = std::move(facts.family);
  key.needs = std::move(facts.needs);
  key.schema = std::move(facts.schema);
  return key;
}

/// Adds the keys of one section.
template <typename Owner>
class Adder {
 public:
  Adder(std::vector<Key>& keys, std::string section, Owner Recipe::*owner)
      : keys_(keys), section_(std::move(section)), owner_(owner) {}

  /// A key that sets `member`.
  template <typename Value>
  void operator()(Option option, Value Owner::*member, Facts facts = {}) {
    add(std::move(option), std::move(facts),
        [member](Owner& owner, const json& value) { assign(owner.*member, value); },
        [member](const Owner& owner) { return obtain(owner.*member); });
  }
  /// A key whose value is a table with the fields of `table`.
  template <typename Value>
    requires std::is_class_v<Value>
  void operator()(Option option, std::optional<Value> Owner::*member, const OptionTable<Value>& table, Facts facts = {}) {
    option.fields = table.options();
    add(std::move(option), std::move(facts),
        [=](Owner& owner, const json& value) { owner.*member = table.read(value); },
        [=](const Owner& owner) { return owner.*member ? table.print(*(owner.*member)) : json(); });
  }
  /// A key whose value is a list of tables.
  template <typename Value>
    requires std::is_class_v<Value>
  void operator()(Option option, std::vector<Value> Owner::*member, const OptionTable<Value>& table, Facts facts = {}) {
    option.fields = table.options();
    auto set = [=](Owner& owner, const json& list) {
      (owner.*member).clear();
      for (const auto& item : list) (owner.*member).push_back(table.read(item));
    };
    auto get = [=](const Owner& owner) {
      json list = json::array();
      for (const auto& item : owner.*member) list.push_back(table.print(item));
      return list.empty() ? json() : list;
    };
    add(std::move(option), std::move(facts), set, get);
  }
  /// A key with its own conversion.
  template <typename Set, typename Get>
  void add(Option option, Facts facts, Set set, Get get) {
    Key key = key_of(section_, std::move(option), std::move(facts));
    key.set = [owner = owner_, set](Recipe& recipe, const json& value) { set(recipe.*owner, value); };
    key.get = [owner = owner_, get](const Recipe& recipe) -> json { return get(recipe.*owner); };
    keys_.push_back(std::move(key));
  }

 private:
  std::vector<Key>& keys_;
  std::string section_;
  Owner Recipe::*owner_;
};

const Facts llama{.family = "llama"}, gpt{.family = "gpt"};

/// Why a device or a backend that PyTorch has is not supported here.
std::string refused_accelerator(const json& value) {
  const auto word = value.is_string() ? lower(value.get<std::string>()) : "";
  const bool other = word == "tpu" || word == "hpu" || word == "ipu" || word == "mps";
  return other ? fmt::format("accelerator \"{}\" is not supported yet; cpu and cuda are", word) : "";
}
std::string refused_backend(const json& value) {
  const auto word = value.is_string() ? lower(value.get<std::string>()) : "";
  if (word == "mpi")
    return "LibTorch is built without the \"mpi\" backend; \"gloo\" connects CPU ranks, \"nccl\" CUDA devices";
  return word == "hccl" ? "the \"hccl\" backend is for Gaudi devices, which are not supported yet" : "";
}

/// Values that have another meaning in Lightning's Trainer, with the way to write them here.
auto refused_fraction(const std::string& name, const std::string& here) {
  return [=](const json& value) {
    const bool fraction = value.is_number_float() && value.get<double>() > 0 && value.get<double>() <= 1;
    return fraction ? fmt::format("`{}` cannot be {}: {}", name, value_text(value), here) : "";
  };
}
std::string refused_dev_run(const json& value) {
  if (!value.is_boolean()) return "";
  return fmt::format("`fast_dev_run` cannot be {}: it is a number of steps; {}", value_text(value),
                     value == true ? "1 for Lightning's True" : "0 for Lightning's False");
}

void add_run(std::vector<Key>& keys) {
  Adder add(keys, "run", &Recipe::run);
  using R = Recipe::Run;
  add({.name = "name", .type = T::text, .help = "Name of the run in listings. Default: the file's name."}, &R::name);
  add({.name = "seed", .type = T::integer, .help = "Determines initial weights, sample order and dropout.",
       .minimum = 0}, &R::seed);
  add({.name = "deterministic", .type = T::boolean,
       .help = "Refuse operations that are not deterministic."}, &R::deterministic);
  add({.name = "benchmark", .type = T::boolean,
       .help = "Let cuDNN choose its algorithms by measuring them."}, &R::benchmark);
  add({.name = "fast_dev_run", .type = T::integer,
       .help = "If above 0: run this many optimizer steps and validation batches, and keep nothing.",
       .minimum = 0, .refuses = refused_dev_run}, &R::fast_dev_run);
  add({.name = "tags", .type = T::texts, .help = "Words by which the run can be found."}, &R::tags);
  add({.name = "notes", .type = T::text, .help = "Free text for the ledger."}, &R::notes);
}

void add_model(std::vector<Key>& keys) {
  Adder add(keys, "model", &Recipe::model);
  using M = Recipe::Model;
  add({.name = "name", .type = T::choice, .help = "Model family.", .choices = {"gpt", "llama"},
       .required = true}, &M::name);
  add({.name = "n_layers", .type = T::integer, .help = "Transformer layers.", .minimum = 1, .maximum = 10000,
       .required = true}, &M::n_layers);
  add({.name = "dim", .type = T::integer, .help = "Width of the hidden states.", .minimum = 1, .maximum = 1 << 20,
       .required = true}, &M::dim);
  add({.name = "n_heads", .type = T::integer, .help = "Attention heads. Must divide dim.", .minimum = 1,
       .maximum = 1 << 16, .required = true}, &M::n_heads);
  add({.name = "n_kv_heads", .type = T::integer,
       .help = "Key and value heads (grouped-query attention). Must divide n_heads. Default: n_heads.", .minimum = 1},
      &M::n_kv_heads, llama);
  add({.name = "vocab_size", .type = T::integer, .help = "Number of tokens. Default: the tokenizer's.",
       .minimum = 1}, &M::vocab_size);
  add({.name = "max_seq_len", .type = T::integer, .help = "Longest sequence that the model can process, in tokens.",
       .minimum = 1, .required = true}, &M::max_seq_len);
  add({.name = "hidden_dim", .type = T::integer,
       .help = "Feed-forward width. Default: 4 x dim (gpt), Llama's rule (llama).", .minimum = 1}, &M::hidden_dim);
  add({.name = "multiple_of", .type = T::integer,
       .help = "Llama's rule rounds the feed-forward width up to a multiple of this.", .minimum = 1},
      &M::multiple_of, {.family = "llama", .needs = {"model.hidden_dim"}});
  add({.name = "ffn_dim_multiplier", .type = T::number, .help = "Llama's rule: factor on the feed-forward width.",
       .minimum = 0, .above_minimum = true}, &M::ffn_dim_multiplier,
      {.family = "llama", .needs = {"model.hidden_dim"}});
  add({.name = "norm_eps", .type = T::number, .help = "Epsilon of the norms.", .minimum = 0,
       .above_minimum = true}, &M::norm_eps);
  add({.name = "activation", .type = T::choice,
       .help = "gelu: exact (erf). gelu_tanh: tanh approximation, as in GPT-2.", .choices = {"gelu", "gelu_tanh"}},
      &M::activation, gpt);
  add({.name = "bias", .type = T::boolean, .help = "Use biases in linear layers and norms."}, &M::bias, gpt);
  add({.name = "tie_embeddings", .type = T::boolean,
       .help = "The output layer shares the embedding's weight. Default: true for gpt, false for llama."},
      &M::tie_embeddings);
  add({.name = "rope_theta", .type = T::number, .help = "Base of the rotary position embeddings.", .minimum = 0,
       .above_minimum = true}, &M::rope_theta, llama);
  add({.name = "dropout", .type = T::number, .help = "Probability of dropping an element.", .minimum = 0,
       .maximum = 0.999}, &M::dropout);
  add({.name = "init_std", .type = T::number, .help = "Standard deviation of initial weights.",
       .minimum = 0}, &M::init_std);
  add({.name = "init_from", .type = T::path,
       .help = "Hugging Face folder (safetensors) with the initial weights."}, &M::init_from);
  add({.name = "frozen", .type = T::texts,
       .help = "Parameters that are not trained, as globs over their names: \"embedding.*\". They have no gradients and no "
               "optimizer state."}, &M::frozen);
  add({.name = "loss_chunk_tokens", .type = T::integer,
       .help = "Number of tokens whose logits are in memory at the same time. 0: all.",
       .minimum = 0}, &M::loss_chunk_tokens);
  using Rope = M::RopeScaling;
  OptionTable<Rope> rope;
  rope.add({.name = "factor", .type = T::number}, &Rope::factor)
      .add({.name = "low_freq_factor", .type = T::number}, &Rope::low_freq_factor)
      .add({.name = "high_freq_factor", .type = T::number}, &Rope::high_freq_factor)
      .add({.name = "original_max_position_embeddings", .type = T::integer}, &Rope::original_max_position_embeddings)
      .add({.name = "rope_type", .type = T::choice, .choices = {"llama3"}});
  add({.name = "rope_scaling", .type = T::table,
       .help = "Llama-3 scaling: { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings }.",
       .wanted = "a table of factor, low_freq_factor, high_freq_factor (numbers) and original_max_position_embeddings "
                 "(an integer)"}, &M::rope_scaling, rope, llama);
}

void add_data(std::vector<Key>& keys) {
  Adder add(keys, "data", &Recipe::data);
  using D = Recipe::Data;
  add({.name = "format", .type = T::choice,
       .help = "text: text files. bin: pre-tokenized files as nanoGPT and llm.c write them.",
       .choices = {"text", "bin"}, .required = true}, &D::format);
  add({.name = "train", .type = T::paths,
       .help = "Training files or patterns (data/*.txt). They are joined in this order; the matches of a pattern are "
               "sorted. Paths are relative to the recipe.", .required = true}, &D::train);
  add({.name = "validation", .type = T::paths, .help = "Validation files, or patterns."}, &D::validation);
  add({.name = "validation_fraction", .type = T::number,
       .help = "Share of the training data, at its end, that is used for validation instead of files.", .minimum = 0,
       .maximum = 0.9, .above_minimum = true}, &D::validation_fraction);
  add({.name = "tokenizer", .type = T::path,
       .help = "\"bytes\", a SentencePiece model file, or \"sentencepiece\": trained once and cached."}, &D::tokenizer);
  add({.name = "tokenizer_vocab_size", .type = T::integer,
       .help = "Vocabulary size of a tokenizer that is trained (tokenizer = \"sentencepiece\").",
       .minimum = 300}, &D::tokenizer_vocab_size, {.needs = {"data.tokenizer", {"sentencepiece"}}});
  add({.name = "token_dtype", .type = T::choice, .help = "Type of a token id in files of format \"bin\".",
       .choices = {"uint16", "uint32"}}, &D::token_dtype, {.needs = {"data.format", {"bin"}}});
  add({.name = "seq_len", .type = T::integer, .help = "Tokens in a sample. Default: model.max_seq_len.",
       .minimum = 1}, &D::seq_len);
  add({.name = "shuffle", .type = T::boolean,
       .help = "Shuffle samples each epoch. The order depends only on seed and epoch."}, &D::shuffle);
  add({.name = "prefetch", .type = T::integer, .help = "Number of steps whose batches are prepared in advance.",
       .minimum = 1, .maximum = 1024}, &D::prefetch);
}

void add_strategy(std::vector<Key>& keys) {
  Adder(keys, "strategy", &Recipe::strategy)(
      {.name = "name", .type = T::text,
       .help = "Name or alias of a strategy (see runner strategies), or \"auto\"."}, &Recipe::Strategy::name);
}

void add_precision(std::vector<Key>& keys) {
  Adder(keys, "precision", &Recipe::precision)(
      {.name = "mode", .type = T::choice,
       .help = "auto: bf16-mixed on CUDA devices that support it, otherwise 32-true.",
       .choices = {"auto", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "32-true", "64-true"},
       .spellings = {{"16", "16-mixed"}, {"bf16", "bf16-mixed"}, {"32", "32-true"}, {"64", "64-true"},
                     {"fp16", "16-mixed"}, {"fp32", "32-true"}},
       .wanted = "a precision such as \"bf16-mixed\" or 32"},
      &Recipe::Precision::mode);
}

const char* const devices_wanted = "a number of devices, \"auto\", indices such as \"1,3\" or [1, 3], or \"free:2\"";

std::optional<std::string> devices_problem(const json& value) {
  std::string why;
  if (parse_devices(value, why)) return std::nullopt;
  return fmt::format("`devices`: {}; it takes {}", why, devices_wanted);
}

void add_devices(std::vector<Key>& keys) {
  Adder add(keys, "devices", &Recipe::devices);
  using D = Recipe::Devices;
  add({.name = "accelerator", .type = T::choice,
       .help = "Kind of device. auto: CUDA if there is a device, otherwise cpu.",
       .choices = {"auto", "cpu", "cuda", "gpu"}, .spellings = {{"gpu", "cuda"}}, .refuses = refused_accelerator},
      &D::accelerator);
  add.add({.name = "devices", .type = T::other,
           .help = "Devices on each node: a number, -1 (all), \"1,3\" or [1, 3] (indices), \"free:2\", \"auto\".",
           .wanted = devices_wanted, .fits = devices_problem},
          {.schema = {{"anyOf", {{{"type", "integer"}}, {{"type", "string"}},
                                 {{"type", "array"}, {"items", {{"type", "integer"}}}}}}}},
          [](Recipe::Devices& devices, const json& value) {
            std::string problem;
            devices.devices = *parse_devices(value, problem);
          },
          [](const Recipe::Devices& devices) { return json::parse(write_devices(devices.devices)); });
  add({.name = "cpu_processes", .type = T::integer, .help = "Number of ranks on each node when training on CPU.",
       .minimum = 1, .maximum = 1024}, &D::cpu_processes);
  add({.name = "num_nodes", .type = T::integer, .help = "Number of nodes.", .minimum = 1,
       .maximum = 100000}, &D::num_nodes);
  add({.name = "memory_limit", .type = T::bytes,
       .help = "Memory that may be used on each device, for example \"22GiB\".", .minimum = 1}, &D::memory_limit);
  add({.name = "threads_per_rank", .type = T::integer,
       .help = "CPU threads of each rank. Default: cores / local ranks.", .minimum = 1,
       .maximum = 1024}, &D::threads_per_rank);
  add({.name = "simulate", .type = T::boolean,
       .help = "Run a recipe for other hardware on this machine: CPU processes stand for all devices of all nodes."},
      &D::simulate);
  add({.name = "cluster", .type = T::choice,
       .help = "Launcher that started the ranks. auto: detected from the environment.",
       .choices = {"auto", "local", "torchrun", "slurm", "openmpi", "mpich", "lsf", "kubeflow"},
       .spellings = {{"torchelastic", "torchrun"}, {"torchelasticenvironment", "torchrun"}, {"slurmenvironment", "slurm"},
                     {"lsfenvironment", "lsf"}, {"kubeflowenvironment", "kubeflow"}, {"lightning", "local"},
                     {"lightningenvironment", "local"}}}, &D::cluster);
  add({.name = "rendezvous_timeout", .type = T::duration,
       .help = "How long to wait for the other nodes at the start."}, &D::rendezvous_timeout);
  add({.name = "process_group_backend", .type = T::choice,
       .help = "Backend of collectives. Default: nccl on CUDA, shm between CPU ranks of one host, otherwise gloo.",
       .choices = {"shm", "gloo", "nccl"}, .refuses = refused_backend}, &D::process_group_backend);
}

/// For a key that only some optimizers read.
Facts read_by(const std::string& key) {
  return {.needs = {"optimizer.name", optimizer_names([&](const OptimizerSpec& spec) {
                      return std::find(spec.keys.begin(), spec.keys.end(), key) != spec.keys.end();
                    })}};
}

void add_optimizer(std::vector<Key>& keys) {
  Adder add(keys, "optimizer", &Recipe::optimizer);
  using O = Recipe::Optimizer;
  add({.name = "name", .type = T::choice, .help = "Optimizer.", .choices = optimizer_names([](const auto&) { return true; })},
      &O::name);
  add({.name = "lr", .type = T::number, .help = "Peak learning rate.", .minimum = 0}, &O::lr);
  add({.name = "weight_decay", .type = T::number,
       .help = "Weight decay. It applies to matrices only, see decay_norms_and_biases.",
       .minimum = 0}, &O::weight_decay);
  add({.name = "betas", .type = T::pair, .help = "Adam's two decay rates.", .minimum = 0,
       .maximum = 0.9999999}, &O::betas, read_by("betas"));
  add({.name = "eps", .type = T::number, .help = "Adam's epsilon.", .minimum = 0, .above_minimum = true},
      &O::eps, read_by("eps"));
  add({.name = "momentum", .type = T::number, .help = "sgd: momentum.", .minimum = 0,
       .maximum = 0.9999999}, &O::momentum, read_by("momentum"));
  add({.name = "nesterov", .type = T::boolean, .help = "sgd: Nesterov momentum."}, &O::nesterov, read_by("nesterov"));
  add({.name = "decay_norms_and_biases", .type = T::boolean,
       .help = "Apply weight decay to 1-d parameters too."}, &O::decay_norms_and_biases);
  using Group = O::Group;
  OptionTable<Group> groups;
  groups.add({.name = "pattern", .type = T::text}, &Group::pattern)
      .add({.name = "lr", .type = T::number, .minimum = 0}, &Group::lr)
      .add({.name = "weight_decay", .type = T::number, .minimum = 0}, &Group::weight_decay);
  auto empty_group = [](const json& list) -> std::optional<std::string> {
    for (const auto& group : list)
      if (group.size() == 1)
        return fmt::format("the group {} sets neither lr nor weight_decay", group.at("pattern").dump());
    return std::nullopt;
  };
  add({.name = "groups", .type = T::tables,
       .help = "[[optimizer.groups]] pattern (a glob over parameter names), lr, weight_decay. The first match applies.",
       .wanted = "a list of tables with a pattern", .fits = empty_group}, &O::groups, groups);
}

void add_lr_scheduler(std::vector<Key>& keys) {
  Adder add(keys, "lr_scheduler", &Recipe::lr_scheduler);
  using L = Recipe::LrScheduler;
  add({.name = "name", .type = T::choice, .help = "Shape of the learning rate schedule after warm-up.",
       .choices = {"constant", "linear", "cosine", "wsd", "step"}}, &L::name);
  add({.name = "warmup_steps", .type = T::integer, .help = "Number of warm-up steps.",
       .minimum = 0}, &L::warmup_steps);
  add({.name = "warmup", .type = T::choice,
       .help = "Shape of the warm-up. linear: equal increments. log: logarithmic in the step, which is "
               "DeepSpeed's default.", .choices = {"linear", "log"}}, &L::warmup);
  add({.name = "min_lr_ratio", .type = T::number, .help = "Final learning rate, relative to lr.", .minimum = 0,
       .maximum = 1}, &L::min_lr_ratio, {.needs = {"lr_scheduler.name", {"linear", "cosine", "wsd"}}});
  add({.name = "decay_steps", .type = T::integer,
       .help = "wsd: number of decay steps. Default: a tenth of max_steps.", .minimum = 1},
      &L::decay_steps, {.needs = {"lr_scheduler.name", {"wsd"}}});
  add({.name = "step_size", .type = T::integer, .help = "step: number of steps between reductions.",
       .minimum = 1}, &L::step_size, {.needs = {"lr_scheduler.name", {"step"}}});
  add({.name = "gamma", .type = T::number, .help = "step: factor of each reduction.", .minimum = 0,
       .above_minimum = true}, &L::gamma, {.needs = {"lr_scheduler.name", {"step"}}});
}

void set_accumulation(Recipe::Train& train, const json& value) {
  AccumulationSchedule schedule;
  if (value.is_object())
    for (const auto& [epoch, factor] : value.items()) schedule[std::stoll(epoch)] = factor.get<int64_t>();
  else
    schedule[0] = value.get<int64_t>();
  schedule.try_emplace(0, 1);
  train.accumulate_grad_batches = schedule;
}

json accumulation_json(const Recipe::Train& train) {
  const auto& schedule = train.accumulate_grad_batches;
  if (!schedule) return json();
  if (schedule->size() == 1) return schedule->begin()->second;
  json table = json::object();
  for (const auto& [epoch, factor] : *schedule) table[std::to_string(epoch)] = factor;
  return table;
}

/// A factor, or a table from first epochs to factors.
std::optional<std::string> accumulation_problem(json& value) {
  const std::string not_it = "";
  if (to_integer(value)) return value.get<int64_t>() < 1 ? std::optional(not_it) : std::nullopt;
  if (!value.is_object() || value.empty()) return not_it;
  for (auto& [epoch, factor] : value.items())
    if (epoch.find_first_not_of("0123456789") != std::string::npos || epoch.size() > 9 || !to_integer(factor) ||
        factor.get<int64_t>() < 1)
      return not_it;
  return std::nullopt;
}

void add_early_stopping(Adder<Recipe::Train>& add) {
  using Rule = Recipe::Train::EarlyStopping;
  auto not_empty = [](const json& text) { return text == "" ? std::optional<std::string>("") : std::nullopt; };
  OptionTable<Rule> rule;
  rule.add({.name = "monitor", .type = T::text, .wanted = "the name of a metric", .fits = not_empty}, &Rule::monitor)
      .add({.name = "patience", .type = T::integer, .minimum = 1}, &Rule::patience)
      .add({.name = "min_delta", .type = T::number, .minimum = 0}, &Rule::min_delta)
      .add({.name = "mode", .type = T::choice, .choices = {"min", "max"}}, &Rule::mode);
  add({.name = "early_stopping", .type = T::table,
       .help = "{ monitor, patience, min_delta, mode }: stop when a validation metric has not improved for `patience` "
               "validations.",
       .wanted = "a table of monitor, patience, min_delta and mode"}, &Recipe::Train::early_stopping, rule);
}

void add_train(std::vector<Key>& keys) {
  Adder add(keys, "train", &Recipe::train);
  using R = Recipe::Train;
  add({.name = "max_steps",
       .type = T::integer,
       .help = "Optimizer steps. The first limit that is reached ends the training: max_steps, max_epochs or max_time.",
       .minimum = 1},
      &R::max_steps);
  add({.name = "max_epochs", .type = T::integer, .help = "Passes over the training data.",
       .minimum = 1}, &R::max_epochs);
  add({.name = "max_time",
       .type = T::duration,
       .help = "Limit on the training time, for example \"1d12h\" or \"01:12:00:00\"."},
      &R::max_time);
  add({.name = "global_batch_size", .type = T::integer, .help = "Sequences in one optimizer step, over all ranks.",
       .minimum = 1}, &R::global_batch_size);
  add.add({.name = "micro_batch_size", .type = T::integer_or_auto,
           .help = "Sequences that a rank processes at a time. Default: the largest divisor up to 8 that fits. "
                   "\"auto\": the largest that fits.", .minimum = 1}, {},
          [](R& train, const json& value) {
            train.micro_batch_size = value.is_string() ? Recipe::automatic : value.get<int64_t>();
          },
          [](const R& train) {
            return train.micro_batch_size == Recipe::automatic ? json("auto") : obtain(train.micro_batch_size);
          });
  add.add({.name = "accumulate_grad_batches", .type = T::other,
           .help = "Number of micro-batches in a step, or { epoch = factor, ... }. Replaces global_batch_size.",
           .wanted = "an integer, or a table from epoch to factor such as { 0 = 8, 5 = 4 }",
           .fits = accumulation_problem},
          {.schema = {{"anyOf", {{{"type", "number"}}, {{"type", "object"}}}}}}, set_accumulation, accumulation_json);
  add({.name = "gradient_clip_val", .type = T::number, .help = "Limit for gradients; see gradient_clip_algorithm.",
       .minimum = 0, .above_minimum = true}, &R::gradient_clip_val);
  add({.name = "gradient_clip_algorithm", .type = T::choice,
       .help = "norm: limit the norm of all gradients together. value: limit each element.",
       .choices = {"norm", "value"}}, &R::gradient_clip_algorithm);
  add({.name = "log_every_n_steps", .type = T::integer, .help = "Steps between metrics in the ledger.",
       .minimum = 1}, &R::log_every_n_steps);
  add({.name = "print_every_n_steps", .type = T::integer,
       .help = "If the output is not a terminal: at least this many steps between printed lines, and at most four lines a second. "
               "It does not affect what is recorded.",
       .minimum = 1}, &R::print_every_n_steps);
  add({.name = "val_check_interval", .type = T::integer,
       .help = "Steps between validations. Default: after each epoch and at the end.",
       .minimum = 1, .refuses = refused_fraction(
           "val_check_interval", "it counts optimizer steps, and a fraction of an epoch is not supported; without the "
                                 "key, each epoch ends with a validation")}, &R::val_check_interval);
  add({.name = "limit_val_batches", .type = T::integer, .help = "Global batches in a validation. Default: all.",
       .minimum = 1, .refuses = refused_fraction(
           "limit_val_batches", "it counts global batches, and a fraction of them is not supported; without the key, a "
                                "validation uses all")}, &R::limit_val_batches);
  add({.name = "on_nonfinite", .type = T::choice,
       .help = "What to do when a loss or gradient is NaN or infinite: stop the run, or skip the step.",
       .choices = {"stop", "skip"}}, &R::on_nonfinite);
  add_early_stopping(add);
  add({.name = "max_restarts", .type = T::integer,
       .help = "How often to restart from the last checkpoint after a failure.", .minimum = 0}, &R::max_restarts);
  add({.name = "grace_time", .type = T::duration,
       .help = "Time between Ctrl-C or SIGTERM and the kill."}, &R::grace_time);
  add({.name = "timeout", .type = T::duration,
       .help = "How long a rank waits in a collective before the run fails."}, &R::timeout);
}

void add_checkpoint(std::vector<Key>& keys) {
  Adder add(keys, "checkpoint", &Recipe::checkpoint);
  using C = Recipe::Checkpoint;
  add({.name = "every_n_steps", .type = T::integer, .help = "Steps between checkpoints.",
       .minimum = 1}, &C::every_n_steps);
  add({.name = "every", .type = T::duration, .help = "Time between checkpoints."}, &C::every);
  add({.name = "keep_last", .type = T::integer, .help = "How many of the newest checkpoints to keep. 0: all.",
       .minimum = 0}, &C::keep_last);
  add({.name = "save_top_k", .type = T::integer,
       .help = "Also keep the k best checkpoints. One is written at every validation.",
       .minimum = 0}, &C::save_top_k);
  add({.name = "monitor", .type = T::choice,
       .help = "Metric that decides which checkpoints are best (lower is better).",
       .choices = {"val_loss", "loss"}}, &C::monitor);
  add({.name = "save_at_end", .type = T::boolean,
       .help = "Write a checkpoint at the end of the training."}, &C::save_at_end);
  add({.name = "async", .type = T::boolean, .help = "Write checkpoints in the background."}, &C::async);
  add({.name = "on_error", .type = T::choice,
       .help = "What to do when a checkpoint cannot be written: continue and try again when the next one is "
               "due, or stop the run.", .choices = {"continue", "stop"}}, &C::on_error);
}

void add_activation_checkpointing(std::vector<Key>& keys) {
  Adder add(keys, "activation_checkpointing", &Recipe::activation_checkpointing);
  using A = Recipe::ActivationCheckpointing;
  add({.name = "mode", .type = T::choice, .help = "Which layers are recomputed in the backward pass.",
       .choices = {"none", "all", "every", "named"}}, &A::mode);
  add({.name = "every", .type = T::integer, .help = "mode = \"every\": recompute every k-th transformer layer.",
       .minimum = 1}, &A::every, {.needs = {"activation_checkpointing.mode", {"every"}}});
  add({.name = "blocks", .type = T::texts,
       .help = "mode = \"named\": names of layers (\"blocks.0\") or of their halves (\"blocks.0.mlp\") to "
               "recompute, as globs."},
      &A::blocks, {.needs = {"activation_checkpointing.mode", {"named"}}});
  add({.name = "cpu_checkpointing", .type = T::boolean,
       .help = "Keep the inputs of recomputed layers in pinned host memory between forward and backward (CUDA)."},
      &A::cpu_checkpointing);
}

void add_selection(std::vector<Key>& keys) {
  Adder add(keys, "selection", &Recipe::selection);
  using S = Recipe::Selection;
  add({.name = "policy", .type = T::choice,
       .help = "How strategy = \"auto\" chooses. documented: the rule table, unless its choice does not fit; fastest: "
               "lowest predicted step time, unless the documented choice is at most 5 % slower; smallest: least memory; "
               "offload: DeepSpeed with offloading, for the "
               "largest model or micro-batch.",
       .choices = {"documented", "fastest", "smallest", "offload"}}, &S::policy);
  add({.name = "prefer", .type = T::choice,
       .help = "Whether \"auto\" uses FSDP or DeepSpeed's ZeRO where both do the same.",
       .choices = {"fsdp", "zero"}}, &S::prefer);  // as in schemas/selection_rules.toml
}

void add_hooks(std::vector<Key>& keys) {
  Adder add(keys, "hooks", &Recipe::hooks);
  using H = Recipe::Hooks;
  add({.name = "files", .type = T::paths,
       .help = "Lua files. They are called in this order. Paths are relative to the recipe, and a bare name is a "
               "shipped hook. The options of each hook are in [hooks.NAME]."}, &H::files);
  add({.name = "trusted", .type = T::boolean,
       .help = "Run hooks without the sandbox: they may use all of Lua's libraries (files, processes)."}, &H::trusted);
  add({.name = "on_error", .type = T::choice,
       .help = "What to do when a hook fails: stop the run, or continue without the hook. A hook that has changed "
               "parameters always stops the run.", .choices = {"stop", "disable"}}, &H::on_error);
  add({.name = "memory_limit", .type = T::bytes, .help = "Limit on the memory of all hooks of a rank together.",
       .minimum = 1 << 20}, &H::memory_limit);
  add({.name = "instruction_limit", .type = T::integer, .help = "Limit on the Lua instructions in one call of a hook.",
       .minimum = 1000}, &H::instruction_limit);
  add({.name = "time_limit", .type = T::number,
       .help = "Limit on the seconds of one call of a hook, without the time that the trainer needs for it.",
       .minimum = 0, .above_minimum = true}, &H::time_limit);
}

std::vector<Key> make_table() {
  std::vector<Key> keys;
  add_run(keys);
  add_model(keys);
  add_data(keys);
  add_strategy(keys);
  add_precision(keys);
  add_devices(keys);
  add_optimizer(keys);
  add_lr_scheduler(keys);
  add_train(keys);
  add_checkpoint(keys);
  add_activation_checkpointing(keys);
  add_selection(keys);
  add_hooks(keys);
  const Recipe defaults;
  for (auto& key : keys) key.default_value = key.get(defaults);
  return keys;
}

}  // namespace

const std::vector<Key>& key_table() {
  static const std::vector<Key> table = make_table();
  return table;
}

const Key* find_key(const std::string& section, const std::string& name) {
  for (const auto& key : key_table())
    if (key.section == section && key.name == name) return &key;
  return nullptr;
}

const Key* find_key(const std::string& dotted) {
  auto dot = dotted.find('.');
  return dot == std::string::npos ? nullptr : find_key(dotted.substr(0, dot), dotted.substr(dot + 1));
}

bool Need::met_by(const json& value) const {
  if (key.empty()) return true;
  return values.empty() ? value.is_null() : std::find(values.begin(), values.end(), value) != values.end();
}

bool Key::needs_met(const Recipe& recipe) const {
  return needs.key.empty() || needs.met_by(find_key(needs.key)->get(recipe));
}

std::string Key::needs_text() const {
  std::vector<std::string> quoted;
  for (const auto& value : needs.values) quoted.push_back("\"" + value + "\"");
  return quoted.empty() ? "recipes without " + needs.key : needs.key + " = " + join_or(quoted);
}

const std::vector<Section>& sections() {
  static const std::vector<Section> list = {
      {.name = "run", .help = "Name, seed and general settings of the run."},
      {.name = "model", .main_key = "name", .help = "The model."},
      {.name = "data", .help = "Training and validation data."},
      {.name = "strategy", .main_key = "name",
       .help = "How the ranks share the work. The other keys are options of the strategy (runner strategies NAME)."},
      {.name = "precision", .main_key = "mode", .help = "Numeric precision."},
      {.name = "devices", .main_key = "devices", .help = "Devices, nodes and ranks."},
      {.name = "optimizer", .main_key = "name", .help = "Optimizer."},
      {.name = "lr_scheduler", .main_key = "name", .help = "Learning rate schedule."},
      {.name = "train", .help = "Length of the training, batch sizes, clipping, validation."},
      {.name = "checkpoint", .help = "Checkpoints."},
      {.name = "activation_checkpointing", .main_key = "mode",
       .help = "Saves memory: chosen blocks do not keep their activations and recompute them in the backward pass."},
      {.name = "selection", .help = "How strategy = \"auto\" chooses (see runner recommend)."},
      {.name = "hooks", .help = "Lua callbacks. [hooks.NAME] contains the options of a hook."},
      {.name = "sweep", .help = "Several trials from one recipe.",
       .unavailable = "makes this a sweep file: use `runner sweep run FILE`"},
  };
  return list;
}

const std::vector<TopLevelKey>& top_level_keys() {
  static const std::vector<TopLevelKey> list = {
      {"extends", "Recipes that this one builds on; paths are relative to this file."},
      {"unset", "Keys or sections of those recipes to leave out, e.g. [\"data.validation_fraction\"]."},
  };
  return list;
}

const Section* find_section(const std::string& name) {
  for (const auto& section : sections())
    if (section.name == name) return &section;
  return nullptr;
}

}  // namespace runner
