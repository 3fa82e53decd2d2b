#include "runner/config/key_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "runner/base/text.hpp"
#include "runner/config/device_request.hpp"

namespace runner {

namespace {

using nlohmann::json;
using T = KeyType;

/// A field of a section. An optional field that is unset is null in JSON.
template <typename Owner, typename Value>
struct Field {
  Owner Recipe::*section;
  Value Owner::*member;
};

template <typename V>
void assign(V& target, const json& value) {
  target = value.get<V>();
}
template <typename V>
void assign(std::optional<V>& target, const json& value) {
  target = value.get<V>();
}
void assign(std::chrono::seconds& target, const json& value) { target = *parse_duration(value.get<std::string>()); }
void assign(std::optional<std::chrono::seconds>& target, const json& value) {
  target = *parse_duration(value.get<std::string>());
}

template <typename V>
json obtain(const V& value) {
  return value;
}
template <typename V>
json obtain(const std::optional<V>& value) {
  return value ? json(*value) : json();
}
json obtain(const std::chrono::seconds& value) { return write_duration(value); }
json obtain(const std::optional<std::chrono::seconds>& value) { return value ? json(write_duration(*value)) : json(); }

template <typename Owner, typename Value>
Key bind(Key key, Owner Recipe::*section, Value Owner::*member) {
  key.set = [=](Recipe& recipe, const json& value) { assign(recipe.*section.*member, value); };
  key.get = [=](const Recipe& recipe) { return obtain(recipe.*section.*member); };
  return key;
}

/// A function that adds keys of one section. It sets `section` and binds the key to a field.
template <typename Owner>
auto adder(std::vector<Key>& keys, const char* name, Owner Recipe::*section) {
  return [&keys, name, section](Key key, auto member) {
    key.section = name;
    keys.push_back(bind(std::move(key), section, member));
  };
}

json rope_json(const Recipe::Model::RopeScaling& rope) {
  return {{"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_max_position_embeddings}};
}

void add_run(std::vector<Key>& keys) {
  auto add = adder(keys, "run", &Recipe::run);
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
       .minimum = 0}, &R::fast_dev_run);
  add({.name = "tags", .type = T::texts, .help = "Words by which the run can be found."}, &R::tags);
  add({.name = "notes", .type = T::text, .help = "Free text for the ledger."}, &R::notes);
}

void add_model(std::vector<Key>& keys) {
  auto add = adder(keys, "model", &Recipe::model);
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
       .help = "Key and value heads (grouped-query attention). Must divide n_heads. Default: n_heads.", .minimum = 1,
       .family = "llama"}, &M::n_kv_heads);
  add({.name = "vocab_size", .type = T::integer, .help = "Number of tokens. Default: the tokenizer's.",
       .minimum = 1}, &M::vocab_size);
  add({.name = "max_seq_len", .type = T::integer, .help = "Longest sequence that the model can process, in tokens.",
       .minimum = 1, .required = true}, &M::max_seq_len);
  add({.name = "hidden_dim", .type = T::integer,
       .help = "Feed-forward width. Default: 4 x dim (gpt), Llama's rule (llama).", .minimum = 1}, &M::hidden_dim);
  add({.name = "multiple_of", .type = T::integer,
       .help = "Llama's rule rounds the feed-forward width up to a multiple of this.", .minimum = 1,
       .family = "llama"}, &M::multiple_of);
  add({.name = "ffn_dim_multiplier", .type = T::number, .help = "Llama's rule: factor on the feed-forward width.",
       .minimum = 0, .above_minimum = true, .family = "llama"}, &M::ffn_dim_multiplier);
  add({.name = "norm_eps", .type = T::number, .help = "Epsilon of the norms.", .minimum = 0,
       .above_minimum = true}, &M::norm_eps);
  add({.name = "activation", .type = T::choice,
       .help = "gelu: exact (erf). gelu_tanh: tanh approximation, as in GPT-2.", .choices = {"gelu", "gelu_tanh"},
       .family = "gpt"}, &M::activation);
  add({.name = "bias", .type = T::boolean, .help = "Use biases in linear layers and norms.",
       .family = "gpt"}, &M::bias);
  add({.name = "tie_embeddings", .type = T::boolean,
       .help = "The output layer shares the embedding's weight. Default: true for gpt, false for llama."},
      &M::tie_embeddings);
  add({.name = "rope_theta", .type = T::number, .help = "Base of the rotary position embeddings.", .minimum = 0,
       .above_minimum = true, .family = "llama"}, &M::rope_theta);
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
  Key rope{.section = "model", .name = "rope_scaling", .type = T::table,
           .help = "Llama-3 scaling: { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings }.",
           .family = "llama"};
  rope.set = [](Recipe& recipe, const json& value) {
    Recipe::Model::RopeScaling scaling;
    scaling.factor = value.value("factor", scaling.factor);
    scaling.low_freq_factor = value.value("low_freq_factor", scaling.low_freq_factor);
    scaling.high_freq_factor = value.value("high_freq_factor", scaling.high_freq_factor);
    scaling.original_max_position_embeddings =
        value.value("original_max_position_embeddings", scaling.original_max_position_embeddings);
    recipe.model.rope_scaling = scaling;
  };
  rope.get = [](const Recipe& recipe) {
    return recipe.model.rope_scaling ? rope_json(*recipe.model.rope_scaling) : json();
  };
  keys.push_back(rope);
}

