#include "runner/config/key_table.hpp"

#include <algorithm>

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

json rope_json(const Recipe::Model::RopeScaling& rope) {
  return {{"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_max_position_embeddings}};
}

void add_run(std::vector<Key>& keys) {
  auto add = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::run, member)); };
  using R = Recipe::Run;
  add({"run", "name", T::text, "Name of the run in listings. Default: the file's name."}, &R::name);
  add({"run", "seed", T::integer, "Determines initial weights, sample order and dropout.", {}, 0}, &R::seed);
  add({"run", "deterministic", T::boolean, "Refuse operations that are not deterministic."}, &R::deterministic);
  add({"run", "benchmark", T::boolean, "Let cuDNN choose its algorithms by measuring them."}, &R::benchmark);
  add({"run",
       "fast_dev_run",
       T::integer,
       "If above 0: run this many optimizer steps and validation batches, and keep nothing.",
       {},
       0},
      &R::fast_dev_run);
  add({"run", "tags", T::texts, "Words by which the run can be found."}, &R::tags);
  add({"run", "notes", T::text, "Free text for the ledger."}, &R::notes);
}

void add_model(std::vector<Key>& keys) {
  auto add = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::model, member)); };
  using M = Recipe::Model;
  add({"model", "name", T::choice, "Model family.", {"gpt", "llama"}, {}, {}, false, true}, &M::name);
  add({"model", "n_layers", T::integer, "Transformer blocks.", {}, 1, 10000, false, true}, &M::n_layers);
  add({"model", "dim", T::integer, "Width of the hidden states.", {}, 1, 1 << 20, false, true}, &M::dim);
  add({"model", "n_heads", T::integer, "Attention heads. Must divide dim.", {}, 1, 1 << 16, false, true}, &M::n_heads);
  add({"model",
       "n_kv_heads",
       T::integer,
       "Key and value heads (grouped-query attention). Must divide n_heads. Default: n_heads.",
       {},
       1,
       {},
       false,
       false,
       "llama"},
      &M::n_kv_heads);
  add({"model", "vocab_size", T::integer, "Number of tokens. Default: the tokenizer's.", {}, 1}, &M::vocab_size);
  add({"model",
       "max_seq_len",
       T::integer,
       "Longest sequence that the model can process, in tokens.",
       {},
       1,
       {},
       false,
       true},
      &M::max_seq_len);
  add({"model", "hidden_dim", T::integer, "Feed-forward width. Default: 4 x dim (gpt), Llama's rule (llama).", {}, 1},
      &M::hidden_dim);
  add({"model",
       "multiple_of",
       T::integer,
       "Llama's rule rounds the feed-forward width up to a multiple of this.",
       {},
       1,
       {},
       false,
       false,
       "llama"},
      &M::multiple_of);
  add({"model",
       "ffn_dim_multiplier",
       T::number,
       "Llama's rule: factor on the feed-forward width.",
       {},
       0,
       {},
       true,
       false,
       "llama"},
      &M::ffn_dim_multiplier);
  add({"model", "norm_eps", T::number, "Epsilon of the norms.", {}, 0, {}, true}, &M::norm_eps);
  add({"model",
       "activation",
       T::choice,
       "gelu: exact (erf). gelu_tanh: tanh approximation, as in GPT-2.",
       {"gelu", "gelu_tanh"},
       {},
       {},
       false,
       false,
       "gpt"},
      &M::activation);
  add({"model", "bias", T::boolean, "Use biases in linear layers and norms.", {}, {}, {}, false, false, "gpt"},
      &M::bias);
  add({"model", "tie_embeddings", T::boolean,
       "The output layer shares the embedding's weight. Default: true for gpt, false for llama."},
      &M::tie_embeddings);
  add({"model", "rope_theta", T::number, "Base of the rotary position embeddings.", {}, 0, {}, true, false, "llama"},
      &M::rope_theta);
  add({"model", "dropout", T::number, "Probability of dropping an element.", {}, 0, 0.999}, &M::dropout);
  add({"model", "init_std", T::number, "Standard deviation of initial weights.", {}, 0}, &M::init_std);
  add({"model", "init_from", T::path, "Hugging Face folder (safetensors) with the initial weights."}, &M::init_from);
  add({"model",
       "loss_chunk_tokens",
       T::integer,
       "Number of tokens whose logits are in memory at the same time. 0: all.",
       {},
       0},
      &M::loss_chunk_tokens);
  Key rope{
      "model",  "rope_scaling",
      T::table, "Llama-3 scaling: { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings }.",
      {},       {},
      {},       false,
      false,    "llama"};
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
  auto add = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::data, member)); };
  using D = Recipe::Data;
  add({"data",
       "format",
       T::choice,
       "text: text files. bin: pre-tokenized files as nanoGPT and llm.c write them.",
       {"text", "bin"},
       {},
       {},
       false,
       true},
      &D::format);
  add({"data",
       "train",
       T::paths,
       "Training files or patterns (data/*.txt). They are joined in this order; the matches of a pattern are sorted. Paths are relative to "
       "the recipe.",
       {},
       {},
       {},
       false,
       true},
      &D::train);
  add({"data", "validation", T::paths, "Validation files, or patterns."}, &D::validation);
  add({"data",
       "validation_fraction",
       T::number,
       "Share of the training data, at its end, that is used for validation instead of files.",
       {},
       0,
       0.9,
       true},
      &D::validation_fraction);
  add({"data", "tokenizer", T::path,
       "\"bytes\", a SentencePiece model file, or \"sentencepiece\": trained once and cached."},
      &D::tokenizer);
  add({"data",
       "tokenizer_vocab_size",
       T::integer,
       "Vocabulary size of a tokenizer that is trained (tokenizer = \"sentencepiece\").",
       {},
       300},
      &D::tokenizer_vocab_size);
  add({"data", "token_dtype", T::choice, "Type of a token id in files of format \"bin\".", {"uint16", "uint32"}},
      &D::token_dtype);
  add({"data", "seq_len", T::integer, "Tokens in a sample. Default: model.max_seq_len.", {}, 1}, &D::seq_len);
  add({"data", "shuffle", T::boolean, "Shuffle samples each epoch. The order depends only on seed and epoch."},
      &D::shuffle);
  add({"data", "prefetch", T::integer, "Number of steps whose batches are prepared in advance.", {}, 1, 1024},
      &D::prefetch);
}

