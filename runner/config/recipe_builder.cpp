#include "runner/config/recipe_builder.hpp"

#include "runner/base/text.hpp"
#include "runner/config/group_optimizer.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/model_families.hpp"

namespace runner {

namespace {

using nlohmann::json;

std::string absolute(const std::string& path, const fs::path& folder) {
  return (folder / path).lexically_normal().string();
}

/// "lua:FILE.lua" with the file's absolute path; other values unchanged.
json script_at(const Located& located) {
  static const std::string prefix = "lua:";
  if (!located.value.is_string()) return located.value;
  auto text = located.value.get<std::string>();
  if (!text.starts_with(prefix) || text.find_first_of("./", prefix.size()) == std::string::npos) return text;
  return prefix + absolute(text.substr(prefix.size()), located.folder);
}

/// Whether a value of a key for paths is a word with a meaning of its own.
bool plain_word(const Key& key, const std::string& value) {
  if (key.dotted() == "hooks.files") return value.find_first_of("./") == std::string::npos;
  if (key.name == "chat_template") return value.find_first_of("./") == std::string::npos;
  return key.name == "tokenizer" && (value == "bytes" || value == "sentencepiece");
}

/// Paths resolved against the folder of the file that contains them. Patterns of data files are replaced by their
/// matches. A pattern without matches remains, and is refused when the data are opened.
json located_paths(const Key& key, const json& paths, const fs::path& folder) {
  json list = json::array();
  for (const auto& item : paths) {
    auto path = item.get<std::string>();
    if (plain_word(key, path)) {
      list.push_back(path);
      continue;
    }
    path = absolute(path, folder);
    auto matches = key.section == "data" ? paths_like(path) : std::vector{path};
    if (matches.empty()) matches = {path};
    for (const auto& match : matches) list.push_back(match);
  }
  return list;
}

/// Replaces the paths in a value of `option`, also those in tables.
void locate(const Key& key, const Option& option, json& value, const fs::path& folder) {
  using T = Option::Type;
  if (option.type == T::paths) value = located_paths(key, value, folder);
  if (option.type == T::path)
    if (const auto path = value.get<std::string>(); !path.empty() && !plain_word(key, path))
      value = absolute(path, folder);
  if (option.type == T::tables)
    for (auto& table : value)
      for (const auto& field : option.fields)
        if (auto found = table.find(field.name); found != table.end()) locate(key, field, *found, folder);
}

/// The first text in a value that is not UTF-8, as names of files may be: records and checkpoints, which are JSON, cannot have it.
std::optional<std::string> not_utf8(const json& value) {
  if (value.is_string() && first_invalid_utf8(value.get_ref<const std::string&>())) return value.get<std::string>();
  if (value.is_structured())
    for (const auto& item : value)
      if (auto text = not_utf8(item)) return text;
  return {};
}

/// Checks `value` and converts it for the setter of `key`. Returns false after it has reported a mistake.
bool convert(const Key& key, json& value, const Located& located, std::vector<Diagnostic>& diagnostics) {
  if (auto diagnostic = check_value(key, value)) {
    diagnostic->place = located.origin;
    if (!located.written.empty() && located.written != key.name)
      diagnostic->message = fmt::format("`{}` means {}: {}", located.written, key.dotted(), diagnostic->message);
    diagnostics.push_back(*diagnostic);
    return false;
  }
  locate(key, key, value, located.folder);
  const auto name = not_utf8(value);
  if (name)
    diagnostics.push_back({.place = located.origin,
                           .code = "encoding",
                           .message = fmt::format("the name {} is not UTF-8; rename it", escape_invalid_utf8(*name))});
  return !name;
}

/// Sets an option of a hook or a strategy, which these check.
void set_option(Recipe& recipe, const std::string& section, const std::string& name, const Located& located) {
  if (section == "hooks") {
    const auto dot = name.find('.');
    recipe.hooks.options[name.substr(0, dot)][name.substr(dot + 1)] = located.value;
    return;
  }
  // "none" is a value of compilation_cache, and a plug-in without a folder is looked up by the system.
  const auto text = located.value.is_string() ? located.value.get<std::string>() : "";
  const bool path =
      !text.empty() && (name == "registry" || name == "nvme_path" || (name == "compilation_cache" && text != "none") ||
                        (name == "plugin" && text.find('/') != std::string::npos));
  recipe.strategy.options[name] = path ? json(absolute(text, located.folder)) : script_at(located);
}

/// If data.train is one folder with the folders of splits, and the recipe has no other validation data: data.train and
/// data.validation become these folders.
void take_split_folders(Recipe& recipe) {
  auto& data = recipe.data;
  if (data.train.size() != 1 || !data.validation.empty() || data.validation_fraction) return;
  const auto below = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const auto folder = fs::path(data.train[0]) / name; fs::is_directory(folder)) return folder.string();
    return std::string();
  };
  const auto train = below({"train", "training"}), validation = below({"validation", "val", "valid", "test"});
  if (train.empty()) return;
  const Origin decided{.kind = Origin::Kind::decided, .note = "the folders in " + data.train[0]};
  data.train = {train};
  if (validation.empty()) return;
  data.validation = {validation};
  recipe.origins["data.validation"] = decided;
}