void add_data(std::vector<Key>& keys) {
  auto add = adder(keys, "data", &Recipe::data);
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
       .minimum = 300}, &D::tokenizer_vocab_size);
  add({.name = "token_dtype", .type = T::choice, .help = "Type of a token id in files of format \"bin\".",
       .choices = {"uint16", "uint32"}}, &D::token_dtype);
  add({.name = "seq_len", .type = T::integer, .help = "Tokens in a sample. Default: model.max_seq_len.",
       .minimum = 1}, &D::seq_len);
  add({.name = "shuffle", .type = T::boolean,
       .help = "Shuffle samples each epoch. The order depends only on seed and epoch."}, &D::shuffle);
  add({.name = "prefetch", .type = T::integer, .help = "Number of steps whose batches are prepared in advance.",
       .minimum = 1, .maximum = 1024}, &D::prefetch);
}

void add_strategy(std::vector<Key>& keys) {
  adder(keys, "strategy", &Recipe::strategy)(
      {.name = "name", .type = T::text,
       .help = "Name or alias of a strategy (see runner strategies), or \"auto\"."}, &Recipe::Strategy::name);
}

void add_precision(std::vector<Key>& keys) {
  adder(keys, "precision", &Recipe::precision)(
      {.name = "mode", .type = T::precision,
       .help = "auto: bf16-mixed on CUDA devices that support it, otherwise 32-true.",
       .choices = {"auto", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "32-true", "64-true"}},
      &Recipe::Precision::mode);
}

void add_devices(std::vector<Key>& keys) {
  auto add = adder(keys, "devices", &Recipe::devices);
  using D = Recipe::Devices;
  add({.name = "accelerator", .type = T::choice,
       .help = "Kind of device. auto: CUDA if there is a device, otherwise cpu.",
       .choices = {"auto", "cpu", "cuda"}}, &D::accelerator);
  Key devices{.section = "devices", .name = "devices", .type = T::devices,
              .help = "Devices on each node: a number, -1 (all), \"1,3\" or [1, 3] (indices), \"free:2\", \"auto\"."};
  devices.set = [](Recipe& recipe, const json& value) {
    std::string problem;
    recipe.devices.devices = *parse_devices(value, problem);
  };
  devices.get = [](const Recipe& recipe) { return json::parse(write_devices(recipe.devices.devices)); };
  keys.push_back(devices);
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
       .choices = {"auto", "local", "torchrun", "slurm", "openmpi", "mpich", "lsf", "kubeflow"}}, &D::cluster);
  add({.name = "rendezvous_timeout", .type = T::duration,
       .help = "How long to wait for the other nodes at the start."}, &D::rendezvous_timeout);
  add({.name = "process_group_backend", .type = T::choice,
       .help = "Backend of collectives. Default: nccl on CUDA, shm between CPU ranks of one host, otherwise gloo.",
       .choices = {"shm", "gloo", "nccl"}}, &D::process_group_backend);
}

json groups_json(const std::vector<Recipe::Optimizer::Group>& groups) {
  json list = json::array();
  for (const auto& group : groups) {
    json item = {{"pattern", group.pattern}};
    if (group.lr) item["lr"] = *group.lr;
    if (group.weight_decay) item["weight_decay"] = *group.weight_decay;
    list.push_back(item);
  }
  return list.empty() ? json() : list;
}

