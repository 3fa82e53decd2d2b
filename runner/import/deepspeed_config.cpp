#include "runner/import/deepspeed_translator.hpp"

#include <algorithm>
#include <map>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Fate = DeepSpeedKey::Fate;

/// The key for a name that Hugging Face, Lightning or a recipe uses.
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

}  // namespace

json integral(json value) {
  to_integer(value);
  return value;
}

Imported DeepSpeedTranslator::all() {
  if (!root_.is_object) {
    refuse(root_, "wrong-type", "a configuration is an object: { ... }");
    return meaning_;
  }
  rename_blocks();
  spell_choices(root_, "");
  walk(root_, "");
  batch();
  clipping();
  precision();
  zero();
  tensor();
  pass_on("pipeline.stages", "strategy.pipeline_parallel_size");
  context();
  loggers();
  optimizer();
  scheduler();
  note_automatic();
  sort_by_place(meaning_.diagnostics);
  return meaning_;
}

Diagnostic& DeepSpeedTranslator::report(const Origin& place, const std::string& code, const std::string& message) {
  meaning_.diagnostics.push_back({.place = place, .code = code, .message = message, .section = "strategy"});
  return meaning_.diagnostics.back();
}

Diagnostic& DeepSpeedTranslator::refuse(const LocatedJson& node, const std::string& code, const std::string& message) {
  return report(node.place, code, message);
}

void DeepSpeedTranslator::note(const LocatedJson& node, const std::string& text) {
  const auto& at = node.key_place;
  auto place = at.kind == Origin::Kind::file ? fmt::format("{}:{}:{}: ", at.file, at.line, at.column) : "";
  meaning_.notes.push_back(place + text);
}

void DeepSpeedTranslator::emit(const std::string& key, const json& value, const LocatedJson& node,
                               const std::string& path, bool is_default) {
  if (is_default && given_(key)) return;
  for (const auto& before : meaning_.values) {
    if (before.key != key || defaults_.contains(key)) continue;
    if (before.value != value) {
      auto& diagnostic = refuse(node, "contradiction",
                                fmt::format("`{}` = {} contradicts `{}` = {}", path, node.plain().dump(), before.path,
                                            before.value.is_null() ? "0" : before.value.dump()));
      diagnostic.other = before.place;
      diagnostic.other_message = fmt::format("`{}` is set here", before.path);
    }
    return;
  }
  if (is_default) defaults_.insert(key);
  bool option = key.starts_with("strategy.");
  meaning_.values.push_back({.key = key, .value = value, .place = option ? node.key_place : node.place, .path = path});
}

const LocatedJson* DeepSpeedTranslator::at(const std::string& path) const {
  const auto* node = present(path);
  return node && (node->is_object || (!node->value.is_null() && node->value != "auto")) ? node : nullptr;
}

const LocatedJson* DeepSpeedTranslator::present(const std::string& path) const {
  const LocatedJson* node = &root_;
  for (const auto& name : split(path, '.')) {
    node = node->find(name);
    if (!node) return nullptr;
  }
  return node;
}

bool DeepSpeedTranslator::says(const std::string& path, const json& value) const {
  const auto* node = at(path);
  return node && node->value == value;
}

std::string DeepSpeedTranslator::type_of(const std::string& block) const {
  const auto* type = at(block + ".type");
  return type && type->value.is_string() ? lower(type->value.get<std::string>()) : "";
}

void DeepSpeedTranslator::rename_blocks() {
  for (auto& [name, child] : root_.members) {
    const auto* key = find_deepspeed_key(name);
    if (!key || key->fate != Fate::block || key->old_name_of.empty()) continue;
    note_old_name(*key, child);
    if (root_.find(key->old_name_of))
      report(child.key_place, "contradiction",
             fmt::format("`{}` and `{}` are the same block: leave one of them out", name, key->old_name_of));
    name = key->old_name_of;
  }
}

void DeepSpeedTranslator::walk(LocatedJson& node, const std::string& path) {
  for (auto& [name, child] : node.members) {
    auto full = path.empty() ? name : path + "." + name;
    const auto* key = find_deepspeed_key(full);
    if (!key)
      unknown(child, path, name);
    else if (child.is_object || !child.value.is_null())
      judge(*key, child);
  }
}

void DeepSpeedTranslator::note_automatic() {
  std::vector<std::string> open;
  const LocatedJson* first = nullptr;
  for (const auto& [key, node] : automatic_) {
    const auto* own = find_key(key->target);
    // The global batch follows from the number of micro-batches, or the number from the global batch.
    auto known_batch = [&](const char* path, const char* target) { return at(path) || given_(target); };
    const bool follows =
        (key->target == "train.global_batch_size" &&
         known_batch("gradient_accumulation_steps", "train.accumulate_grad_batches")) ||
        (key->target == "train.accumulate_grad_batches" && known_batch("train_batch_size", "train.global_batch_size"));
    const bool known = std::any_of(meaning_.values.begin(), meaning_.values.end(), [&](const auto& value) {
      return value.key == key->target && !defaults_.contains(value.key);
    });
    const bool fixed = key->fate == Fate::handled && !key->default_value.is_null();
    if ((!own && !fixed) || follows || known || given_(key->target)) continue;
    if (!first) first = node;
    const auto otherwise = own ? own->get(Recipe()) : json();
    open.push_back(fixed ? fmt::format("`{}` (always {})", key->path, toml_value(key->default_value))
                         : fmt::format("`{}` ({}{})", key->path, key->target,
                                       otherwise.is_null() ? "" : ", otherwise " + toml_value(otherwise)));
  }
  if (first) note(*first, "\"auto\" leaves these values to the recipe: " + join(open, ", "));
}