void add_hardware(std::vector<Key>& keys) {
  auto add = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::devices, member)); };
  using D = Recipe::Devices;
  keys.push_back(
      bind(Key{"strategy", "name", T::text, "Name or alias of a strategy (see runner strategies), or \"auto\"."},
           &Recipe::strategy, &Recipe::Strategy::name));
  keys.push_back(bind(Key{"precision",
                          "mode",
                          T::precision,
                          "auto: bf16-mixed on CUDA devices that support it, otherwise 32-true.",
                          {"auto", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "32-true", "64-true"}},
                      &Recipe::precision, &Recipe::Precision::mode));
  add({"devices",
       "accelerator",
       T::choice,
       "Kind of device. auto: CUDA if there is a device, otherwise cpu.",
       {"auto", "cpu", "cuda"}},
      &D::accelerator);
  Key devices{"devices", "devices", T::devices,
              "Devices on each node: a number, -1 (all), \"1,3\" or [1, 3] (indices), \"free:2\", \"auto\"."};
  devices.set = [](Recipe& recipe, const json& value) {
    std::string problem;
    recipe.devices.devices = *parse_devices(value, problem);
  };
  devices.get = [](const Recipe& recipe) { return json::parse(write_devices(recipe.devices.devices)); };
  keys.push_back(devices);
  add({"devices", "cpu_processes", T::integer, "Number of ranks on each node when training on CPU.", {}, 1, 1024},
      &D::cpu_processes);
  add({"devices", "num_nodes", T::integer, "Number of nodes.", {}, 1, 100000}, &D::num_nodes);
  add({"devices", "memory_limit", T::bytes, "Memory that may be used on each device, for example \"22GiB\".", {}, 1},
      &D::memory_limit);
  add({"devices",
       "threads_per_rank",
       T::integer,
       "CPU threads of each rank. Default: cores / local ranks.",
       {},
       1,
       1024},
      &D::threads_per_rank);
  add({"devices",
       "cluster",
       T::choice,
       "Launcher that started the ranks. auto: detected from the environment.",
       {"auto", "local", "torchrun", "slurm", "openmpi", "mpich", "lsf", "kubeflow"}},
      &D::cluster);
  add({"devices", "rendezvous_timeout", T::duration, "How long to wait for the other nodes at the start."},
      &D::rendezvous_timeout);
  add({"devices",
       "process_group_backend",
       T::choice,
       "Backend of collectives. Default: nccl on CUDA, shm between CPU ranks of one host, otherwise gloo.",
       {"shm", "gloo", "nccl"}},
      &D::process_group_backend);
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
  auto add = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::optimizer, member)); };
  using O = Recipe::Optimizer;
  add({"optimizer", "name", T::choice, "Optimizer.", {"adamw", "adam", "sgd"}}, &O::name);
  add({"optimizer", "lr", T::number, "Peak learning rate.", {}, 0}, &O::lr);
  add({"optimizer",
       "weight_decay",
       T::number,
       "Weight decay. It applies to matrices only, see decay_norms_and_biases.",
       {},
       0},
      &O::weight_decay);
  add({"optimizer", "betas", T::numbers, "Adam's two decay rates.", {}, 0, 0.9999999}, &O::betas);
  add({"optimizer", "eps", T::number, "Adam's epsilon.", {}, 0, {}, true}, &O::eps);
  add({"optimizer", "momentum", T::number, "sgd: momentum.", {}, 0, 0.9999999}, &O::momentum);
  add({"optimizer", "nesterov", T::boolean, "sgd: Nesterov momentum."}, &O::nesterov);
  add({"optimizer", "decay_norms_and_biases", T::boolean, "Apply weight decay to 1-d parameters too."},
      &O::decay_norms_and_biases);
  Key groups{"optimizer", "groups", T::groups,
             "[[optimizer.groups]] pattern (a glob over parameter names), lr, weight_decay. The first match applies."};
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
  auto schedule = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::lr_scheduler, member)); };
  using L = Recipe::LrScheduler;
  schedule({"lr_scheduler",
            "name",
            T::choice,
            "Shape of the learning rate schedule after warm-up.",
            {"constant", "linear", "cosine", "wsd", "step"}},
           &L::name);
  schedule({"lr_scheduler", "warmup_steps", T::integer, "Number of warm-up steps.", {}, 0}, &L::warmup_steps);
  schedule({"lr_scheduler",
            "warmup",
            T::choice,
            "Shape of the warm-up. linear: equal increments. log: logarithmic in the step, which is DeepSpeed's default.",
            {"linear", "log"}},
           &L::warmup);
  schedule({"lr_scheduler", "min_lr_ratio", T::number, "Final learning rate, relative to lr.", {}, 0, 1},
           &L::min_lr_ratio);
  schedule(
      {"lr_scheduler", "decay_steps", T::integer, "wsd: number of decay steps. Default: a tenth of max_steps.", {}, 1},
      &L::decay_steps);
  schedule({"lr_scheduler", "step_size", T::integer, "step: number of steps between reductions.", {}, 1},
           &L::step_size);
  schedule({"lr_scheduler", "gamma", T::number, "step: factor of each reduction.", {}, 0, {}, true}, &L::gamma);
}