void add_optimizer(std::vector<Key>& keys) {
  auto add = adder(keys, "optimizer", &Recipe::optimizer);
  using O = Recipe::Optimizer;
  add({.name = "name", .type = T::choice, .help = "Optimizer.", .choices = {"adamw", "adam", "sgd"}}, &O::name);
  add({.name = "lr", .type = T::number, .help = "Peak learning rate.", .minimum = 0}, &O::lr);
  add({.name = "weight_decay", .type = T::number,
       .help = "Weight decay. It applies to matrices only, see decay_norms_and_biases.",
       .minimum = 0}, &O::weight_decay);
  add({.name = "betas", .type = T::numbers, .help = "Adam's two decay rates.", .minimum = 0,
       .maximum = 0.9999999}, &O::betas);
  add({.name = "eps", .type = T::number, .help = "Adam's epsilon.", .minimum = 0, .above_minimum = true}, &O::eps);
  add({.name = "momentum", .type = T::number, .help = "sgd: momentum.", .minimum = 0,
       .maximum = 0.9999999}, &O::momentum);
  add({.name = "nesterov", .type = T::boolean, .help = "sgd: Nesterov momentum."}, &O::nesterov);
  add({.name = "decay_norms_and_biases", .type = T::boolean,
       .help = "Apply weight decay to 1-d parameters too."}, &O::decay_norms_and_biases);
  Key groups{.section = "optimizer", .name = "groups", .type = T::groups,
             .help = "[[optimizer.groups]] pattern (a glob over parameter names), lr, weight_decay. The first match "
                     "applies."};
  groups.set = [](Recipe& recipe, const json& value) {
    recipe.optimizer.groups.clear();
    for (const auto& item : value) {
      Recipe::Optimizer::Group group;
      group.pattern = item.at("pattern");
      if (item.contains("lr")) group.lr = item["lr"].get<double>();
      if (item.contains("weight_decay")) group.weight_decay = item["weight_decay"].get<double>();
      recipe.optimizer.groups.push_back(group);
    }
  };
  groups.get = [](const Recipe& recipe) { return groups_json(recipe.optimizer.groups); };
  keys.push_back(groups);
}

void add_lr_scheduler(std::vector<Key>& keys) {
  auto add = adder(keys, "lr_scheduler", &Recipe::lr_scheduler);
  using L = Recipe::LrScheduler;
  add({.name = "name", .type = T::choice, .help = "Shape of the learning rate schedule after warm-up.",
       .choices = {"constant", "linear", "cosine", "wsd", "step"}}, &L::name);
  add({.name = "warmup_steps", .type = T::integer, .help = "Number of warm-up steps.",
       .minimum = 0}, &L::warmup_steps);
  add({.name = "warmup", .type = T::choice,
       .help = "Shape of the warm-up. linear: equal increments. log: logarithmic in the step, which is "
               "DeepSpeed's default.", .choices = {"linear", "log"}}, &L::warmup);
  add({.name = "min_lr_ratio", .type = T::number, .help = "Final learning rate, relative to lr.", .minimum = 0,
       .maximum = 1}, &L::min_lr_ratio);
  add({.name = "decay_steps", .type = T::integer,
       .help = "wsd: number of decay steps. Default: a tenth of max_steps.", .minimum = 1}, &L::decay_steps);
  add({.name = "step_size", .type = T::integer, .help = "step: number of steps between reductions.",
       .minimum = 1}, &L::step_size);
  add({.name = "gamma", .type = T::number, .help = "step: factor of each reduction.", .minimum = 0,
       .above_minimum = true}, &L::gamma);
}

json accumulation_json(const std::optional<AccumulationSchedule>& schedule) {
  if (!schedule) return json();
  if (schedule->size() == 1) return schedule->begin()->second;
  json table = json::object();
  for (const auto& [epoch, factor] : *schedule) table[std::to_string(epoch)] = factor;
  return table;
}

void add_early_stopping(std::vector<Key>& keys) {
  Key stopping{.section = "train", .name = "early_stopping", .type = T::stopping,
               .help = "{ monitor, patience, min_delta, mode }: stop when a validation metric has not improved for "
                       "`patience` validations."};
  stopping.set = [](Recipe& recipe, const json& value) {
    Recipe::Train::EarlyStopping rule;
    rule.monitor = value.value("monitor", rule.monitor);
    rule.patience = value.value("patience", rule.patience);
    rule.min_delta = value.value("min_delta", rule.min_delta);
    rule.mode = value.value("mode", rule.mode);
    recipe.train.early_stopping = rule;
  };
  stopping.get = [](const Recipe& recipe) {
    const auto& rule = recipe.train.early_stopping;
    return rule ? json{{"monitor", rule->monitor},
                       {"patience", rule->patience},
                       {"min_delta", rule->min_delta},
                       {"mode", rule->mode}}
                : json();
  };
  keys.push_back(stopping);
}

