// Values of an imported recipe that depend on others, and the checks of all.
#include <algorithm>
#include <cmath>
#include <map>

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/import/tool_translator.hpp"

namespace runner {

using nlohmann::json;

void ToolTranslator::keep_newest() {
  if (tool_.tool != "lightning" || value_of("checkpoint.monitor")) return;
  for (auto& value : meaning_.values)
    if (value.key == "checkpoint.save_top_k" && value.value != 0) value.key = "checkpoint.keep_last";
}

json ToolTranslator::value_now(const std::string& key) const {
  const auto value = value_of(key);
  const Key* known = find_key(key);
  return value ? value->value : known ? known->default_value : json();
}

json ToolTranslator::number_now(const std::string& key) const {
  const json value = value_now(key);
  return value.is_number() && is_countable(value.get<double>()) ? value : json();
}

const ToolDefault* ToolTranslator::default_for(const std::string& key) const {
  const auto has = [&](const std::string& name) { return !given(name).is_null(); };
  const auto found = std::ranges::find_if(tool_.defaults, [&](const ToolDefault& one) {
    return one.key == key && (one.with.empty() || std::ranges::any_of(one.with, has)) &&
           std::ranges::none_of(one.unless, has) &&
           std::ranges::all_of(one.when, [&](const auto& other) { return value_now(other.first) == other.second; });
  });
  return found == tool_.defaults.end() ? nullptr : &*found;
}

void ToolTranslator::add_defaults(const std::string& begin) {
  for (const auto& row : tool_.defaults) {
    if (!row.key.starts_with(begin) || value_of(row.key) || answered_.contains(row.key) || unset_.contains(row.key) ||
        default_for(row.key) != &row)
      continue;
    json value = row.value;
    const json steps = number_now("train.max_steps"), warmup = number_now("lr_scheduler.warmup_steps");
    const json half = row.twice.empty() ? json() : number_now(row.twice);
    if (half.is_number()) value = 2 * half.get<double>();
    if (value == "rest")
      value = steps.is_null() || warmup.is_null()
                  ? json()
                  : json(std::max<int64_t>(1, steps.get<int64_t>() - warmup.get<int64_t>()));
    if (row.share > 0 && steps.is_null()) {
      meaning_.notes.push_back(fmt::format("{} is {} x steps and at most {} by default of {}: set it here", row.key,
                                           row.share, value.dump(), tool_.title));
      continue;
    }
    if (row.share > 0) value = std::min(value.get<int64_t>(), static_cast<int64_t>(row.share * steps.get<double>()));
    if (row.key == "lr_scheduler.warmup_steps" && steps.is_number() && value > steps) value = steps;
    const Key* known = find_key(row.key);
    if (value.is_null() || (half.is_number() && known && value == known->default_value)) continue;
    meaning_.values.push_back({.key = row.key,
                               .value = value,
                               .place = {},
                               .path = row.key,
                               .comment = fmt::format("the default of {}", tool_.title)});
  }
}

void ToolTranslator::set_data_axes() {
  if (!shard_.node && !replicate_.node) return;
  answered_.insert("strategy.name");
  const int64_t shards = shard_.node ? shard_.ranks : tool_.tool == "torchtitan" ? -1 : 1, copies = replicate_.ranks;
  const auto& [ranks, node, path] = shard_.node ? shard_ : replicate_;
  if (shards == 1 && copies <= 1) return;
  set("strategy.name", shards == 1 ? "ddp" : "fsdp", *node, path);
  json mesh = json::object();
  if (copies > 1) mesh["replicate"] = copies;
  if (shards > 1) mesh["shard"] = shards;
  if (shards < 0 && copies > 1) {
    set("strategy.sharding_strategy", "HYBRID_SHARD", *node, path);
    note(*replicate_.node, replicate_.path,
         fmt::format("the groups of HYBRID_SHARD are nodes; for {0} groups, whatever the nodes, set devices.mesh = "
                     "{{ replicate = {0}, shard = RANKS / {0} }}",
                     copies));
  } else if (!mesh.empty()) {
    set("devices.mesh", mesh, *node, path);
  }
}

void ToolTranslator::count_steps_of_validations() {
  const auto every = value_of("train.val_check_interval");
  const json batches = value_now("train.accumulate_grad_batches");
  if (tool_.tool != "lightning" || !every || batches.is_null() || batches == 1) return;
  const bool fits = every->value.is_number_integer() && batches.is_number_integer() && batches > 0 &&
                    every->value.get<int64_t>() % batches.get<int64_t>() == 0;
  for (auto& value : meaning_.values)
    if (fits && value.key == every->key) value.value = every->value.get<int64_t>() / batches.get<int64_t>();
  if (fits) return;
  note_at(every->place, every->path,
          fmt::format("not translated: it counts batches, and train.val_check_interval counts optimizer steps: {} / {}",
                      toml_value(every->value), shortened_text(toml_value(batches))));
  unset_.insert(every->key);
}

void ToolTranslator::count_shares() {
  const json steps = number_now("train.max_steps"), epochs = number_now("train.max_epochs");
  for (const auto& [row, node, path] : shares_) {
    if (node->value == 0 || row->name.meaning(node->value)) continue;
    const double number = node->value.is_number() ? node->value.get<double>() : 0;
    const bool often = row->as == NameConversion::per_epoch;
    const double part = often ? 1 / (number * (epochs.is_null() ? 1 : epochs.get<double>())) : number;
    const double share = steps.is_null() ? 0 : part * steps.get<double>();
    if (!(share > 0) || !is_countable(share)) {
      refuse(row->name, *node, path);
      continue;
    }
    const double count = row->as == NameConversion::decay ? std::round(share)
                         : tool_.tool == "axolotl" && row->as == NameConversion::steps
                             ? std::trunc(share)
                             : std::ceil(share);  // each as its tool does
    set(row->name.key, static_cast<int64_t>(count), *node, path);
    if (row->as == NameConversion::decay) set("lr_scheduler.name", "wsd", *node, path);
  }
}

void ToolTranslator::complete() {
  set_data_axes();
  count_steps_of_validations();
  keep_newest();
  add_defaults("train.max_");
  count_shares();
  add_defaults("");
  const auto steps = value_of("train.max_steps"), epochs = value_of("train.max_epochs");
  // Only wsd has a type of decay. In torchtitan's files, it is the name of the schedule without a share.
  if (value_now("lr_scheduler.name") != "wsd") unset_.insert("lr_scheduler.decay_type");
  if (epochs && steps && tool_.tool != "lightning") {
    note_at(epochs->place, epochs->path, fmt::format("no effect beside `{}`, which counts steps", steps->path));
    unset_.insert("train.max_epochs");
  }
  if (tool_.tool != "lightning")
    for (auto& value : meaning_.values)
      if (value.key == "train.early_stopping") value.value["monitor"] = value_now("checkpoint.monitor");
  // In axolotl's files, the name of a project switches wandb on. Hugging Face's `project` is for Trackio, too.
  const auto project = value_of("logging.wandb_project"), loggers = value_of("logging.loggers");
  const json to = loggers ? loggers->value : json::array();
  if (project && !loggers && tool_.tool == "axolotl") {
    meaning_.values.push_back(
        {.key = "logging.loggers", .value = json::array({"wandb"}), .place = project->place, .path = project->path});
  } else if (project && std::find(to.begin(), to.end(), "wandb") == to.end()) {
    note_at(project->place, project->path, "no effect: no logger is wandb");
    unset_.insert("logging.wandb_project");
  }
  std::erase_if(meaning_.values, [&](const auto& value) { return unset_.contains(value.key); });
  const auto name = std::ranges::find(meaning_.values, "strategy.name", &ImportedValue::key);
  if (name != meaning_.values.end()) std::rotate(meaning_.values.begin(), name, name + 1);
}

void ToolTranslator::check(const RecipeCheck& of_strategy) {
  Recipe recipe;
  std::map<std::string, std::string> wrong;
  for (auto& [key, value, place, path, comment] : meaning_.values) {
    const Key* known = find_key(key);
    recipe.origins[key] = {.file = key};  // the place of its mistakes
    if (!known && (key != "strategy.config" || !deepspeed_importer().takes(recipe.strategy.name)))
      recipe.strategy.options[key.substr(key.find('.') + 1)] = value;
    if (!known) continue;
    const bool whole = value.is_number_float() && value == std::floor(value.get<double>()) && is_countable(value);
    if (whole && known->type == Option::Type::integer) value = static_cast<int64_t>(value.get<double>());
    const json shown = value;
    const auto* row = tool_.find(path);
    if (const auto mistake = check_value(*known, value))
      wrong[key] = fmt::format("{} = {}: {}{}", key, toml_value(shown), mistake->message,
                               row && !row->name.refusal.empty() ? "; " + row->name.refusal : "");
    else
      known->set(recipe, value);
  }
  std::vector<Diagnostic> mistakes;
  if (of_strategy) of_strategy(recipe, mistakes);
  for (const auto& mistake : mistakes) wrong.emplace(mistake.place.file, mistake.message);
  std::erase_if(meaning_.values, [&](const ImportedValue& value) {
    if (wrong.contains("strategy.name") && !find_key(value.key)) wrong[value.key] = "its strategy is not translated";
    const auto found = wrong.find(value.key);
    if (found != wrong.end()) note_at(value.place, value.path, "not translated: " + found->second);
    return found != wrong.end();
  });
}

void ToolTranslator::find_missing() {
  const auto family = value_of("model.name");
  std::vector<std::string> missing;
  for (const auto& key : key_table()) {
    const bool asked = key.family.empty() || (family && key.in_family(family->value));
    if (key.required && asked && key.section != "sweep" && !value_of(key.dotted())) missing.push_back(key.dotted());
  }
  if (!value_of("train.max_steps") && !value_of("train.max_epochs"))
    missing.push_back("train.max_steps or train.max_epochs");
  meaning_.notes.push_back(fmt::format("what is not set here has the default of recipes, not that of {}", tool_.title));
  if (!missing.empty())
    meaning_.notes.push_back(
        fmt::format("a recipe also needs {}; `runner init --from-hf FOLDER` writes [model]", join(missing, ", ")));
}

}  // namespace runner
