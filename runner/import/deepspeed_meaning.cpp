// Translates keys of DeepSpeed's configuration that depend on each other: batch sizes, precision, offloading, optimizer, schedule.
#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/import/deepspeed_translator.hpp"
#include "strategies/mesh/mesh.hpp"

namespace runner {

using nlohmann::json;
using Fate = DeepSpeedKey::Fate;

bool DeepSpeedTranslator::pass_on(const std::string& path, const std::string& key, const json& off) {
  const auto* node = at(path);
  const json value = node ? integral(node->plain()) : json();
  if (!node || value == off) return false;
  emit(key, value, *node, path);
  return true;
}

void DeepSpeedTranslator::batch() {
  const auto* global = at("train_batch_size");
  const auto* micro = at("train_micro_batch_size_per_gpu");
  const auto* steps = at("gradient_accumulation_steps");
  pass_on("train_batch_size", "train.global_batch_size");
  pass_on("train_micro_batch_size_per_gpu", "train.micro_batch_size");
  bool whole = global || given_("train.global_batch_size");
  const char* factor = whole ? "strategy.gradient_accumulation_steps" : "train.accumulate_grad_batches";
  pass_on("gradient_accumulation_steps", factor);
  if (global && micro && steps) product(*global, *micro, *steps);
  // If only one of the three is set, DeepSpeed does not accumulate.
  bool left_open = present("gradient_accumulation_steps") || given_("train.accumulate_grad_batches");
  if (left_open || whole == bool(micro)) return;
  if (global && !present("train_micro_batch_size_per_gpu") && !given_("train.micro_batch_size"))
    emit(factor, 1, *global, "train_batch_size", true);
  if (micro && !present("train_batch_size")) emit(factor, 1, *micro, "train_micro_batch_size_per_gpu", true);
}

void DeepSpeedTranslator::product(const LocatedJson& global, const LocatedJson& micro, const LocatedJson& steps) {
  auto a = integral(global.value), b = integral(micro.value), c = integral(steps.value);
  if (!a.is_number_integer() || !b.is_number_integer() || !c.is_number_integer()) return;
  auto whole = a.get<int64_t>(), each = b.get<int64_t>(), times = c.get<int64_t>();
  if (each <= 0 || times <= 0 || (whole % each == 0 && whole / each % times == 0)) return;
  auto& diagnostic = refuse(
      global, "contradiction",
      fmt::format(
          "train_batch_size = {} is not a multiple of micro-batch x accumulation = {} x {}, for any number of ranks",
          a.dump(), b.dump(), c.dump()));
  diagnostic.other = micro.place;
  diagnostic.other_message = "the micro-batch is set here";
}

void DeepSpeedTranslator::clipping() {
  const auto* node = at("gradient_clipping");
  if (!node) return;
  bool none = node->value.is_number() && node->value.get<double>() == 0;
  emit("train.gradient_clip_val", none ? json() : node->plain(), *node, "gradient_clipping");
}

void DeepSpeedTranslator::precision() {
  const auto *fp16 = present("fp16.enabled"), *bf16 = present("bf16.enabled");
  bool half = fp16 && fp16->value == true, brain = bf16 && bf16->value == true;
  if (half && brain) {
    auto& diagnostic = refuse(*bf16, "contradiction", "fp16 and bf16 are both enabled");
    diagnostic.other = fp16->place;
    diagnostic.other_message = "fp16 is enabled here";
  } else if (half) {
    emit("precision.mode", "16-mixed", *fp16, "fp16.enabled");
  } else if (brain) {
    emit("precision.mode", "bf16-mixed", *bf16, "bf16.enabled");
  } else if (!(fp16 && fp16->value == "auto") && !(bf16 && bf16->value == "auto")) {
    const auto* said = fp16 ? fp16 : bf16;
    emit("precision.mode", "32-true", said ? *said : root_, fp16 ? "fp16.enabled" : "bf16.enabled", !said);
  }
  const auto* overflow = at("bf16.check_grad_overflow");
  if (!overflow || !brain) return;
  if (overflow->value == true)
    emit("train.on_nonfinite", "skip", *overflow, "bf16.check_grad_overflow");
  else
    note(*overflow,
         "`bf16.check_grad_overflow` is ignored: gradients that are not finite are always found; "
         "train.on_nonfinite determines whether the run stops or skips the step");
}

void DeepSpeedTranslator::zero() {
  const auto* stage = at("zero_optimization.stage");
  const json number = stage ? integral(stage->plain()) : json();
  const bool wrong = number.is_number() && number != 1 && number != 2 && number != 3;  // the option checks other types
  if (stage && number == 0)
    refuse(*stage, "refused", "stage 0 shards nothing; that is strategy.name = \"ddp\", without a configuration")
        .allowed = {"1", "2", "3"};
  else if (wrong)
    refuse(*stage, "not-allowed", fmt::format("`stage` cannot be {}", number.dump())).allowed = {"1", "2", "3"};
  else if (stage)
    emit("strategy.stage", number, *stage, "zero_optimization.stage");
  pass_on("zero_optimization.mics_shard_size", "strategy.mics_shard_size", -1);
  offload("offload_optimizer", "offload_optimizer", "offload_optimizer_device", "cpu_offload");
  offload("offload_param", "offload_parameters", "offload_params_device", "cpu_offload_param");
}

void DeepSpeedTranslator::tensor() {
  for (const char* path : {"tensor_parallel.autotp_size", "tensor_parallel.tp.tp_size"})
    pass_on(path, "strategy.tensor_parallel_size", 0);
}

/// DeepSpeed's sequence parallelism is Ulysses.
void DeepSpeedTranslator::context() {
  constexpr const char* path = "sequence_parallel_size";
  if (pass_on(path, "strategy.context_parallel_size", 1))
    emit("strategy.context_parallel", name_of(ContextForm::ulysses), *at(path), path);
}

void DeepSpeedTranslator::loggers() {
  constexpr std::pair<const char*, const char*> monitors[] = {
      {"tensorboard", "tensorboard"}, {"csv_monitor", "csv"}, {"wandb", "wandb"}};
  json names = json::array();
  const LocatedJson* last = nullptr;
  std::string path;
  for (const auto& [block, logger] : monitors) {
    const auto* node = at(block);
    if (!node || !node->is_object || switched_off(*find_deepspeed_key(block), *node)) continue;
    if (given_("logging.loggers")) {
      note(*node,
           fmt::format("`{}` is ignored: the recipe sets logging.loggers, which can have \"{}\"", block, logger));
      continue;
    }
    names.push_back(logger);
    last = node;
    path = block;
  }
  if (!last) return;
  emit("logging.loggers", names, *last, path, true);
  if (path != "wandb") return;
  for (const char* name : {"wandb.group", "wandb.team", "wandb.project"})
    if (const auto* node = at(name)) emit(find_deepspeed_key(name)->target, node->plain(), *node, name, true);
}

void DeepSpeedTranslator::offload(const std::string& block, const std::string& option, const std::string& device_option,
                                  const std::string& old_name) {
  auto path = "zero_optimization." + block + ".device";
  if (const auto* device = at(path); device && device->value != "none") {
    emit("strategy." + option, true, *device, path);
    emit("strategy." + device_option, device->value, *device, path);
  }
  const auto* old = at("zero_optimization." + old_name);
  if (!old || old->value == false) return;
  emit("strategy." + option, old->plain(), *old, "zero_optimization." + old_name);
  emit("strategy." + device_option, "cpu", *old, "zero_optimization." + old_name);
}

void DeepSpeedTranslator::optimizer() {
  const auto* block = present("optimizer");
  if (!block || !block->is_object) return;
  const auto* type = at("optimizer.type");
  if (!type || !type->value.is_string()) {
    report(block->key_place, "missing-key", "`optimizer` needs a type: \"AdamW\", \"Adam\" or \"SGD\"");
    return;
  }
  auto name = type_of("optimizer"), written = type->value.get<std::string>();
  if (auto reason = refused_optimizer(name)) {
    refuse(*type, "refused", fmt::format("the optimizer \"{}\" is not supported: {}", written, *reason));
  } else if (name == "adam" || name == "adamw") {
    bool decoupled = name == "adamw" || !says("optimizer.params.adam_w_mode", false);
    emit("optimizer.name", decoupled ? "adamw" : "adam", *type, "optimizer.type");
    parameters(written,
               {"lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode", "bias_correction", "amsgrad"});
    decay(*type);
  } else if (name == "lion") {
    emit("optimizer.name", "lion", *type, "optimizer.type");
    parameters(written, {"lr", "betas", "weight_decay"});
    decay(*type);
  } else if (name == "sgd") {
    emit("optimizer.name", "sgd", *type, "optimizer.type");
    parameters(written, {"lr", "momentum", "nesterov", "weight_decay"});
    for (const char* param : {"momentum", "nesterov"})
      if (const auto* node = at(std::string("optimizer.params.") + param))
        emit(std::string("optimizer.") + param, node->plain(), *node, std::string("optimizer.params.") + param);
    decay(*type);
  } else {
    auto& diagnostic = refuse(*type, "not-allowed", fmt::format("the optimizer cannot be \"{}\"", written));
    diagnostic.allowed = {"AdamW", "Adam", "SGD", "Lion"};
    diagnostic.suggestion = nearest(written, diagnostic.allowed);
  }
}

void DeepSpeedTranslator::parameters(const std::string& type, const std::vector<std::string>& its) {
  const auto* params = at("optimizer.params");
  if (!params) return;
  for (const auto& [name, node] : params->members) {
    const auto* key = find_deepspeed_key("optimizer.params." + name);
    if (!key || key->fate == Fate::refused || std::find(its.begin(), its.end(), name) != its.end()) continue;
    auto& diagnostic =
        report(node.key_place, "misplaced-key", fmt::format("`{}` is not a parameter of \"{}\"", name, type));
    diagnostic.allowed = its;
  }
}

void DeepSpeedTranslator::decay(const LocatedJson& type) {
  const auto* node = at("optimizer.params.weight_decay");
  if (!node) {
    if (!present("optimizer.params.weight_decay")) emit("optimizer.weight_decay", 0.0, type, "optimizer.type", true);
    return;
  }
  emit("optimizer.weight_decay", node->plain(), *node, "optimizer.params.weight_decay");
  bool decays = node->value.is_number() && node->value.get<double>() > 0;
  if (decays && !given_("optimizer.decay_norms_and_biases"))
    note(*node,
         "`weight_decay` applies to matrices only; with optimizer.decay_norms_and_biases = true also to norms and "
         "biases");
}

void DeepSpeedTranslator::scheduler() {
  const auto* block = present("scheduler");
  if (!block || !block->is_object) return;
  const auto* type = at("scheduler.type");
  if (!type || !type->value.is_string()) {
    report(block->key_place, "missing-key",
           "`scheduler` needs a type: \"WarmupLR\", \"WarmupDecayLR\" or \"WarmupCosineLR\"");
    return;
  }
  auto name = type_of("scheduler"), written = type->value.get<std::string>();
  if (auto reason = refused_scheduler(name)) {
    refuse(*type, "refused", fmt::format("the schedule \"{}\" is not supported: {}", written, *reason));
  } else if (name == "warmuplr" || name == "warmupdecaylr" || name == "warmupcosinelr") {
    warmup(*type);
    if (name == "warmuplr") emit("lr_scheduler.name", "constant", *type, "scheduler.type");
    if (name == "warmupdecaylr") decay_to_zero(*type);
    if (name == "warmupcosinelr") cosine(*type);
  } else {
    auto& diagnostic = refuse(*type, "not-allowed", fmt::format("the schedule cannot be \"{}\"", written));
    diagnostic.allowed = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
    diagnostic.suggestion = nearest(written, diagnostic.allowed);
  }
}

void DeepSpeedTranslator::peak_rate(const LocatedJson& type) {
  const std::string path = "scheduler.params.warmup_max_lr", name = type_of("scheduler");
  const auto *peak = at(path), *rate = at("optimizer.params.lr");
  // Without it, WarmupLR warms up to the optimizer's rate, but WarmupDecayLR to 0.001 (DeepSpeed, lr_schedules.py).
  const bool by_default = !present(path) && name == "warmupdecaylr" && !given_("optimizer.lr");
  if (!peak && !by_default) return;
  const auto value = peak ? integral(peak->plain()) : nlohmann::json(1e-3);
  const bool replaced =
      rate && name != "warmupcosinelr" && integral(rate->plain()) != value &&
      std::erase_if(meaning_.values, [](const auto& given) { return given.key == "optimizer.lr"; }) > 0;
  if (replaced)
    note(*rate, fmt::format("`optimizer.params.lr` = {} has no effect: the schedule sets the learning rate, up to {}",
                            rate->plain().dump(),
                            peak ? fmt::format("`warmup_max_lr` = {}", peak->plain().dump())
                                 : "0.001, DeepSpeed's default of `warmup_max_lr`"));
  if (peak)
    emit("optimizer.lr", value, *peak, path);
  else
    emit("optimizer.lr", value, type, "scheduler.type", true);
}

void DeepSpeedTranslator::warmup(const LocatedJson& type) {
  const std::string params = "scheduler.params.";
  const auto *curve = at(params + "warmup_type"), *length = at(params + "warmup_num_steps");
  bool warms_up = !(length && length->value == 0);  // otherwise the curve has no effect
  if (curve && warms_up)
    emit("lr_scheduler.warmup", curve->value, *curve, params + "warmup_type");
  else if (!present(params + "warmup_type") && warms_up)
    emit("lr_scheduler.warmup", "log", type, "scheduler.type", true);
  if (const auto* low = at(params + "warmup_min_lr"); low && !(low->value.is_number() && low->value == 0))
    refuse(*low, "refused", fmt::format("`warmup_min_lr` cannot be {}: warm-up here begins at 0", low->plain().dump()))
        .allowed = {"0"};
  peak_rate(type);
  if (!pass_on(params + "warmup_num_steps", "lr_scheduler.warmup_steps") && !present(params + "warmup_num_steps"))
    emit("lr_scheduler.warmup_steps", 1000, type, "scheduler.type", true);
  if (const auto* last = at(params + "last_batch_iteration"); last && last->value != -1)
    refuse(*last, "refused", "`last_batch_iteration` cannot be set: `runner resume` knows the step").allowed = {"-1"};
}

void DeepSpeedTranslator::total(const LocatedJson& type) {
  const std::string path = "scheduler.params.total_num_steps";
  if (!pass_on(path, "train.max_steps") && !present(path) && !given_("train.max_steps"))
    refuse(type, "missing-key", "the schedule needs its end: `total_num_steps` in its params, or train.max_steps");
}

void DeepSpeedTranslator::decay_to_zero(const LocatedJson& type) {
  emit("lr_scheduler.name", "linear", type, "scheduler.type");
  emit("lr_scheduler.min_lr_ratio", 0.0, type, "scheduler.type");
  total(type);
}

void DeepSpeedTranslator::cosine(const LocatedJson& type) {
  emit("lr_scheduler.name", "cosine", type, "scheduler.type");
  total(type);
  const std::string begin = "scheduler.params.warmup_min_ratio", end = "scheduler.params.cos_min_ratio";
  if (const auto* low = at(begin); low && !(low->value.is_number() && low->value == 0))
    refuse(*low, "refused",
           fmt::format("`warmup_min_ratio` cannot be {}: warm-up here begins at 0", low->plain().dump()))
        .allowed = {"0"};
  if (const auto* ratio = at(end))
    emit("lr_scheduler.min_lr_ratio", ratio->plain(), *ratio, end);
  else if (!present(end))
    emit("lr_scheduler.min_lr_ratio", 1e-4, type, "scheduler.type", true);
}

}  // namespace runner
