#include "runner/config/deepspeed_config.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "runner/base/text.hpp"
#include "runner/config/deepspeed_keys.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Fate = DeepSpeedKey::Fate;

/// 2e8 is an integer.
json integral(json value) {
  if (!value.is_number_float()) return value;
  double number = value.get<double>();
  bool whole = number == std::floor(number) && std::abs(number) < 9e15;
  return whole ? json(static_cast<int64_t>(number)) : value;
}

/// What others call a key: Hugging Face, Lightning, and our recipes.
std::optional<std::string> key_called(const std::string& name) {
  static const std::map<std::string, std::string> names = {
      {"learning_rate", "optimizer.params.lr"},
      {"batch_size", "train_batch_size"},
      {"global_batch_size", "train_batch_size"},
      {"micro_batch_size", "train_micro_batch_size_per_gpu"},
      {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
      {"accumulate_grad_batches", "gradient_accumulation_steps"},
      {"gradient_clip_val", "gradient_clipping"},
      {"max_grad_norm", "gradient_clipping"},
      {"warmup_steps", "scheduler.params.warmup_num_steps"},
      {"max_steps", "scheduler.params.total_num_steps"},
      {"zero_stage", "zero_optimization.stage"},
      {"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
      {"offload_param_device", "zero_optimization.offload_param.device"},
  };
  auto found = names.find(name);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

bool follows_from_width(const std::string& option) { return !automatic_option(option, 1).is_null(); }

class Translator {
 public:
  Translator(const LocatedJson& root, const std::function<bool(const std::string&)>& given)
      : root_(root), given_(given) {}

  DeepSpeedMeaning all() {
    if (!root_.is_object) {
      refuse(root_, "wrong-type", "a configuration is an object: { ... }");
      return meaning_;
    }
    walk(root_, "");
    batch();
    clipping();
    precision();
    zero();
    optimizer();
    scheduler();
    auto& found = meaning_.diagnostics;
    std::stable_sort(found.begin(), found.end(), [](const Diagnostic& a, const Diagnostic& b) {
      return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
    });
    return meaning_;
  }

 private:
  // ---- reporting and emitting

  Diagnostic& report(const Origin& place, const std::string& code, const std::string& message) {
    meaning_.diagnostics.push_back({place, code, message, {}, {}, {}, "", "strategy"});
    return meaning_.diagnostics.back();
  }
  Diagnostic& refuse(const LocatedJson& node, const std::string& code, const std::string& message) {
    return report(node.place, code, message);
  }

  void note(const LocatedJson& node, const std::string& text) {
    const auto& at = node.key_place;
    auto place = at.kind == Origin::Kind::file ? fmt::format("{}:{}:{}: ", at.file, at.line, at.column) : "";
    meaning_.notes.push_back(place + text);
  }

  void emit(const std::string& key, const json& value, const LocatedJson& node, const std::string& path,
            bool is_default = false) {
    if (is_default && given_(key)) return;
    for (const auto& before : meaning_.values) {
      if (before.key != key || before.is_default) continue;
      if (before.value != value) {
        auto& diagnostic = refuse(node, "contradiction",
                                  fmt::format("`{}` = {} contradicts `{}` = {}", path, node.plain().dump(), before.path,
                                              before.value.is_null() ? "0" : before.value.dump()));
        diagnostic.other = before.place;
        diagnostic.other_message = fmt::format("`{}` is set here", before.path);
      }
      return;
    }
    bool option = key.starts_with("strategy.");
    meaning_.values.push_back({key, value, option ? node.key_place : node.place, path, is_default});
  }

  /// The value at a path, unless it is absent, null or left to others ("auto").
  const LocatedJson* at(const std::string& path) const {
    const auto* node = present(path);
    return node && (node->is_object || (!node->value.is_null() && node->value != "auto")) ? node : nullptr;
  }
  const LocatedJson* present(const std::string& path) const {
    const LocatedJson* node = &root_;
    for (const auto& name : split(path, '.')) {
      node = node->find(name);
      if (!node) return nullptr;
    }
    return node;
  }
  bool says(const std::string& path, const json& value) const {
    const auto* node = at(path);
    return node && node->value == value;
  }
  std::string type_of(const std::string& block) const {
    const auto* type = at(block + ".type");
    return type && type->value.is_string() ? lower(type->value.get<std::string>()) : "";
  }

  // ---- key by key

  void walk(const LocatedJson& node, const std::string& path) {
    for (const auto& [name, child] : node.members) {
      auto full = path.empty() ? name : path + "." + name;
      const auto* key = find_deepspeed_key(full);
      if (!key)
        unknown(child, path, name);
      else if (child.is_object || !child.value.is_null())
        judge(*key, child);
    }
  }

  /// Inside what is not looked at, names are still checked.
  void names(const DeepSpeedKey& block, const LocatedJson& node) {
    if (block.open) return;
    for (const auto& [name, child] : node.members)
      if (const auto* key = find_deepspeed_key(block.path + "." + name))
        names(*key, child);
      else
        unknown(child, block.path, name);
  }

  void unknown(const LocatedJson& node, const std::string& block, const std::string& name) {
    std::vector<std::string> here, elsewhere;
    for (const auto& key : deepspeed_keys()) {
      if (key.parent() == block && key.old_name_of.empty()) here.push_back(key.name());
      if (key.name() == name && key.old_name_of.empty()) elsewhere.push_back(key.path);
    }
    auto where = block.empty() ? "at the top" : fmt::format("in `{}`", block);
    bool misplaced = !elsewhere.empty() && elsewhere.size() <= 3;
    auto& diagnostic = report(node.key_place, misplaced ? "misplaced-key" : "unknown-key",
                              misplaced ? fmt::format("`{}` does not belong {}", name, where)
                                        : fmt::format("DeepSpeed's configuration has no key `{}` {}", name, where));
    if (misplaced) {
      diagnostic.allowed = elsewhere;
      if (elsewhere.size() == 1) diagnostic.suggestion = elsewhere[0];
    } else {
      diagnostic.suggestion = key_called(name);
      if (!diagnostic.suggestion) diagnostic.suggestion = nearest(name, here);
      if (here.size() <= 16) diagnostic.allowed = here;
    }
  }

  void judge(const DeepSpeedKey& key, const LocatedJson& node) {
    if (!key.old_name_of.empty()) note(node, fmt::format("`{}` is an old name for {}", key.name(), key.old_name_of));
    bool automatic = node.value == "auto";
    switch (key.fate) {
      case Fate::recipe:
        if (!automatic) emit(key.target, integral(node.plain()), node, key.path);
        break;
      case Fate::option:
        if (!automatic || follows_from_width(key.target))
          emit("strategy." + key.target, option_value(key, node), node, key.path);
        break;
      case Fate::checked:
        if (!automatic && integral(node.plain()) != key.works) {
          auto& diagnostic =
              refuse(node, "refused", fmt::format("`{}` cannot be {}: {}", key.path, node.plain().dump(), key.reason));
          diagnostic.allowed = {key.works.dump()};
        }
        break;
      case Fate::ignored:
        names(key, node);
        if (!automatic && !switched_off(key, node) && (key.works.is_null() || integral(node.plain()) != key.works))
          note(node, fmt::format("`{}` is ignored: {}", key.path, key.reason));
        break;
      case Fate::refused:
        names(key, node);
        if (!automatic && !switched_off(key, node))
          report(node.key_place, "refused", fmt::format("`{}` is not to be had: {}", key.path, key.reason));
        break;
      case Fate::block:
        if (!node.is_object)
          refuse(node, "wrong-type", fmt::format("`{}` must be an object, not {}", key.path, node.value.dump()));
        else
          judge_block(key, node);
        break;
      case Fate::handled:
      case Fate::inner:
        break;
    }
  }

  static json option_value(const DeepSpeedKey& key, const LocatedJson& node) {
    auto value = integral(node.plain());
    return key.target == "communication_data_type" && value == "bfp16" ? json("bf16") : value;
  }

  static bool switched_off(const DeepSpeedKey& key, const LocatedJson& node) {
    if (!node.is_object) return key.fate == Fate::refused && node.value == false;
    const auto* enabled = node.find("enabled");
    return enabled ? enabled->value == false : find_deepspeed_key(key.path + ".enabled") != nullptr;
  }

  void judge_block(const DeepSpeedKey& key, const LocatedJson& node) {
    if (key.path == "scheduler.params" && refused_scheduler(type_of("scheduler"))) return;
    if (asleep(key, node))
      names(key, node);
    else
      walk(node, key.path);
  }

  /// Blocks whose keys mean nothing because of another key.
  bool asleep(const DeepSpeedKey& key, const LocatedJson& node) {
    if (key.path.ends_with(".offload_optimizer") || key.path.ends_with(".offload_param")) {
      const auto* device = at(key.path + ".device");
      return !device || device->value == "none";
    }
    if (key.path == "aio" && !says("zero_optimization.offload_optimizer.device", "nvme") &&
        !says("zero_optimization.offload_param.device", "nvme")) {
      note(node, "`aio` is ignored: nothing is offloaded to NVMe");
      return true;
    }
    if (key.path == "optimizer.params" && refused_optimizer(type_of("optimizer"))) return true;
    if (key.path == "timers.throughput") return false;
    return switched_off(key, node);
  }

  // ---- keys that mean something together

  void batch() {
    const auto* global = at("train_batch_size");
    const auto* micro = at("train_micro_batch_size_per_gpu");
    const auto* steps = at("gradient_accumulation_steps");
    if (global) emit("train.global_batch_size", integral(global->plain()), *global, "train_batch_size");
    if (micro) emit("train.micro_batch_size", integral(micro->plain()), *micro, "train_micro_batch_size_per_gpu");
    bool whole = global || given_("train.global_batch_size");
    const char* factor = whole ? "strategy.gradient_accumulation_steps" : "train.accumulate_grad_batches";
    if (steps) emit(factor, integral(steps->plain()), *steps, "gradient_accumulation_steps");
    if (global && micro && steps) product(*global, *micro, *steps);
    // With one of the three alone DeepSpeed does not accumulate.
    bool left_open = present("gradient_accumulation_steps") || given_("train.accumulate_grad_batches");
    if (left_open || whole == bool(micro)) return;
    if (global && !present("train_micro_batch_size_per_gpu") && !given_("train.micro_batch_size"))
      emit(factor, 1, *global, "train_batch_size", true);
    if (micro && !present("train_batch_size")) emit(factor, 1, *micro, "train_micro_batch_size_per_gpu", true);
  }

  void product(const LocatedJson& global, const LocatedJson& micro, const LocatedJson& steps) {
    auto a = integral(global.value), b = integral(micro.value), c = integral(steps.value);
    if (!a.is_number_integer() || !b.is_number_integer() || !c.is_number_integer()) return;
    auto each = b.get<int64_t>() * c.get<int64_t>();
    if (each <= 0 || a.get<int64_t>() % each == 0) return;
    auto& diagnostic = refuse(
        global, "contradiction",
        fmt::format("train_batch_size = {} is no multiple of micro-batch x accumulation = {} x {}, whatever the ranks",
                    a.dump(), b.dump(), c.dump()));
    diagnostic.other = micro.place;
    diagnostic.other_message = "the micro-batch is set here";
  }

  void clipping() {
    const auto* node = at("gradient_clipping");
    if (!node) return;
    bool none = node->value.is_number() && node->value.get<double>() == 0;
    emit("train.gradient_clip_val", none ? json() : node->plain(), *node, "gradient_clipping");
  }

  void precision() {
    const auto *fp16 = present("fp16.enabled"), *bf16 = present("bf16.enabled");
    for (const auto* node : {fp16, bf16})
      if (node && !node->value.is_boolean() && node->value != "auto" && !node->value.is_null())
        refuse(*node, "wrong-type", fmt::format("`enabled` must be true or false, not {}", node->plain().dump()));
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
           "train.on_nonfinite says whether the run stops or passes over them");
  }

  void zero() {
    const auto* stage = at("zero_optimization.stage");
    if (stage && integral(stage->plain()) == 0)
      refuse(*stage, "refused", "stage 0 shards nothing; that is strategy.name = \"ddp\", without a configuration")
          .allowed = {"1", "2", "3"};
    else if (stage)
      emit("strategy.stage", integral(stage->plain()), *stage, "zero_optimization.stage");
    const auto* group = at("zero_optimization.mics_shard_size");
    if (group && integral(group->plain()) != -1)
      emit("strategy.mics_shard_size", integral(group->plain()), *group, "zero_optimization.mics_shard_size");
    offload("offload_optimizer", "offload_optimizer", "offload_optimizer_device", "cpu_offload");
    offload("offload_param", "offload_parameters", "offload_params_device", "cpu_offload_param");
  }

  void offload(const std::string& block, const std::string& option, const std::string& device_option,
               const std::string& old_name) {
    auto path = "zero_optimization." + block + ".device";
    if (const auto* device = at(path); device && device->value != "none") {
      if (device->value != "cpu" && device->value != "nvme") {
        auto& diagnostic = refuse(*device, "not-allowed", fmt::format("`device` cannot be {}", device->plain().dump()));
        diagnostic.allowed = {"none", "cpu", "nvme"};
        return;
      }
      emit("strategy." + option, true, *device, path);
      emit("strategy." + device_option, device->value, *device, path);
    }
    const auto* old = at("zero_optimization." + old_name);
    if (!old || old->value == false) return;
    emit("strategy." + option, old->plain(), *old, "zero_optimization." + old_name);
    emit("strategy." + device_option, "cpu", *old, "zero_optimization." + old_name);
  }

  // ---- optimizer and schedule

  void optimizer() {
    const auto* block = present("optimizer");
    if (!block || !block->is_object) return;
    const auto* type = at("optimizer.type");
    if (!type || !type->value.is_string()) {
      report(block->key_place, "missing-key", "`optimizer` needs a type: \"AdamW\", \"Adam\" or \"SGD\"");
      return;
    }
    auto name = type_of("optimizer"), written = type->value.get<std::string>();
    if (auto reason = refused_optimizer(name)) {
      refuse(*type, "refused", fmt::format("the optimizer \"{}\" is not to be had: {}", written, *reason));
    } else if (name == "adam" || name == "adamw") {
      bool decoupled = name == "adamw" || !says("optimizer.params.adam_w_mode", false);
      emit("optimizer.name", decoupled ? "adamw" : "adam", *type, "optimizer.type");
      parameters(written,
                 {"lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode", "bias_correction", "amsgrad"});
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
      diagnostic.allowed = {"AdamW", "Adam", "SGD"};
      diagnostic.suggestion = nearest(written, diagnostic.allowed);
    }
  }

  /// Known parameters that are another optimizer's.
  void parameters(const std::string& type, const std::vector<std::string>& its) {
    const auto* params = at("optimizer.params");
    if (!params) return;
    for (const auto& [name, node] : params->members) {
      const auto* key = find_deepspeed_key("optimizer.params." + name);
      if (!key || key->fate == Fate::refused || std::find(its.begin(), its.end(), name) != its.end()) continue;
      auto& diagnostic =
          report(node.key_place, "misplaced-key", fmt::format("`{}` is no parameter of \"{}\"", name, type));
      diagnostic.allowed = its;
    }
  }

  /// DeepSpeed's optimizers do not decay weights unless told to.
  void decay(const LocatedJson& type) {
    const auto* node = at("optimizer.params.weight_decay");
    if (!node) {
      if (!present("optimizer.params.weight_decay")) emit("optimizer.weight_decay", 0.0, type, "optimizer.type", true);
      return;
    }
    emit("optimizer.weight_decay", node->plain(), *node, "optimizer.params.weight_decay");
    bool decays = node->value.is_number() && node->value.get<double>() > 0;
    if (decays && !given_("optimizer.decay_norms_and_biases"))
      note(*node,
           "`weight_decay` holds for matrices; with optimizer.decay_norms_and_biases = true for norms and biases, too");
  }

  void scheduler() {
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
      refuse(*type, "refused", fmt::format("the schedule \"{}\" is not to be had: {}", written, *reason));
    } else if (name == "warmuplr" || name == "warmupdecaylr" || name == "warmupcosinelr") {
      warmup(*type, written);
      if (name == "warmuplr") emit("lr_scheduler.name", "constant", *type, "scheduler.type");
      if (name == "warmupdecaylr") decay_to_zero(*type);
      if (name == "warmupcosinelr") cosine(*type);
    } else {
      auto& diagnostic = refuse(*type, "not-allowed", fmt::format("the schedule cannot be \"{}\"", written));
      diagnostic.allowed = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
      diagnostic.suggestion = nearest(written, diagnostic.allowed);
    }
  }

  void warmup(const LocatedJson& type, const std::string& written) {
    const std::string params = "scheduler.params.";
    const auto* curve = present(params + "warmup_type");
    if (!curve)
      refuse(type, "refused",
             fmt::format("\"{}\" warms up along a logarithm unless told otherwise; warm-up here is "
                         "linear: write \"warmup_type\": \"linear\" in its params",
                         written));
    else if (curve->value != "linear" && curve->value != "auto")
      refuse(*curve, "refused",
             fmt::format("`warmup_type` cannot be {}: warm-up here is linear", curve->plain().dump()))
          .allowed = {"\"linear\""};
    if (const auto* low = at(params + "warmup_min_lr"); low && !(low->value.is_number() && low->value == 0))
      refuse(*low, "refused",
             fmt::format("`warmup_min_lr` cannot be {}: warm-up here begins at 0", low->plain().dump()))
          .allowed = {"0"};
    if (const auto* high = at(params + "warmup_max_lr"))
      emit("optimizer.lr", integral(high->plain()), *high, params + "warmup_max_lr");
    if (const auto* steps = at(params + "warmup_num_steps"))
      emit("lr_scheduler.warmup_steps", integral(steps->plain()), *steps, params + "warmup_num_steps");
    else if (!present(params + "warmup_num_steps"))
      emit("lr_scheduler.warmup_steps", 1000, type, "scheduler.type", true);
    if (const auto* last = at(params + "last_batch_iteration"); last && last->value != -1)
      refuse(*last, "refused", "`last_batch_iteration` cannot be set: `runner resume` knows the step").allowed = {"-1"};
  }

  void total(const LocatedJson& type) {
    const std::string path = "scheduler.params.total_num_steps";
    if (const auto* steps = at(path))
      emit("train.max_steps", integral(steps->plain()), *steps, path);
    else if (!present(path) && !given_("train.max_steps"))
      refuse(type, "missing-key", "the schedule needs its end: `total_num_steps` in its params, or train.max_steps");
  }

  void decay_to_zero(const LocatedJson& type) {
    emit("lr_scheduler.name", "linear", type, "scheduler.type");
    emit("lr_scheduler.min_lr_ratio", 0.0, type, "scheduler.type");
    total(type);
  }

  void cosine(const LocatedJson& type) {
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

  const LocatedJson& root_;
  const std::function<bool(const std::string&)>& given_;
  DeepSpeedMeaning meaning_;
};

}  // namespace

DeepSpeedMeaning read_deepspeed(const LocatedJson& configuration,
                                const std::function<bool(const std::string&)>& given) {
  return Translator(configuration, given).all();
}

json automatic_option(const std::string& option, int64_t dim) {
  if (option == "reduce_bucket_size") return dim * dim;
  if (option == "stage3_prefetch_bucket_size") return dim * dim * 9 / 10;
  if (option == "stage3_param_persistence_threshold") return 10 * dim;
  return nullptr;
}

}  // namespace runner