json accumulation_json(const std::optional<AccumulationSchedule>& schedule) {
  if (!schedule) return json();
  if (schedule->size() == 1) return schedule->begin()->second;
  json table = json::object();
  for (const auto& [epoch, factor] : *schedule) table[std::to_string(epoch)] = factor;
  return table;
}

void add_early_stopping(std::vector<Key>& keys) {
  Key stopping{"train", "early_stopping", T::stopping,
               "{ monitor, patience, min_delta, mode }: stop when a validation metric has not improved for `patience` "
               "validations."};
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
  auto add = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::train, member)); };
  using R = Recipe::Train;
  add({"train", "max_steps", T::integer, "Optimizer steps.", {}, 1}, &R::max_steps);
  add({"train", "max_epochs", T::integer, "Passes over the training data.", {}, 1}, &R::max_epochs);
  add({"train", "max_time", T::duration, "Limit on the training time, for example \"1d12h\"."}, &R::max_time);
  add({"train", "global_batch_size", T::integer, "Sequences in one optimizer step, over all ranks.", {}, 1},
      &R::global_batch_size);
  Key micro{"train",
            "micro_batch_size",
            T::integer_or_auto,
            "Sequences that a rank processes at a time. Default: the largest divisor up to 8 that fits. \"auto\": the "
            "largest that fits.",
            {},
            1};
  micro.set = [](Recipe& recipe, const json& value) {
    recipe.train.micro_batch_size = value.is_string() ? Recipe::automatic : value.get<int64_t>();
  };
  micro.get = [](const Recipe& recipe) {
    auto size = recipe.train.micro_batch_size;
    return size == Recipe::automatic ? json("auto") : obtain(size);
  };
  keys.push_back(micro);
  Key accumulate{"train", "accumulate_grad_batches", T::accumulation,
                 "Number of micro-batches in a step, or { epoch = factor, ... }. Replaces global_batch_size."};
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
  add({"train", "gradient_clip_val", T::number, "Limit for gradients; see gradient_clip_algorithm.", {}, 0, {}, true},
      &R::gradient_clip_val);
  add({"train",
       "gradient_clip_algorithm",
       T::choice,
       "norm: limit the norm of all gradients together. value: limit each element.",
       {"norm", "value"}},
      &R::gradient_clip_algorithm);
  add({"train", "log_every_n_steps", T::integer, "Steps between metrics in the ledger.", {}, 1}, &R::log_every_n_steps);
  add({"train",
       "print_every_n_steps",
       T::integer,
       "Steps between printed lines if the output is not a terminal. It does not affect what is recorded.",
       {},
       1},
      &R::print_every_n_steps);
  add({"train",
       "val_check_interval",
       T::integer,
       "Steps between validations. Default: after each epoch and at the end.",
       {},
       1},
      &R::val_check_interval);
  add({"train", "limit_val_batches", T::integer, "Global batches in a validation. Default: all.", {}, 1},
      &R::limit_val_batches);
  add({"train",
       "on_nonfinite",
       T::choice,
       "What to do when a loss or gradient is NaN or infinite: stop the run, or skip the step.",
       {"stop", "skip"}},
      &R::on_nonfinite);
  add_early_stopping(keys);
  add({"train", "max_restarts", T::integer, "How often to restart from the last checkpoint after a failure.", {}, 0},
      &R::max_restarts);
  add({"train", "grace_time", T::duration, "Time between Ctrl-C or SIGTERM and the kill."}, &R::grace_time);
  add({"train", "timeout", T::duration, "How long a rank waits in a collective before the run fails."}, &R::timeout);
  auto checkpoint = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::checkpoint, member)); };
  using C = Recipe::Checkpoint;
  checkpoint({"checkpoint", "every_n_steps", T::integer, "Steps between checkpoints.", {}, 1}, &C::every_n_steps);
  checkpoint({"checkpoint", "every", T::duration, "Time between checkpoints."}, &C::every);
  checkpoint({"checkpoint", "keep_last", T::integer, "How many of the newest checkpoints to keep. 0: all.", {}, 0},
             &C::keep_last);
  checkpoint({"checkpoint",
              "save_top_k",
              T::integer,
              "Also keep the k best checkpoints. One is written at every validation.",
              {},
              0},
             &C::save_top_k);
  checkpoint({"checkpoint",
              "monitor",
              T::choice,
              "Metric that decides which checkpoints are best (lower is better).",
              {"val_loss", "loss"}},
             &C::monitor);
  checkpoint({"checkpoint", "save_at_end", T::boolean, "Write a checkpoint at the end of the training."},
             &C::save_at_end);
  checkpoint({"checkpoint", "async", T::boolean, "Write checkpoints in the background."}, &C::async);
  checkpoint({"checkpoint",
              "on_error",
              T::choice,
              "What to do when a checkpoint cannot be written: continue and try again when the next one is due, or stop the run.",
              {"continue", "stop"}},
             &C::on_error);
  auto again = [&](Key key, auto member) {
    keys.push_back(bind(std::move(key), &Recipe::activation_checkpointing, member));
  };
  using A = Recipe::ActivationCheckpointing;
  again({"activation_checkpointing",
         "mode",
         T::choice,
         "Blocks whose activations are recomputed in the backward pass.",
         {"none", "all", "every", "named"}},
        &A::mode);
  again({"activation_checkpointing", "every", T::integer, "mode = \"every\": recompute every k-th block.", {}, 1},
        &A::every);
  again({"activation_checkpointing", "blocks", T::texts, "mode = \"named\": names of blocks to recompute, as globs."},
        &A::blocks);
  again({"activation_checkpointing", "cpu_checkpointing", T::boolean,
         "Keep the inputs of recomputed blocks in pinned host memory between forward and backward (CUDA)."},
        &A::cpu_checkpointing);
}

