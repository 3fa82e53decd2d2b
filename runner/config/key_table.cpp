#include "runner/config/key_table.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/key_adder.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/config/model_families.hpp"

namespace runner {

const std::vector<Key>& key_table() {
  static const std::vector<Key> table = [] {
    std::vector<Key> list;
    for (auto add : {keys::add_run, keys::add_model, keys::add_decoder, keys::add_data, keys::add_fine_tune,
                     keys::add_strategy, keys::add_precision, keys::add_devices, keys::add_optimizer,
                     keys::add_lr_scheduler, keys::add_train, keys::add_checkpoint, keys::add_logging, keys::add_health,
                     keys::add_activation_checkpointing, keys::add_selection, keys::add_hooks, keys::add_plugins})
      add(list);
    const Recipe defaults;
    for (auto& key : list) key.default_value = key.get(defaults);
    return list;
  }();
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

bool Need::met_by(const nlohmann::json& value) const {
  if (key.empty()) return true;
  return values.empty() ? value.is_null() != set : std::find(values.begin(), values.end(), value) != values.end();
}

bool Key::in_family(const std::string& name) const {
  const auto kinds = split(family, ' ');
  return family.empty() || std::find(kinds.begin(), kinds.end(), family_kind(name)) != kinds.end();
}

std::string Key::family_text() const {
  std::vector<std::string> texts;
  std::string kinds = family;
  if (kinds.starts_with(language_models)) {
    texts.emplace_back("language models");
    kinds.erase(0, std::string(language_models).size() + 1);  // and the space
    if (kinds.empty()) return texts[0];
  }
  for (const auto& kind : split(kinds, ' '))
    texts.push_back(kind == "decoder" ? "models with rotary positions such as llama" : kind + " models");
  return join_or(texts);
}

bool Key::needs_met(const Recipe& recipe) const {
  return needs.key.empty() || needs.met_by(find_key(needs.key)->get(recipe));
}

std::string Key::needs_text() const {
  std::vector<std::string> quoted;
  for (const auto& value : needs.values) quoted.push_back("\"" + value + "\"");
  if (!quoted.empty()) return needs.key + " = " + join_or(quoted);
  return fmt::format("recipes {} {}", needs.set ? "with" : "without", needs.key);
}

const std::vector<Section>& sections() {
  static const std::vector<Section> list = {
      {.name = "run", .help = "Name, seed and general settings of the run."},
      {.name = "model", .main_key = "name", .help = "The model."},
      {.name = "data", .help = "Training and validation data."},
      {.name = "fine_tune",
       .main_key = "method",
       .help = "Which parameters are trained. Without it all are, except model.frozen."},
      {.name = "strategy",
       .main_key = "name",
       .help = "How the ranks share the work. The other keys are options of the strategy (runner strategies NAME)."},
      {.name = "precision", .main_key = "mode", .help = "Numeric precision."},
      {.name = "devices", .main_key = "devices", .help = "Devices, nodes and ranks."},
      {.name = "optimizer", .main_key = "name", .help = "Optimizer."},
      {.name = "lr_scheduler", .main_key = "name", .help = "Learning rate schedule."},
      {.name = "train", .help = "Length of the training, batch sizes, clipping, validation."},
      {.name = "checkpoint", .help = "Checkpoints."},
      {.name = "logging",
       .main_key = "loggers",
       .help = "Where metrics go in addition to the ledger, and whom to tell how the run ended."},
      {.name = "health", .help = "What is recorded as a sign of trouble: loss spikes and stalls."},
      {.name = "activation_checkpointing",
       .main_key = "mode",
       .help = "Saves memory: chosen layers do not keep their activations and recompute them in the backward pass."},
      {.name = "selection", .help = "How strategy = \"auto\" chooses (see runner recommend)."},
      {.name = "hooks", .help = "Lua callbacks. [hooks.NAME] contains the options of a hook."},
      {.name = "plugins", .help = "Libraries and scripts that replace parts of the runner."},
      {.name = "sweep",
       .help = "Several trials from one recipe.",
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

Diagnostic diagnostic_of(const OptionProblem& problem, const Origin& place, const std::string& section) {
  return {.place = place,
          .code = problem.code,
          .message = problem.message,
          .allowed = problem.allowed,
          .suggestion = problem.suggestion,
          .section = section};
}

std::optional<Diagnostic> check_value(const Key& key, nlohmann::json& value) {
  const auto problem = check_option(key, value);
  if (!problem) return std::nullopt;
  auto diagnostic = diagnostic_of(*problem, {}, key.section);
  const auto* foreign = problem->unknown_field.empty() ? nullptr : find_foreign_name(problem->unknown_field);
  const std::string meant = foreign ? foreign->key.substr(foreign->key.rfind('.') + 1) : "";
  if (std::ranges::find(diagnostic.allowed, meant) != diagnostic.allowed.end()) {
    diagnostic.suggestion = meant;
  } else if (foreign && !foreign->refusal.empty()) {
    diagnostic.message += ": " + foreign->refusal;
    diagnostic.suggestion.reset();
  }
  if (const auto axis = key.dotted() == "devices.mesh" ? axis_called(problem->unknown_field) : std::nullopt)
    diagnostic.suggestion = axis;
  return diagnostic;
}

}  // namespace runner
