#include "runner/config/layer.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/device_request.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// The name of the strategy in lower case; "auto" if the layer names none.
std::string strategy_of(const Layer& layer) {
  const auto name = layer.find("strategy.name");
  return name != layer.end() && name->second.value.is_string() ? lower(name->second.value.get<std::string>()) : "auto";
}

bool sets_count(const Located& devices) {
  std::string why;
  auto request = devices.origin.kind == Origin::Kind::set ? parse_devices(devices.value, why) : std::nullopt;
  return request && request->kind == DeviceRequest::Kind::count && request->count > 0;
}

void merge(LocatedJson& tree, const LocatedJson& again) {
  for (const auto& [name, value] : again.members) {
    auto found = std::ranges::find(tree.members, name, [](const auto& member) { return member.first; });
    if (found == tree.members.end())
      tree.members.emplace_back(name, value);
    else if (found->second.is_object && value.is_object)
      merge(found->second, value);
    else
      found->second = value;
  }
}

/// A value of a key as programs read it: the default instead of null, and the choice instead of another spelling.
json meaning_of(const std::string& dotted, const nlohmann::json& given) {
  const Key* key = find_key(dotted);
  if (!key) return given;
  json value = given.is_null() ? key->default_value : given, converted = value;
  return value.is_null() || check_value(*key, converted) ? value : converted;
}

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

const std::string global_batch = "train.global_batch_size", accumulation = "train.accumulate_grad_batches",
                  factor = "strategy.gradient_accumulation_steps";

/// Removes what the layers above have unset from the values of a configuration, and what needs another value of an unset key than
/// its default. `has_global_batch`: a layer of the recipe sets it.
void leave_out(const std::set<std::string>& unset, Layer& values, bool has_global_batch) {
  const auto is_unset = [&](const std::string& key) {
    return std::ranges::any_of(unset, [&](const auto& name) { return key == name || key.starts_with(name + "."); });
  };
  // The factor divides a global batch. Without one, the recipe counts micro-batches by another key.
  const bool counts = is_unset(global_batch) && !has_global_batch && !is_unset(factor);
  if (auto count = counts ? values.extract(factor) : Layer::node_type(); !count.empty()) {
    count.key() = accumulation;
    values.insert(std::move(count));
  }
  Layer defaults;
  for (const auto& [key, located] : values)
    if (is_unset(key)) defaults[key] = {};
  merge(values, defaults);
  for (const auto& [key, located] : defaults) values.erase(key);
}

/// Removes from `values` the keys that would contradict a batch size in `upper`: of global batch, micro-batch and accumulation, one follows
/// from the others.
void give_way(Layer& values, const Layer& upper) {
  const auto sets = [&](const std::string& key) {
    const auto found = upper.find(key);
    return found != upper.end() && !found->second.value.is_null();
  };
  if (sets(global_batch)) values.erase(accumulation);
  if (sets(accumulation)) values.erase(global_batch);
  if (sets(global_batch) || sets(accumulation) || sets("train.micro_batch_size")) values.erase(factor);
}

/// Merges `values` over the values of `layer` up to their level, and under those above it.
void put_between(Layer& layer, Layer values, int level) {
  const Layer upper = take_above(level, layer);
  give_way(values, upper);
  Layer own = take_above(level - 1, layer);
  for (const auto& [key, located] : values) own[key] = located;
  merge(layer, own);
  merge(layer, upper);
}

}  // namespace

bool replaces_strategy(const Layer& upper, const Layer& lower) {
  return upper.contains("strategy.name") && strategy_of(upper) != strategy_of(lower);
}

