#include "runner/config/configuration_layer.hpp"

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/value_check.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// Whether a recipe's value means the same as that of the configuration.
bool same(const Located& located, const ImportedValue& value) {
  auto given = located.value;
  if (const Key* key = find_key(value.key))
    if (auto converted = given; !check_value(*key, converted)) given = converted;
  if (given.is_object() && given.size() == 1 && given.contains("0")) given = given["0"];
  return given == value.value;
}

std::string shown(const json& value) { return value.is_null() ? "unset" : toml_value(value); }

/// Moves the values of `layer` that are of a level above `level` to the result.
Layer take_above(int level, Layer& layer) {
  Layer above;
  for (auto at = layer.begin(); at != layer.end();) {
    const auto here = at++;
    if (here->second.level > level) above.insert(layer.extract(here));
  }
  return above;
}

/// Of global batch, micro-batch and accumulation, one follows from the others. Removes from `values` those that would contradict
/// a batch size in `upper`.
void give_way(Layer& values, const Layer& upper) {
  const std::string global = "train.global_batch_size", steps = "train.accumulate_grad_batches";
  const auto sets = [&](const std::string& key) {
    const auto found = upper.find(key);
    return found != upper.end() && !found->second.value.is_null();
  };
  if (sets(global)) values.erase(steps);
  if (sets(steps)) values.erase(global);
  if (sets(global) || sets(steps) || sets("train.micro_batch_size"))
    values.erase("strategy.gradient_accumulation_steps");
}

}  // namespace

Diagnostic& ConfigurationLayer::report(const Origin& place, const std::string& code, const std::string& message) {
  diagnostics_.push_back({.place = place, .code = code, .message = message, .section = "strategy"});
  return diagnostics_.back();
}

void ConfigurationLayer::apply(Layer& layer, bool options) {
  const auto found = layer.find("strategy.config"), name = layer.find("strategy.name");
  if (found == layer.end() || found->second.value.is_null() || name == layer.end()) return;
  if (!importer_ || !name->second.value.is_string() || !importer_->takes(name->second.value)) return;
  const Located config = found->second;
  found->second.value = nullptr;
  if (options) configured_at_ = config.origin;
  const auto tree = read(config);
  if (!tree) return;
  const auto value_of = [&](const std::string& key) -> const Located* {
    const auto value = layer.find(key);
    return value != layer.end() && !value->second.value.is_null() ? &value->second : nullptr;
  };
  auto meaning = importer_->read(*tree, [&](const std::string& key) { return value_of(key) != nullptr; });
  diagnostics_.insert(diagnostics_.end(), meaning.diagnostics.begin(), meaning.diagnostics.end());
  notes_.insert(notes_.end(), meaning.notes.begin(), meaning.notes.end());

  const fs::path folder = config.tree ? config.folder : (config.folder / config.value.get<std::string>()).parent_path();
  Layer values;
  std::vector<std::string> replaced;
  for (const auto& value : meaning.values) {
    if (!options && value.key.starts_with("strategy.")) continue;
    const auto* given = value_of(value.key);
    if (given && given->level == config.level && given->value != "auto") {
      if (!same(*given, value)) contradict(*given, value);
      continue;
    }
    values[value.key] = {.value = value.value, .origin = value.place, .folder = folder, .level = config.level};
    if (given && given->level < config.level && !same(*given, value))
      replaced.push_back(fmt::format("{} = {} instead of {} ({})", value.key, shown(value.value), shown(given->value),
                                     place_of(given->origin)));
  }
  if (!replaced.empty())
    notes_.push_back(fmt::format("the configuration ({}) replaces values of the recipe: {}", place_of(config.origin),
                                 join(replaced, "; ")));
  const Layer upper = take_above(config.level, layer);
  give_way(values, upper);
  Layer own = take_above(config.level - 1, layer);
  for (const auto& [key, located] : values) own[key] = located;
  merge(layer, own);
  merge(layer, upper);
}

void ConfigurationLayer::contradict(const Located& given, const ImportedValue& value) {
  auto& diagnostic =
      report(given.origin, "contradiction",
             fmt::format("{} = {} contradicts the configuration, where `{}` {}", value.key, toml_value(given.value),
                         value.path, value.value.is_null() ? "is off" : "means " + toml_value(value.value)));
  diagnostic.other = value.place;
  diagnostic.other_message = "the configuration sets it here";
}

std::optional<LocatedJson> ConfigurationLayer::read(const Located& config) {
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
  if (fs::is_regular_file(path)) try {
      return parse_located_json(read_file(path), shown.string());
    } catch (const RecipeError& error) {
      diagnostics_.insert(diagnostics_.end(), error.diagnostics().begin(), error.diagnostics().end());
      return std::nullopt;
    }
  std::vector<std::string> beside;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), ignored))
    if (entry.path().extension() == ".json") beside.push_back(entry.path().filename().string());
  report(config.origin, "missing-file", fmt::format("there is no file {}", shown.string())).suggestion =
      nearest(path.filename().string(), beside);
  return std::nullopt;
}

void ConfigurationLayer::complete(Recipe& recipe) {
  recipe.notes = notes_;
  if (!importer_ || !importer_->takes(recipe.strategy.name)) return;
  importer_->complete(recipe, diagnostics_.empty() ? configured_at_ : std::nullopt, diagnostics_);
}

}  // namespace runner
