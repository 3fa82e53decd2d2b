// The keys of [train], [checkpoint] and [fine_tune]: the steps of the training, and the parameters that they change.
#include "runner/base/metric_names.hpp"
#include "runner/config/key_adder.hpp"
#include "runner/config/model_families.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

using nlohmann::json;

namespace {

/// Values that have another meaning in Lightning's Trainer, with the way to write them here.
auto refused_fraction(const std::string& name, const std::string& here) {
  return [=](const json& value) {
    const bool fraction = value.is_number_float() && value.get<double>() > 0 && value.get<double>() <= 1;
    return fraction ? fmt::format("`{}` cannot be {}: {}", name, value_text(value), here) : "";
  };
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
  const auto fits = [](json& factor) {
    return to_integer(factor) && factor.get<int64_t>() >= 1 && factor.get<int64_t>() < int64_t{1} << 31;
  };
  if (value.is_number()) return fits(value) ? std::nullopt : std::optional(not_it);
  if (!value.is_object() || value.empty()) return not_it;
  for (auto& [epoch, factor] : value.items())
    if (epoch.find_first_not_of("0123456789") != std::string::npos || epoch.size() > 9 || !fits(factor))
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
      .add({.name = "mode", .type = T::choice, .choices = {"auto", "min", "max"}}, &Rule::mode);
  add({.name = "early_stopping", .type = T::table,
       .help = "{ monitor, patience, min_delta, mode }: stop when a validation metric has not improved for `patience` "
               "validations.",
       .wanted = "a table of monitor, patience, min_delta and mode"}, &Recipe::Train::early_stopping, rule);
}

std::vector<std::string> monitors() {
  std::vector<std::string> names = {metric::val_loss, metric::loss};
  names.insert(names.end(), all_validation_metrics().begin(), all_validation_metrics().end());
  return names;
}

}  // namespace

void add_train(std::vector<Key>& keys) {
  Adder add(keys, "train", &Recipe::train);
  using R = Recipe::Train;
  add({.name = "max_steps",
       .help = "Optimizer steps. The first limit that is reached ends the training: max_steps, max_epochs or max_time.",
       .minimum = 1},
      &R::max_steps);
  add({.name = "max_epochs", .type = T::integer, .help = "Passes over the training data.",
       .minimum = 1}, &R::max_epochs);
  add({.name = "max_time",
       .help = "Limit on the training time, for example \"1d12h\" or \"01:12:00:00\"."},
      &R::max_time);
  add({.name = "global_batch_size", .type = T::integer, .help = "Sequences in one optimizer step, over all ranks.",
       .minimum = 1}, &R::global_batch_size);
  add.or_auto({.name = "micro_batch_size",
               .help = "Sequences that a rank processes at a time. Default: the largest divisor up to 8 that fits. "
                       "\"auto\": the largest that fits. In a pipeline both leave 4 micro-batches for each rank of it, if they can.",
               .minimum = 1}, &R::micro_batch_size, Recipe::automatic);
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
  add({.name = "loss", .type = T::choice,
       .help = "What is minimized. cross_entropy: classes and tokens. bce: targets of two values. mse, l1, huber: numbers. "
               "Default: follows from the data.",
       .choices = {"cross_entropy", "bce", "mse", "l1", "huber"},
       .spellings = {{"ce", "cross_entropy"}, {"mae", "l1"}, {"l2", "mse"}, {"binary_cross_entropy", "bce"}}}, &R::loss);
  add({.name = "label_smoothing", .type = T::number,
       .help = "cross_entropy: this share of the target is spread evenly over all classes. Validation does not use it.",
       .minimum = 0, .maximum = 0.999}, &R::label_smoothing);
  add({.name = "huber_delta", .type = T::number,
       .help = "huber: errors above it count linearly.", .minimum = 0, .above_minimum = true}, &R::huber_delta,
      {.needs = {"train.loss", {"huber"}}});
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
  add({.name = "every", .type = T::duration, .help = "Time between checkpoints.", .refuses = [](const json& value) {
         return value.is_number_integer() ? fmt::format("`every` must be a duration such as \"30m\" or \"1d12h\", not {0}; "
                                                        "every_n_steps = {0} counts steps", value.dump()) : "";
       }}, &C::every);
  add({.name = "keep_last", .type = T::integer, .help = "How many of the newest checkpoints to keep. 0: all.",
       .minimum = 0}, &C::keep_last);
  add.or_auto({.name = "save_top_k",
               .help = "Also keep the k best checkpoints. One is written at every validation. \"auto\": 1 if there are validation data and "
                       "a checkpoint takes at most 1 GiB, otherwise 0.",
               .minimum = 0}, &C::save_top_k, std::nullopt);
  add({.name = "keep_every_n_steps", .type = T::integer,
       .help = "Also keep the checkpoints of all steps that are multiples of this.",
       .minimum = 1}, &C::keep_every_n_steps);
  add({.name = "monitor", .type = T::choice,
       .help = "Metric that decides which checkpoints are best: the lowest loss or val_mae, or the highest of the others.",
       .choices = monitors()}, &C::monitor);
  add({.name = "save_at_end", .type = T::boolean,
       .help = "Write a checkpoint at the end of the training."}, &C::save_at_end);
  add({.name = "async", .type = T::boolean, .help = "Write checkpoints in the background."}, &C::async);
  add({.name = "on_error", .type = T::choice,
       .help = "What to do when a checkpoint cannot be written: continue and try again when the next one is "
               "due, or stop the run.", .choices = {"continue", "stop"}}, &C::on_error);
}

