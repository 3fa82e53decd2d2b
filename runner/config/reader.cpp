// TOML -> Recipe: reads the layers of a recipe (extends, the file, --set), merges them, and builds the recipe from the result.
#include <algorithm>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/contradictions.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/layer.hpp"
#include "runner/config/recipe_builder.hpp"
#include "runner/config/schedule.hpp"
#include "runner/config/toml_layer.hpp"
#include "runner/config/unknown_names.hpp"

namespace runner {

namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(std::vector<Diagnostic>& diagnostics, const ReaderHelp& help)
      : diagnostics_(diagnostics),
        help_(help),
        translation_(help.names, diagnostics),
        tables_(help.names, translation_, diagnostics),
        configuration_(diagnostics, help.importer) {}

  /// The layer of a file, merged over those that it extends. `chain`: the files being read, outermost first.
  Layer read_file_layers(const std::string& file, const Origin& asked_at, std::vector<std::string> chain) {
    auto canonical = real_path(file).string();
    if (first_invalid_utf8(canonical)) {
      problem(asked_at, "encoding", fmt::format("the name {} is not UTF-8; rename it", escape_invalid_utf8(canonical)));
      return {};
    }
    if (std::find(chain.begin(), chain.end(), canonical) != chain.end()) {
      problem(asked_at, "extends-cycle",
              fmt::format("{} extends {}, which (through {}) extends it again", asked_at.file, file,
                          fs::path(chain.back()).filename().string()));
      return {};
    }
    std::error_code unknown;
    if (!fs::exists(file, unknown) || fs::is_directory(file, unknown)) {
      missing_file(file, asked_at);
      return {};
    }
    chain.push_back(canonical);
    auto folder = fs::absolute(fs::path(file)).lexically_normal().parent_path();
    if (fs::path(file).extension() != ".lua") return read_text(runner::read_file(file), file, folder, chain);
    if (!help_.evaluate) {
      problem(asked_at, "unavailable",
              fmt::format("{} must be evaluated: convert it to TOML with `runner print {}` first", file, file));
      return {};
    }
    auto computed = evaluate(file, chain);
    return read_text(computed.toml, file, folder, chain, std::move(computed.places));
  }

  Layer read_text(const std::string& text, const std::string& name, const fs::path& folder,
                  const std::vector<std::string>& chain, std::vector<Origin> places = {}) {
    TomlSource source{.name = name, .lines = split(text, '\n'), .places = std::move(places)};
    toml::table table = parse_toml(text, source);
    Layer layer;
    if (auto* extends = table.get("extends")) {
      auto origin = source.at(extends->source());
      for (const auto& base : strings(*extends, origin, "`extends` must be a file or a list of files"))
        put_over(layer, read_file_layers(beside(name, base), origin, chain));
      table.erase("extends");
    }
    std::vector<Removal> removals;
    take_removals(table, source, removals);
    put(tables_.read(table, source, folder), removals, layer);
    return layer;
  }

  /// Merges the overrides of one command line, "KEY=VALUE", over `layer`. They are one layer: their order has no
  /// effect, and they must not contradict each other. If a key is set twice, the last value applies.
  void override_layer(const std::vector<std::string>& overrides, Layer& layer) {
    std::vector<Removal> removals;
    Layer own;
    for (const auto& text : overrides) {
      TomlSource source{.name = text, .kind = Origin::Kind::set};
      auto table = parse_override(source, diagnostics_);
      if (!table) continue;
      take_removals(*table, source, removals);
      for (auto& [key, located] : tables_.read(*table, source, fs::current_path())) {
        located.part = text.starts_with(key + ".");
        auto [found, added] = own.try_emplace(key, located);
        if (!added) set_again(found->second, std::move(located));
      }
    }
    for (const auto& removal : removals)
      if (auto set = own.find(removal.name); set != own.end()) {
        problem(removal.place, "contradiction", fmt::format("`{}` is both set and unset", removal.name));
        diagnostics_.back().other = set->second.origin;
        diagnostics_.back().other_message = "it is set here";
      }
    put(std::move(own), removals, layer);
  }

  Recipe build(Layer layer, const std::string& file) {
    configuration_.apply(layer);
    Recipe recipe = build_recipe(layer, file, diagnostics_);
    configuration_.complete(recipe);
    recipe.notes.insert(recipe.notes.end(), notes_.begin(), notes_.end());
    for (const auto& [dotted, located] : layer)
      if (!located.note.empty()) recipe.notes.push_back(located.note);
    find_missing_keys(layer, file, removed_, diagnostics_);
    return recipe;
  }