void DeepSpeedTranslator::names(const DeepSpeedKey& block, const LocatedJson& node) {
  if (block.open) return;
  for (const auto& [name, child] : node.members)
    if (const auto* key = find_deepspeed_key(block.path + "." + name))
      names(*key, child);
    else
      unknown(child, block.path, name);
}

void DeepSpeedTranslator::unknown(const LocatedJson& node, const std::string& block, const std::string& name) {
  std::vector<std::string> here, elsewhere;
  for (const auto& key : deepspeed_keys()) {
    if (key.parent() == block && key.old_name_of.empty()) here.push_back(key.name);
    if (key.name == name && key.old_name_of.empty()) elsewhere.push_back(key.path);
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

void DeepSpeedTranslator::note_old_name(const DeepSpeedKey& key, const LocatedJson& node) {
  note(node, fmt::format("`{}` is an old name for {}", key.name, key.old_name_of));
}

void DeepSpeedTranslator::judge(const DeepSpeedKey& key, LocatedJson& node) {
  if (!key.old_name_of.empty()) note_old_name(key, node);
  bool automatic = node.value == "auto";
  if (automatic) automatic_.emplace_back(&key, &node);
  switch (key.fate) {
    case Fate::recipe:
      if (!automatic) emit(key.target, integral(node.plain()), node, key.path);
      break;
    case Fate::option:
      if (!automatic || follows_from_width(key.target))
        emit("strategy." + key.target, option_value(key, node), node, key.path);
      break;
    case Fate::checked:
      if (!automatic && integral(node.plain()) != key.default_value) {
        auto& diagnostic =
            refuse(node, "refused", fmt::format("`{}` cannot be {}: {}", key.path, node.plain().dump(), key.note));
        diagnostic.allowed = {key.default_value.dump()};
      }
      break;
    case Fate::ignored:
      names(key, node);
      if (!automatic && !switched_off(key, node) &&
          (key.default_value.is_null() || integral(node.plain()) != key.default_value))
        note(node, fmt::format("`{}` is ignored: {}", key.path, key.note));
      break;
    case Fate::refused:
      names(key, node);
      if (!automatic && !switched_off(key, node))
        report(node.key_place, "refused", fmt::format("`{}` is not supported: {}", key.path, key.note));
      break;
    case Fate::block:
      if (!node.is_object)
        refuse(node, "wrong-type", fmt::format("`{}` must be an object, not {}", key.path, node.value.dump()));
      else
        judge_block(key, node);
      break;
    case Fate::handled:
      if (!automatic) check(key, node);
      break;
    case Fate::inner:
      break;
  }
}

void DeepSpeedTranslator::check(const DeepSpeedKey& key, LocatedJson& node) {
  auto value = node.plain();
  if (const auto problem = check_option(key, value)) {
    meaning_.diagnostics.push_back(diagnostic_of(*problem, node.place, "strategy"));
    meaning_.diagnostics.back().suggestion.reset();  // all values are listed: "gpu" does not mean "cpu"
    node = {.is_object = false, .value = nullptr, .place = node.place, .key_place = node.key_place};
  } else if (!node.is_object) {
    node.value = value;
  }
}

json DeepSpeedTranslator::option_value(const DeepSpeedKey& key, const LocatedJson& node) {
  auto value = integral(node.plain());
  return key.target == "communication_data_type" && value == "bfp16" ? json("bf16") : value;
}

bool DeepSpeedTranslator::switched_off(const DeepSpeedKey& key, const LocatedJson& node) {
  if (!node.is_object) return key.fate == Fate::refused && node.value == false;
  const auto* enabled = node.find("enabled");
  return enabled ? enabled->value == false : find_deepspeed_key(key.path + ".enabled") != nullptr;
}

void DeepSpeedTranslator::judge_block(const DeepSpeedKey& key, LocatedJson& node) {
  if (key.path == "scheduler.params" && refused_scheduler(type_of("scheduler"))) return;
  if (in_disabled_block(key, node))
    names(key, node);
  else
    walk(node, key.path);
}

void DeepSpeedTranslator::spell_choices(LocatedJson& node, const std::string& path) {
  for (auto& [name, child] : node.members) {
    const std::string child_path = path.empty() ? name : path + "." + name;
    if (child.is_object) {
      spell_choices(child, child_path);
      continue;
    }
    const auto* key = find_deepspeed_key(child_path);
    if (!key || key->fate != Fate::handled || key->choices.empty()) continue;
    if (auto value = child.plain(); !check_option(*key, value)) child.value = value;
  }
}

bool DeepSpeedTranslator::in_disabled_block(const DeepSpeedKey& key, const LocatedJson& node) {
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

Imported read_deepspeed(const LocatedJson& configuration, const std::function<bool(const std::string&)>& given) {
  return DeepSpeedTranslator(configuration, given).all();
}

json automatic_option(const std::string& option, int64_t dim) {
  if (option == "reduce_bucket_size") return dim * dim;
  if (option == "stage3_prefetch_bucket_size") return dim * dim * 9 / 10;
  if (option == "stage3_param_persistence_threshold") return 10 * dim;
  return nullptr;
}

}  // namespace runner