void add_fine_tune(std::vector<Key>& keys) {
  Adder add(keys, "fine_tune", &Recipe::fine_tune);
  using F = Recipe::FineTune;
  const Facts lora{.needs = {"fine_tune.method", {"lora", "dora"}}}, freeze{.needs = {"fine_tune.method", {"freeze"}}};
  add({.name = "method", .type = T::choice,
       .help = "full: all parameters are trained. lora: low-rank adapters of matrices are trained. dora: the same, and "
               "the length of each row of the sum is a parameter of its own. freeze: the parameters that `trainable` names are trained.",
       .choices = {"full", "lora", "dora", "freeze"},
       .spellings = {{"LoRA", "lora"}, {"LORA", "lora"}, {"DoRA", "dora"}, {"DORA", "dora"}},
       .refuses = [](const json& value) {
         const bool qlora = value == "qlora" || value == "QLoRA" || value == "QLORA";
         return std::string(qlora ? "QLoRA is method = \"lora\" with fine_tune.quantization = \"nf4\"" : "");
       }}, &F::method);
  add({.name = "rank", .type = T::integer,
       .help = "Rank of the adapters: a matrix [out, in] gets A [rank, in] and B [out, rank].", .minimum = 1}, &F::rank, lora);
  add({.name = "alpha", .type = T::number,
       .help = "The product of B and A is multiplied by alpha / rank.", .minimum = 0, .above_minimum = true}, &F::alpha, lora);
  add({.name = "rslora", .type = T::boolean,
       .help = "The factor is alpha / sqrt(rank) instead (rank-stabilised LoRA)."}, &F::rslora, lora);
  add({.name = "dropout", .type = T::number,
       .help = "Dropout of the adapters' input.", .minimum = 0, .maximum = 0.999}, &F::dropout, lora);
  add({.name = "targets", .type = T::texts,
       .help = "Modules that get adapters: \"all-linear\" for all matrices of layers, names of Hugging Face (\"q_proj\"), our names "
               "(\"attention.wq\"), or globs over either."}, &F::targets, lora);
  add({.name = "modules_to_save", .type = T::texts,
       .help = "Modules that are trained completely, in addition to the adapters: \"lm_head\", \"embed_tokens\". A classifier always is."},
      &F::modules_to_save, lora);
  add({.name = "adapter", .type = T::path,
       .help = "A folder of PEFT (adapter_config.json, adapter_model.safetensors) with the adapter that training starts from."},
      &F::adapter, lora);
  add({.name = "lora_plus_ratio", .type = T::number,
       .help = "The learning rate of B relative to that of A (LoRA+; its paper suggests 16). Default: equal rates.",
       .minimum = 0, .above_minimum = true}, &F::lora_plus_ratio, lora);
  add({.name = "quantization", .type = T::choice,
       .help = "nf4 (QLoRA): the frozen matrices of layers are stored in 4 bits, and computed with in the precision of the run. Not "
               "norms, embeddings and the head.",
       .choices = {"none", "nf4"}, .spellings = {{"NF4", "nf4"}}}, &F::quantization, lora);
  add({.name = "double_quantization", .type = T::boolean,
       .help = "The factors of the 4-bit blocks have 8 bits instead of 32: 0.52 bytes per weight instead of 0.56."},
      &F::double_quantization, {.needs = {"fine_tune.quantization", {"nf4"}}});
  add({.name = "trainable", .type = T::texts,
       .help = "Globs over the names of the parameters that are trained: \"head.*\", \"blocks.11.*\"."}, &F::trainable, freeze);
}

}  // namespace runner::keys