 private:
  /// A key or section to remove, and the location of `unset`.
  struct Removal {
    std::string name;
    Origin place;
  };

  static std::string beside(const std::string& file, const std::string& base) {
    return (fs::path(file).parent_path() / base).lexically_normal().string();
  }

  void problem(const Origin& place, const std::string& code, const std::string& message) {
    diagnostics_.push_back({.place = place, .code = code, .message = message});
  }

  void missing_file(const std::string& file, const Origin& asked_at) {
    auto folder = fs::path(file).parent_path();
    std::vector<std::string> others;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored))
      if (auto kind = entry.path().extension(); kind == ".toml" || (kind == ".lua" && help_.evaluate))
        others.push_back((folder / entry.path().filename()).string());
    problem(asked_at, "missing-file",
            asked_at.line > 0
                ? fmt::format("{} extends {}, which does not exist", asked_at.file, file)
                : fmt::format("the recipe {} {}", file, fs::exists(file, ignored) ? "is a folder" : "does not exist"));
    diagnostics_.back().suggestion = nearest(file, others);
  }

  /// A base whose configuration has a mistake lacks values. If the program then fails, that mistake is the first one.
  ComputedRecipe evaluate(const std::string& file, const std::vector<std::string>& chain) {
    std::vector<Diagnostic> of_configurations;
    try {
      return help_.evaluate(file, [&](const std::string& base, const Origin& place) {
        return read_base(file, base, place, chain, of_configurations);
      });
    } catch (const RecipeError& error) {
      if (of_configurations.empty()) throw;
      of_configurations.insert(of_configurations.end(), error.diagnostics().begin(), error.diagnostics().end());
      throw RecipeError(of_configurations);
    }
  }

  /// The values of `base`, for a computed recipe that extends it. Mistakes in its configuration go to `of_configurations`: they are
  /// reported when it is read again, with the layers above it.
  json read_base(const std::string& file, const std::string& base, const Origin& asked_at,
                 const std::vector<std::string>& chain, std::vector<Diagnostic>& of_configurations) {
    std::vector<Diagnostic> diagnostics;
    Reader reader(diagnostics, help_);
    auto layer = reader.read_file_layers(beside(file, base), asked_at, chain);
    if (!diagnostics.empty()) throw RecipeError(diagnostics);
    ConfigurationLayer(of_configurations, help_.importer).apply(layer);
    json sections = json::object();
    for (const auto& [dotted, located] : layer) {
      if (!located.note.empty()) continue;
      json* at = &sections;
      for (const auto& part : split(dotted, '.')) at = &(*at)[part];
      *at = located.value;
    }
    return sections;
  }

  /// Merges `own` over `layer`, after it has removed `removals` from `layer`.
  void put(Layer own, const std::vector<Removal>& removals, Layer& layer) {
    ++level_;
    const Layer before = removals.empty() ? Layer() : configured(layer);
    for (const auto& removal : removals) remove(layer, before, removal);
    translation_.translate(own, layer);
    for (auto& [key, located] : own) located.level = level_;
    put_over(layer, own);
  }

  void put_over(Layer& layer, const Layer& upper) {
    if (auto note = overlay(layer, upper); !note.empty()) notes_.push_back(note);
  }

  /// Merges `upper` over `lower`. If `upper` names another strategy, all options of the strategy in `lower` are dropped. Returns a
  /// note about them.
  std::string overlay(Layer& lower, const Layer& upper) {
    if (replaces_strategy(upper, lower) && !configuration_.named_in(upper))
      configuration_.apply(lower, /*options=*/false);
    const std::string note = drop_strategy(lower, upper);
    merge(lower, upper);
    return note;
  }

  /// `layer` with the values of its configuration.
  Layer configured(Layer layer) const {
    std::vector<Diagnostic> ignored;
    ConfigurationLayer(ignored, help_.importer).apply(layer);
    return layer;
  }

  /// Removes a key, or all keys of a section, from `layer`, together with keys that no longer apply without them. `before`:
  /// configured(layer) before the first removal, because values of a configuration may depend on others.
  void remove(Layer& layer, const Layer& before, const Removal& removal) {
    const auto& [name, place] = removal;
    const bool open = name.starts_with("strategy.") || name.starts_with("hooks.");  // options may have any name
    if (!open && !find_section(name) && !find_key(name)) {
      diagnostics_.push_back(unknown_removal(name, place, help_.names));
      return;
    }
    if (name.starts_with("strategy.config."))
      return problem(
          place, "not-allowed",
          fmt::format("`{}` cannot be unset: unset the key of the recipe that it sets, or strategy.config", name));
    Layer gone;
    const Layer now = configured(layer);
    // A key may be in one of them only: the configuration may set it, or hide it.
    for (const Layer* one : {&std::as_const(layer), &before, &now})
      for (const auto& [dotted, located] : *one) {
        if (dotted != name && !dotted.starts_with(name + ".")) continue;
        const Key* key = find_key(dotted);
        gone[dotted] = {.value = key ? key->default_value : json(), .origin = place};
      }
    if (gone.contains("strategy.config")) layer.erase("strategy.config");
    overlay(layer, gone);  // as if they were set to their defaults
    for (const auto& [dotted, located] : gone) {
      layer.erase(dotted);
      removed_[dotted] = place;
    }
    // A value of a configuration is not in the layer yet.
    if (auto config = layer.find("strategy.config"); config != layer.end()) config->second.unset.insert(name);
    if (gone.empty()) notes_.push_back(fmt::format("unset `{}` has no effect: the key is not set", name));
  }

  /// Moves the names in `unset` from `table` to `removals`.
  void take_removals(toml::table& table, const TomlSource& source, std::vector<Removal>& removals) {
    auto* unset = table.get("unset");
    if (!unset) return;
    auto origin = source.at(unset->source());
    for (const auto& name : strings(*unset, origin, "`unset` must be a key or a list of keys"))
      removals.push_back({name, origin});
    table.erase("unset");
  }

  /// A string, or a list of strings.
  std::vector<std::string> strings(const toml::node& node, const Origin& origin, const std::string& wanted) {
    json value = to_json(node);
    if (value.is_string()) return {value.get<std::string>()};
    std::vector<std::string> list;
    if (value.is_array())
      for (const auto& item : value)
        if (item.is_string()) list.push_back(item.get<std::string>());
    if (!value.is_array() || list.size() != value.size()) problem(origin, "wrong-type", wanted);
    return list;
  }

  std::vector<Diagnostic>& diagnostics_;
  ReaderHelp help_;
  Translation translation_;
  TomlLayer tables_;
  ConfigurationLayer configuration_;
  int level_ = 0;                          ///< of the layer that was read last
  std::map<std::string, Origin> removed_;  ///< keys that `unset` removed -> location of `unset`
  std::vector<std::string> notes_;
};