void add_selection(std::vector<Key>& keys) {
  auto add = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::selection, member)); };
  using S = Recipe::Selection;
  add({"selection",
       "policy",
       T::choice,
       "How strategy = \"auto\" chooses. documented: the rule table, unless its choice does not fit; fastest: lowest "
       "predicted step time; smallest: least memory; offload: DeepSpeed with offloading, for the largest model or micro-batch.",
       {"documented", "fastest", "smallest", "offload"}},
      &S::policy);
  add({"selection",
       "prefer",
       T::choice,
       "Whether \"auto\" uses FSDP or DeepSpeed's ZeRO where both do the same.",
       {"fsdp", "zero"}},
      &S::prefer);
}

void add_hooks(std::vector<Key>& keys) {
  auto add = [&](Key key, auto member) { keys.push_back(bind(std::move(key), &Recipe::hooks, member)); };
  using H = Recipe::Hooks;
  add({"hooks", "files", T::paths,
       "Lua files. They are called in this order. Paths are relative to the recipe, and a bare name is a shipped hook. "
       "The "
       "options of each hook are in [hooks.NAME]."},
      &H::files);
  add({"hooks", "trusted", T::boolean,
       "Run hooks without the sandbox: they may use all of Lua's libraries (files, processes)."},
      &H::trusted);
  add({"hooks",
       "on_error",
       T::choice,
       "What to do when a hook fails: stop the run, or continue without the hook. A hook that has changed parameters "
       "always stops the run.",
       {"stop", "disable"}},
      &H::on_error);
  add({"hooks", "memory_limit", T::bytes, "Limit on the memory of all hooks of a rank together.", {}, 1 << 20},
      &H::memory_limit);
  add({"hooks", "instruction_limit", T::integer, "Limit on the Lua instructions in one call of a hook.", {}, 1000},
      &H::instruction_limit);
  add({"hooks",
       "time_limit",
       T::number,
       "Limit on the seconds of one call of a hook, without the time that the trainer needs for it.",
       {},
       0,
       {},
       true},
      &H::time_limit);
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
  add_hardware(keys);
  add_optimizer(keys);
  add_train(keys);
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
      {"run", "", "Name, seed and general settings of the run.", ""},
      {"model", "name", "The model.", ""},
      {"data", "", "Training and validation data.", ""},
      {"strategy", "name",
       "How the ranks share the work. The other keys are options of the strategy (runner strategies NAME).", ""},
      {"precision", "mode", "Numeric precision.", ""},
      {"devices", "devices", "Devices, nodes and ranks.", ""},
      {"optimizer", "name", "Optimizer.", ""},
      {"lr_scheduler", "name", "Learning rate schedule.", ""},
      {"train", "", "Length of the training, batch sizes, clipping, validation.", ""},
      {"checkpoint", "", "Checkpoints.", ""},
      {"activation_checkpointing", "mode",
       "Saves memory: chosen blocks do not keep their activations and recompute them in the backward pass.", ""},
      {"selection", "", "How strategy = \"auto\" chooses (see runner recommend).", ""},
      {"hooks", "", "Lua callbacks. [hooks.NAME] contains the options of a hook.", ""},
      {"sweep", "", "Several trials from one recipe.",
       "makes this a sweep file: use `runner sweep run FILE`"},
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