/// The value of a key; nullptr if it is unset.
const Located* value_of(const Layer& layer, const std::string& key) {
  const auto found = layer.find(key);
  return found != layer.end() && !found->second.value.is_null() ? &found->second : nullptr;
}

}  // namespace

std::string target_of_loss(const std::string& loss) {
  return loss == "cross_entropy" ? "class" : loss == "bce" ? "binary" : "number";
}

std::string loss_of_target(const std::string& target_type) {
  return target_type == "class" ? "cross_entropy" : target_type == "binary" ? "bce" : "mse";
}

Recipe build_recipe(const Layer& layer, const std::string& file, std::vector<Diagnostic>& diagnostics) {
  Recipe recipe;
  recipe.file = file;
  const auto* family = value_of(layer, "model.name");
  if (family && family->value.is_string()) {
    recipe.model = family_defaults(family->value);
    if (family_kind(recipe.model.name) == "encoder") recipe.data.objective = "masked_lm";
    const bool labelled = is_language_model(recipe.model.name) && family_kind(recipe.model.name) != "plugin";
    if (labelled && value_of(layer, "data.target")) recipe.data.objective = "classification";
  }
  for (const auto& [dotted, located] : layer) {
    if (located.value.is_null()) continue;
    recipe.origins[dotted] = located.origin;
    const auto dot = dotted.find('.');
    const auto section = dotted.substr(0, dot), name = dotted.substr(dot + 1);
    const Key* key = find_key(section, name);
    if (!key) {
      set_option(recipe, section, name, located);
      continue;
    }
    json value = dotted == "strategy.name" ? script_at(located) : located.value;
    if (convert(*key, value, located, diagnostics)) key->set(recipe, value);
  }
  if (const auto* optimizer = find_optimizer(recipe.optimizer.name)) {
    const auto defaults = defaults_of(*optimizer);
    if (!value_of(layer, "optimizer.betas")) recipe.optimizer.betas = defaults.betas;
    if (!value_of(layer, "optimizer.momentum")) recipe.optimizer.momentum = defaults.momentum;
    if (!value_of(layer, "optimizer.nesterov")) recipe.optimizer.nesterov = defaults.nesterov;
  }
  if (recipe.devices.elastic() && !value_of(layer, "devices.num_nodes"))
    recipe.devices.num_nodes = recipe.devices.least_nodes();
  if (recipe.train.loss && recipe.data.target_type == "auto")
    recipe.data.target_type = target_of_loss(*recipe.train.loss);
  recipe.data.image_size = recipe.model.image_size;
  recipe.data.labels = recipe.model.labels;
  if (recipe.data.is_images()) take_split_folders(recipe);
  if (recipe.run.name.empty()) recipe.run.name = fs::path(file).stem().string();
  return recipe;
}

void find_missing_keys(const Layer& layer, const std::string& file, const std::map<std::string, Origin>& removed,
                       std::vector<Diagnostic>& diagnostics) {
  const auto* family = value_of(layer, "model.name");
  const std::string name = family && family->value.is_string() ? family->value : "";
  for (const auto& key : key_table()) {
    if (!key.required || value_of(layer, key.dotted()) || !key.in_family(name)) continue;
    if (name.empty() && !key.family.empty()) continue;  // the family decides
    const bool replaced =
        !key.needs.key.empty() && key.needs.values.empty() && !key.needs.set && value_of(layer, key.needs.key);
    if (replaced) continue;
    const auto gone = removed.find(key.dotted());
    const bool unset = gone != removed.end();
    diagnostics.push_back({.place = unset ? gone->second : Origin{.file = file},
                           .code = "missing-key",
                           .message = fmt::format("[{}] needs `{}`{}: {}", key.section, key.name,
                                                  unset ? ", which is unset here" : "", key.help),
                           .allowed = key.choices,
                           .section = key.section});
  }
}

}  // namespace runner
