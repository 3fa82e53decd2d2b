// Prints a DeepSpeed configuration as sections of a recipe, and a recipe as a DeepSpeed configuration.
#include <algorithm>
#include <array>
#include <map>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/importer.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/import/deepspeed_keys.hpp"
#include "strategies/mesh/mesh.hpp"

namespace runner {

namespace {

using Ordered = nlohmann::ordered_json;

/// Puts `value` at a dotted path.
void put(Ordered& object, const std::string& path, const nlohmann::json& value) {
  Ordered* at = &object;
  for (const auto& name : split(path, '.')) at = &(*at)[name];
  *at = value;
}

[[noreturn]] void not_expressible(const std::string& what) {
  throw usage_error("DeepSpeed's configuration cannot express {}", what);
}

void put_batch(Ordered& out, const Recipe& recipe, const nlohmann::json& options) {
  const auto& train = recipe.train;
  const auto& steps = train.accumulate_grad_batches;
  if (steps && steps->size() > 1) not_expressible("an accumulation that changes with the epoch");
  if (train.global_batch_size) put(out, "train_batch_size", *train.global_batch_size);
  if (train.micro_batch_size)
    put(out, "train_micro_batch_size_per_gpu",
        train.micro_batch_size == Recipe::automatic ? nlohmann::json("auto") : nlohmann::json(*train.micro_batch_size));
  auto option = options.find("gradient_accumulation_steps");
  if (steps)
    put(out, "gradient_accumulation_steps", steps->begin()->second);
  else if (option != options.end() && !option->is_null())
    put(out, "gradient_accumulation_steps", *option);
  if (train.gradient_clip_val && train.gradient_clip_algorithm != "norm") not_expressible("clipping by value");
  put(out, "gradient_clipping", train.gradient_clip_val.value_or(0.0));
  put(out, "steps_per_print", train.print_every_n_steps);
}

void put_precision(Ordered& out, const Recipe& recipe) {
  const auto& mode = recipe.precision.mode;
  if (recipe.plugins.precision) not_expressible("plugins.precision");
  if (recipe.plugins.accelerator) not_expressible("plugins.accelerator");
  if (mode == "auto") {
    put(out, "fp16.enabled", "auto");
    put(out, "bf16.enabled", "auto");
  } else if (mode == "16-mixed" || mode == "bf16-mixed" || mode == "32-true") {
    put(out, "fp16.enabled", mode == "16-mixed");
    put(out, "bf16.enabled", mode == "bf16-mixed");
  } else {
    not_expressible("precision.mode = \"" + mode + "\"");
  }
  if (mode == "bf16-mixed" && recipe.train.on_nonfinite == "skip") put(out, "bf16.check_grad_overflow", true);
}

void put_optimizer(Ordered& out, const Recipe& recipe) {
  const auto& optimizer = recipe.optimizer;
  if (!optimizer.groups.empty()) not_expressible("[[optimizer.groups]]");
  if (optimizer.layer_decay != 1) not_expressible("optimizer.layer_decay");
  if (optimizer.decay_norms_and_biases && optimizer.weight_decay > 0)
    not_expressible("weight decay of norms and biases (optimizer.decay_norms_and_biases)");
  static const std::map<std::string, const char*> types = {
      {"adamw", "AdamW"}, {"adam", "Adam"}, {"sgd", "SGD"}, {"lion", "Lion"}};
  const auto type = types.find(optimizer.name);
  if (type == types.end()) not_expressible("optimizer.name = \"" + optimizer.name + "\"");
  const bool lion = optimizer.name == "lion";
  put(out, "optimizer.type", type->second);
  put(out, "optimizer.params.lr", optimizer.lr);
  if (optimizer.name != "sgd") {
    put(out, "optimizer.params.betas", optimizer.betas);
    if (!lion) put(out, "optimizer.params.eps", optimizer.eps);
  } else {
    put(out, "optimizer.params.momentum", optimizer.momentum);
    put(out, "optimizer.params.nesterov", optimizer.nesterov);
  }
  put(out, "optimizer.params.weight_decay", optimizer.weight_decay);
  if (optimizer.name == "adam") put(out, "optimizer.params.adam_w_mode", false);
}

void put_scheduler(Ordered& out, const Recipe& recipe) {
  const auto& schedule = recipe.lr_scheduler;
  bool linear = schedule.name == "linear", cosine = schedule.name == "cosine";
  if (!linear && !cosine && schedule.name != "constant") not_expressible("the schedule \"" + schedule.name + "\"");
  if (linear && schedule.min_lr_ratio != 0) not_expressible("a linear schedule that does not end at 0 (min_lr_ratio)");
  if (schedule.name == "constant" && schedule.warmup_steps == 0) return;
  put(out, "scheduler.type", linear ? "WarmupDecayLR" : cosine ? "WarmupCosineLR" : "WarmupLR");
  auto params = [&](const char* name, const nlohmann::json& value) {
    put(out, std::string("scheduler.params.") + name, value);
  };
  params("warmup_type", schedule.warmup);
  params("warmup_num_steps", schedule.warmup_steps);
  if (!cosine) params("warmup_min_lr", 0);
  if (!cosine) params("warmup_max_lr", recipe.optimizer.lr);
  if (cosine) params("cos_min_ratio", schedule.min_lr_ratio);
  if (linear || cosine)
    params("total_num_steps",
           recipe.train.max_steps ? nlohmann::json(*recipe.train.max_steps) : nlohmann::json("auto"));
}

/// Without `device`, the other keys of an offloading block have no effect.
void put_offload(Ordered& out, const nlohmann::json& options) {
  for (auto [block, option, device] : {std::array{"offload_optimizer", "offload_optimizer", "offload_optimizer_device"},
                                       {"offload_param", "offload_parameters", "offload_params_device"}})
    if (options.value(option, false))
      put(out, std::string("zero_optimization.") + block + ".device",
          options.contains(device) && options[device].is_string() ? options[device] : nlohmann::json("cpu"));
}

bool inside(const Ordered& out, const std::string& block) {
  const Ordered* at = &out;
  for (const auto& name : split(block, '.')) {
    if (!at->contains(name)) return false;
    at = &(*at)[name];
  }
  return true;
}

void put_options(Ordered& out, const nlohmann::json& options) {
  bool nvme =
      options.value("offload_optimizer_device", "") == "nvme" || options.value("offload_params_device", "") == "nvme";
  for (const auto& key : deepspeed_keys()) {
    bool named = key.fate == DeepSpeedKey::Fate::option || key.path == "zero_optimization.mics_shard_size";
    if (!named || !key.old_name_of.empty() || !options.contains(key.target) || options[key.target].is_null()) continue;
    if (key.parent().find(".offload_") != std::string::npos && !inside(out, key.parent())) continue;
    if (key.parent() == "aio" && !nvme) continue;
    if (key.parent() == "fp16" && out["fp16"]["enabled"] == false) continue;
    put(out, key.path, options[key.target]);
  }
}

/// Adds the mistakes in the values that only a recipe with them shows.
void check_values(Imported& meaning, const RecipeCheck& check) {
  Recipe recipe;
  recipe.strategy.name = "zero";
  for (const auto& [key, given, place, path, comment] : meaning.values) {
    auto value = given;
    recipe.origins[key] = place;
    const Key* of_recipe = find_key(key);
    if (!of_recipe && key.starts_with("strategy.") && value != "auto")
      recipe.strategy.options[key.substr(key.find('.') + 1)] = value;
    auto mistake = of_recipe && !value.is_null() ? check_value(*of_recipe, value) : std::nullopt;
    if (!mistake) continue;
    mistake->place = place;
    meaning.diagnostics.push_back(*mistake);
  }
  if (check) check(recipe, meaning.diagnostics);
  sort_by_place(meaning.diagnostics);
}

}  // namespace

std::string deepspeed_as_recipe(const LocatedJson& configuration, const RecipeCheck& check) {
  auto meaning = read_deepspeed(configuration, [](const std::string&) { return false; });
  check_values(meaning, check);
  if (!meaning.diagnostics.empty()) throw RecipeError(meaning.diagnostics);
  auto& values = meaning.values;
  const auto stage = std::ranges::find(values, "strategy.stage", &ImportedValue::key);
  if (stage != values.end())
    std::rotate(values.begin(), stage, stage + 1);
  else
    meaning.notes.emplace_back(
        "zero_optimization.stage is not set: DeepSpeed then shards nothing, as strategy.name = \"ddp\" does; here zero "
        "shards as in stage 2, with the same losses");
  values.insert(values.begin(), ImportedValue{"strategy.name", "zero", {}, ""});
  return as_sections(meaning);
}

std::string recipe_as_deepspeed(const Recipe& recipe, const nlohmann::json& options) {
  Ordered out = Ordered::object();
  put_batch(out, recipe, options);
  put_precision(out, recipe);
  put_optimizer(out, recipe);
  put_scheduler(out, recipe);
  put(out, "zero_optimization.stage", options.value("stage", nlohmann::json(2)));
  put_offload(out, options);
  put_options(out, options);
  if (const auto ranks = given_mesh(recipe).tensor.value_or(1); ranks > 1)
    put(out, "tensor_parallel.autotp_size", ranks);
  if (const auto ranks = given_mesh(recipe).pipeline.value_or(1); ranks > 1) put(out, "pipeline.stages", ranks);
  const bool ulysses = recipe.strategy.context_parallel == name_of(ContextForm::ulysses);
  if (const auto ranks = given_mesh(recipe).context.value_or(1); ranks > 1 && ulysses)
    put(out, "sequence_parallel_size", ranks);
  return out.dump(2) + "\n";
}

}  // namespace runner