void add_train(std::vector<Key>& keys) {
  auto add = adder(keys, "train", &Recipe::train);
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
  Key micro{.section = "train", .name = "micro_batch_size", .type = T::integer_or_auto,
            .help = "Sequences that a rank processes at a time. Default: the largest divisor up to 8 that fits. "
                    "\"auto\": the largest that fits.", .minimum = 1};
  micro.set = [](Recipe& recipe, const json& value) {
    recipe.train.micro_batch_size = value.is_string() ? Recipe::automatic : value.get<int64_t>();
  };
  micro.get = [](const Recipe& recipe) {
    auto size = recipe.train.micro_batch_size;
    return size == Recipe::automatic ? json("auto") : obtain(size);
  };
  keys.push_back(micro);
  Key accumulate{.section = "train", .name = "accumulate_grad_batches", .type = T::accumulation,
                 .help = "Number of micro-batches in a step, or { epoch = factor, ... }. Replaces global_batch_size."};
  accumulate.set = [](Recipe& recipe, const json& value) {
    AccumulationSchedule schedule;
    if (value.is_object())
      for (const auto& [epoch, factor] : value.items()) schedule[std::stoll(epoch)] = factor.get<int64_t>();
    else
      schedule[0] = value.get<int64_t>();
    schedule.try_emplace(0, 1);
    recipe.train.accumulate_grad_batches = schedule;
  };
  accumulate.get = [](const Recipe& recipe) { return accumulation_json(recipe.train.accumulate_grad_batches); };
  keys.push_back(accumulate);
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
       .minimum = 1}, &R::val_check_interval);
  add({.name = "limit_val_batches", .type = T::integer, .help = "Global batches in a validation. Default: all.",
       .minimum = 1}, &R::limit_val_batches);
  add({.name = "on_nonfinite", .type = T::choice,
       .help = "What to do when a loss or gradient is NaN or infinite: stop the run, or skip the step.",
       .choices = {"stop", "skip"}}, &R::on_nonfinite);
  add_early_stopping(keys);
  add({.name = "max_restarts", .type = T::integer,
       .help = "How often to restart from the last checkpoint after a failure.", .minimum = 0}, &R::max_restarts);
  add({.name = "grace_time", .type = T::duration,
       .help = "Time between Ctrl-C or SIGTERM and the kill."}, &R::grace_time);
  add({.name = "timeout", .type = T::duration,
       .help = "How long a rank waits in a collective before the run fails."}, &R::timeout);
}

void add_checkpoint(std::vector<Key>& keys) {
  auto add = adder(keys, "checkpoint", &Recipe::checkpoint);
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
  auto add = adder(keys, "activation_checkpointing", &Recipe::activation_checkpointing);
  using A = Recipe::ActivationCheckpointing;
  add({.name = "mode", .type = T::choice, .help = "Blocks whose activations are recomputed in the backward pass.",
       .choices = {"none", "all", "every", "named"}}, &A::mode);
  add({.name = "every", .type = T::integer, .help = "mode = \"every\": recompute every k-th block.",
       .minimum = 1}, &A::every);
  add({.name = "blocks", .type = T::texts,
       .help = "mode = \"named\": names of layers (\"blocks.0\") or of their halves (\"blocks.0.mlp\") to "
               "recompute, as globs."}, &A::blocks);
  add({.name = "cpu_checkpointing", .type = T::boolean,
       .help = "Keep the inputs of recomputed blocks in pinned host memory between forward and backward (CUDA)."},
      &A::cpu_checkpointing);
}

void add_selection(std::vector<Key>& keys) {
  auto add = adder(keys, "selection", &Recipe::selection);
  using S = Recipe::Selection;
  add({.name = "policy", .type = T::choice,
       .help = "How strategy = \"auto\" chooses. documented: the rule table, unless its choice does not fit; fastest: "
               "lowest predicted step time, unless the documented choice is at most 5 % slower; smallest: least memory; "
               "offload: DeepSpeed with offloading, for the "
               "largest model or micro-batch.",
       .choices = {"documented", "fastest", "smallest", "offload"}}, &S::policy);
  add({.name = "prefer", .type = T::choice,
       .help = "Whether \"auto\" uses FSDP or DeepSpeed's ZeRO where both do the same.",
       .choices = {"fsdp", "zero"}}, &S::prefer);
}

