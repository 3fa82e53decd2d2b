#include "runner/config/configuration_layer.hpp"

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// Whether a recipe's value means the same as that of the configuration.
bool same(const Located& located, const ImportedValue& value) {
  auto given = located.value;
  if (value.key == "precision.mode") {
    const auto& spellings = find_key(value.key)->spellings;
    auto spelling = spellings.find(given.is_string() ? given.get<std::string>() : given.dump());
    if (spelling != spellings.end()) given = spelling->second;
  }
  if (given.is_object() && given.size() == 1 && given.contains("0")) given = given["0"];
  return given == value.value;
}

std::string shown(const json& value) { return value.is_null() ? "unset" : toml_value(value); }

}  // namespace

Diagnostic& ConfigurationLayers::report(const Origin& place, const std::string& code, const std::string& message) {
  diagnostics_.push_back({.place = place, .code = code, .message = message, .section = "strategy"});
  return diagnostics_.back();
}

void ConfigurationLayers::add(Layer& own, const Layer& below) {
  auto found = own.find("strategy.config");
  const bool anew = own.contains("strategy.name"), replaced_strategy = replaces_strategy(own, below);
  if (found == own.end() || (!anew && !below.contains("strategy.name"))) return;
  const Located name = anew ? own.at("strategy.name") : below.at("strategy.name");
  if (!importer_ || !name.value.is_string() || !importer_->takes(name.value)) return;
  Located config = found->second;
  found->second = {nullptr, config.origin, config.folder, nullptr, true};
  configured_at_ = config.origin;
  notes_.clear();
  const auto tree = read(config);
  if (!tree) return;
  auto given = [&](const std::string& key) {
    auto lower = below.find(key);
    bool stays = lower != below.end() && (!lower->second.from_configuration || lower->second.replaced) &&
                 !(replaced_strategy && key.starts_with("strategy."));
    return own.contains(key) || stays;
  };
  auto meaning = importer_->read(*tree, given);
  diagnostics_.insert(diagnostics_.end(), meaning.diagnostics.begin(), meaning.diagnostics.end());
  notes_.insert(notes_.end(), meaning.notes.begin(), meaning.notes.end());
  const fs::path folder = config.tree ? config.folder : (config.folder / config.value.get<std::string>()).parent_path();
  std::vector<std::string> replaced;
  for (const auto& value : meaning.values) {
    auto lower = below.find(value.key);
    bool dropped = replaced_strategy && value.key.starts_with("strategy.");
    if (lower != below.end() && !dropped && !own.contains(value.key) && !lower->second.from_configuration &&
        !lower->second.value.is_null() && !same(lower->second, value))
      replaced.push_back(fmt::format("{} = {} instead of {} ({})", value.key, shown(value.value),
                                     shown(lower->second.value), place_of(lower->second.origin)));
    add_value(own, value, folder);
  }
  if (!replaced.empty())
    notes_.push_back(fmt::format("the configuration ({}) replaces values of the recipe: {}", place_of(config.origin),
                                 join(replaced, "; ")));
}

std::optional<LocatedJson> ConfigurationLayers::read(const Located& config) {
  if (config.tree) return *config.tree;
  if (!config.value.is_string()) {
    report(config.origin, "wrong-type",
           fmt::format("`config` must be a {} configuration: a file or a table", importer_->tool()));
    return std::nullopt;
  }
  auto path = fs::path(config.value.get<std::string>());
  bool in_file = config.origin.kind == Origin::Kind::file;
  auto shown = (in_file ? fs::path(config.origin.file).parent_path() / path : path).lexically_normal();
  path = config.folder / path;
  if (fs::is_regular_file(path)) return parse_located_json(read_file(path), shown.string());
  std::vector<std::string> beside;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), ignored))
    if (entry.path().extension() == ".json") beside.push_back(entry.path().filename().string());
  report(config.origin, "missing-file", fmt::format("there is no file {}", shown.string())).suggestion =
      nearest(path.filename().string(), beside);
  return std::nullopt;
}

void ConfigurationLayers::add_value(Layer& own, const ImportedValue& value, const fs::path& folder) {
  auto found = own.find(value.key);
  if (found == own.end() || found->second.value == "auto") {
    own[value.key] = {value.value, value.place, folder, nullptr, true};
    return;
  }
  if (same(found->second, value)) return;
  bool unset = value.value.is_null();
  auto& diagnostic = report(
      found->second.origin, "contradiction",
      fmt::format("{} = {} contradicts the configuration, where `{}` {}", value.key, toml_value(found->second.value),
                  value.path, unset ? "is off" : "means " + toml_value(value.value)));
  diagnostic.other = value.place;
  diagnostic.other_message = "the configuration sets it here";
}

void ConfigurationLayers::remove_replaced(Layer& lower, const Layer& upper) {
  const std::string global = "train.global_batch_size", steps = "train.accumulate_grad_batches",
                    option = "strategy.gradient_accumulation_steps";
  if (auto config = upper.find("strategy.config"); config != upper.end() && config->second.from_configuration)
    for (auto at = lower.begin(); at != lower.end();) {
      auto here = at++;
      if (!here->second.from_configuration) continue;
      if (auto replaced = here->second.replaced)
        here->second = *replaced;
      else
        lower.erase(here);
    }
  auto drop = [&](const std::string& key) {
    auto found = lower.find(key);
    if (found != lower.end() && found->second.from_configuration) lower.erase(found);
  };
  if (upper.contains(global)) drop(steps);
  if (upper.contains(steps)) drop(global);
  if (upper.contains(global) || upper.contains(steps) || upper.contains("train.micro_batch_size")) drop(option);
}

Located ConfigurationLayers::over(const Located* lower, Located upper) {
  if (!upper.from_configuration || !lower) return upper;
  upper.replaced = lower->from_configuration ? lower->replaced : std::make_shared<Located>(*lower);
  return upper;
}

void ConfigurationLayers::forget() {
  configured_at_.reset();
  notes_.clear();
}

void ConfigurationLayers::complete(Recipe& recipe) {
  recipe.notes = notes_;
  if (!importer_ || !importer_->takes(recipe.strategy.name)) return;
  importer_->complete(recipe, diagnostics_.empty() ? configured_at_ : std::nullopt, diagnostics_);
}

}  // namespace runner