std::string drop_strategy(Layer& lower, const Layer& upper) {
  if (!replaces_strategy(upper, lower)) return "";
  const std::string old = strategy_of(lower);
  std::vector<std::string> dropped;
  std::erase_if(lower, [&](const auto& item) {
    const auto& [key, located] = item;
    const bool option = key.starts_with("strategy.") || located.of_strategy;
    if (!option || key == "strategy.registry") return false;  // the registry defines the names; it remains
    const bool of_every_strategy = key.starts_with("strategy.") && key != "strategy.name" && find_key(key);
    if (of_every_strategy) return false;
    const std::string place = place_of(located.origin);
    if (key == "strategy.config" && located.value.is_null())
      dropped.push_back(fmt::format("{} ({}; its values outside [strategy] remain)", key, place));
    else if (key != "strategy.name" && !located.value.is_null())
      dropped.push_back(fmt::format("{} ({})", key, place));
    return true;
  });
  if (dropped.empty()) return "";
  return fmt::format("the strategy \"{}\" replaces \"{}\", so these have no effect: {}", strategy_of(upper), old,
                     join(dropped, ", "));
}

void merge(Layer& lower, const Layer& upper) {
  for (const auto& key : key_table()) {
    auto decides = upper.find(key.needs.key);
    if (decides != upper.end() && !key.needs.met_by(meaning_of(key.needs.key, decides->second.value)))
      lower.erase(key.dotted());
  }
  if (auto devices = upper.find("devices.devices"); devices != upper.end() && sets_count(devices->second))
    lower.erase("devices.cpu_processes");
  for (const auto& [key, located] : upper) {
    auto found = lower.find(key);
    if (found != lower.end() && located.part && located.value.is_object() && found->second.value.is_object() &&
        !located.tree) {
      found->second.value.update(located.value);
      found->second.origin = located.origin;
      found->second.level = located.level;
    } else {
      lower[key] = located;
    }
  }
}

void set_again(Located& located, Located again) {
  if (!again.part || !located.value.is_object() || !again.value.is_object()) {
    located = std::move(again);
    return;
  }
  located.value.update(again.value, /*merge_objects=*/true);
  if (located.tree && again.tree) merge(*located.tree, *again.tree);
}

Diagnostic& ConfigurationLayer::report(const Origin& place, const std::string& code, const std::string& message) {
  diagnostics_.push_back({.place = place, .code = code, .message = message, .section = "strategy"});
  return diagnostics_.back();
}

bool ConfigurationLayer::named_in(const Layer& layer) const {
  const auto config = layer.find("strategy.config"), name = layer.find("strategy.name");
  if (config == layer.end() || config->second.value.is_null() || name == layer.end()) return false;
  return importer_ && name->second.value.is_string() && importer_->takes(name->second.value);
}

void ConfigurationLayer::apply(Layer& layer, bool options) {
  if (!named_in(layer)) return;
  Located& named = layer["strategy.config"];
  const Located config = named;
  named.value = nullptr;
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

  const auto applies = [&](const std::string& key) { return options || !key.starts_with("strategy."); };
  const fs::path folder = config.tree ? config.folder : (config.folder / config.value.get<std::string>()).parent_path();
  Layer values;
  for (const auto& value : meaning.values) {
    const auto* given = value_of(value.key);
    if (!given || given->level != config.level || given->value == "auto")
      values[value.key] = {.value = value.value, .origin = value.place, .folder = folder, .level = config.level};
    else if (applies(value.key) && !same(*given, value))
      contradict(*given, value);
  }
  leave_out(config.unset, values, value_of(global_batch) != nullptr);
  std::erase_if(values, [&](const auto& value) { return !applies(value.first); });

  std::vector<std::string> replaced;
  for (const auto& value : meaning.values)
    if (const auto* given = value_of(value.key); given && given->level < config.level && values.contains(value.key))
      if (!same(*given, value))
        replaced.push_back(fmt::format("{} = {} instead of {} ({})", value.key, shown(value.value), shown(given->value),
                                       place_of(given->origin)));
  if (!replaced.empty())
    notes_.push_back(fmt::format("the configuration ({}) replaces values of the recipe: {}", place_of(config.origin),
                                 join(replaced, "; ")));
  put_between(layer, std::move(values), config.level);
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