void add_hooks(std::vector<Key>& keys) {
  auto add = adder(keys, "hooks", &Recipe::hooks);
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

/// The conditions of keys: "key" -> {other key, its values}.
const std::map<std::string, Need>& needs() {
  static const std::map<std::string, Need> list = {
      {"model.multiple_of", {"model.hidden_dim"}},
      {"model.ffn_dim_multiplier", {"model.hidden_dim"}},
      {"data.tokenizer_vocab_size", {"data.tokenizer", {"sentencepiece"}}},
      {"data.token_dtype", {"data.format", {"bin"}}},
      {"optimizer.betas", {"optimizer.name", {"adamw", "adam"}}},
      {"optimizer.eps", {"optimizer.name", {"adamw", "adam"}}},
      {"optimizer.momentum", {"optimizer.name", {"sgd"}}},
      {"optimizer.nesterov", {"optimizer.name", {"sgd"}}},
      {"lr_scheduler.min_lr_ratio", {"lr_scheduler.name", {"linear", "cosine", "wsd"}}},
      {"lr_scheduler.decay_steps", {"lr_scheduler.name", {"wsd"}}},
      {"lr_scheduler.step_size", {"lr_scheduler.name", {"step"}}},
      {"lr_scheduler.gamma", {"lr_scheduler.name", {"step"}}},
      {"activation_checkpointing.every", {"activation_checkpointing.mode", {"every"}}},
      {"activation_checkpointing.blocks", {"activation_checkpointing.mode", {"named"}}},
  };
  return list;
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
  for (auto& key : keys)
    if (auto found = needs().find(key.dotted()); found != needs().end()) key.needs = found->second;
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

std::string wanted(const Key& key) {
  switch (key.type) {
    case T::boolean:
      return "true or false";
    case T::integer:
      return "an integer";
    case T::integer_or_auto:
      return "an integer or \"auto\"";
    case T::number:
      return "a number";
    case T::text:
    case T::path:
    case T::choice:
      return "a string";
    case T::paths:
    case T::texts:
      return "a list of strings";
    case T::numbers:
      return "a list of two numbers";
    case T::duration:
      return "a duration such as \"30m\" or \"1d12h\"";
    case T::bytes:
      return "a size such as \"22GiB\"";
    case T::devices:
      return "a number of devices, \"auto\", indices such as \"1,3\" or [1, 3], or \"free:2\"";
    case T::precision:
      return "a precision such as \"bf16-mixed\" or 32";
    case T::accumulation:
      return "an integer, or a table from epoch to factor such as { 0 = 8, 5 = 4 }";
    case T::table:
      return "a table of factor, low_freq_factor, high_freq_factor (numbers) and original_max_position_embeddings (an "
             "integer)";
    case T::groups:
      return "a list of tables with a pattern";
    case T::stopping:
      return "a table of monitor, patience, min_delta and mode";
  }
  return "";
}

std::string number_text(const Key& key, double number) {
  if (key.type != T::bytes) return fmt::format("{}", number);
  static constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; number != 0 && std::fmod(number, 1024) == 0 && unit + 1 < units.size(); ++unit) number /= 1024;
  return fmt::format("{}{}", number, units[unit]);
}

const Spellings& spellings_of(const Key& key) {
  static const std::map<std::string, Spellings> all = {
      {"precision.mode",
       {{"16", "16-mixed"},
        {"bf16", "bf16-mixed"},
        {"32", "32-true"},
        {"64", "64-true"},
        {"fp16", "16-mixed"},
        {"fp32", "32-true"}}},
      {"devices.accelerator", {{"gpu", "cuda"}}},
      {"devices.cluster",
       {{"torchelastic", "torchrun"},
        {"torchelasticenvironment", "torchrun"},
        {"slurmenvironment", "slurm"},
        {"lsfenvironment", "lsf"},
        {"kubeflowenvironment", "kubeflow"},
        {"lightning", "local"},
        {"lightningenvironment", "local"}}},
  };
  static const Spellings none;
  auto found = all.find(key.dotted());
  return found == all.end() ? none : found->second;
}

}  // namespace runner