Recipe finish(Reader& reader, Layer layer, const std::string& file, const OverrideLayers& overrides,
              std::vector<Diagnostic>& diagnostics, const RecipeCheck& check = {}) {
  for (const auto& command : overrides) reader.override_layer(command, layer);
  if (layer.empty() && !diagnostics.empty()) throw RecipeError(diagnostics);
  Recipe recipe = reader.build(std::move(layer), file);
  find_contradictions(recipe, diagnostics);
  if (check) check(recipe, diagnostics);
  sort_by_place(diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  if (auto note = schedule_note(recipe); !note.empty()) recipe.notes.push_back(note);
  for (const auto& note : idle_switches(recipe)) recipe.notes.push_back(note);
  return recipe;
}

}  // namespace

Origin Recipe::origin(const std::string& key) const {
  const auto found = origins.find(key);
  return found != origins.end() ? found->second : Origin{.file = file};
}

std::string unset_override(const std::string& key) { return "unset=" + key; }

Recipe load_recipe(const std::string& file, const std::vector<std::string>& overrides, const RecipeCheck& check,
                   const ReaderHelp& help) {
  return load_layered_recipe(file, {overrides}, check, help);
}

Recipe load_layered_recipe(const std::string& file, const OverrideLayers& overrides, const RecipeCheck& check,
                           const ReaderHelp& help) {
  std::vector<Diagnostic> diagnostics;
  Reader reader(diagnostics, help);
  Layer layer = reader.read_file_layers(file, {.file = file}, {});
  return finish(reader, std::move(layer), file, overrides, diagnostics, check);
}

Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides,
                    const ReaderHelp& help) {
  std::vector<Diagnostic> diagnostics;
  Reader reader(diagnostics, help);
  Layer layer = reader.read_text(text, name, fs::current_path(), {});
  return finish(reader, std::move(layer), name, {overrides}, diagnostics);
}

}  // namespace runner
