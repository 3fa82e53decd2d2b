// TOML -> Recipe: merges layers of located values (extends, the file, --set), then applies the key table.
#include <cstdlib>
#include <memory>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/configuration_layer.hpp"
#include "runner/config/contradictions.hpp"
#include "runner/config/device_request.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/schedule.hpp"
#include "runner/config/toml_source.hpp"
#include "runner/config/value_check.hpp"

namespace runner {

namespace {

using nlohmann::json;

class Reader {
 public:
  explicit Reader(std::vector<Diagnostic>& diagnostics, const ReaderHelp& help)
      : diagnostics_(diagnostics), help_(help), configurations_(diagnostics, help.importer) {}

  /// The layer of a file, merged over those that it extends. `chain`: the files being read, outermost first.
  Layer read_file_layers(const std::string& file, const Origin& asked_at, std::vector<std::string> chain) {
    auto canonical = fs::weakly_canonical(file).string();
    if (std::find(chain.begin(), chain.end(), canonical) != chain.end()) {
      problem(asked_at, "extends-cycle",
              fmt::format("{} extends {}, which (through {}) extends it again", asked_at.file, file,
                          fs::path(chain.back()).filename().string()));
      return {};
    }
    if (!fs::exists(file) || fs::is_directory(file)) {
      auto folder = fs::path(file).parent_path();
      std::vector<std::string> beside;
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored))
        if (auto kind = entry.path().extension(); kind == ".toml" || (kind == ".lua" && help_.evaluate))
          beside.push_back((folder / entry.path().filename()).string());
      Diagnostic diagnostic{.place = asked_at, .code = "missing-file", .suggestion = nearest(file, beside)};
      diagnostic.message = asked_at.line > 0 ? fmt::format("{} extends {}, which does not exist", asked_at.file, file)
                                             : fmt::format("the recipe {} {}", file,
                                                           fs::exists(file) ? "is a folder" : "does not exist");
      diagnostics_.push_back(diagnostic);
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
    auto computed = help_.evaluate(
        file, [&](const std::string& base, const Origin& place) { return read_base(file, base, place, chain); });
    return read_text(computed.toml, file, folder, chain, std::move(computed.places));
  }

  /// The values of `base`, for a computed recipe that extends it.
  json read_base(const std::string& file, const std::string& base, const Origin& asked_at,
                 const std::vector<std::string>& chain) {
    std::vector<Diagnostic> diagnostics;
    Reader reader(diagnostics, help_);
    auto layer =
        reader.read_file_layers((fs::path(file).parent_path() / base).lexically_normal().string(), asked_at, chain);
    if (!diagnostics.empty()) throw RecipeError(diagnostics);
    json sections = json::object();
    for (const auto& [dotted, located] : layer) {
      if (!located.note.empty()) continue;
      json* at = &sections;
      for (const auto& part : split(dotted, '.')) at = &(*at)[part];
      *at = located.value;
    }
    return sections;
  }

  Layer read_text(const std::string& text, const std::string& name, const fs::path& folder,
                  const std::vector<std::string>& chain, std::vector<Origin> places = {}) {
    TomlSource source{.name = name, .lines = split(text, '\n'), .places = std::move(places)};
    toml::table table = parse_toml(text, source);
    Layer layer;
    if (auto* extends = table.get("extends")) {
      auto origin = source.at(extends->source());
      for (const auto& base : strings(*extends, origin, "`extends` must be a file or a list of files"))
        merge(read_file_layers((fs::path(name).parent_path() / base).lexically_normal().string(), origin, chain),
              layer);
      table.erase("extends");
    }
    put(table, source, folder, layer);
    return layer;
  }

  /// Merges the overrides of one command line, "KEY=VALUE", over `layer`. They are one layer: their order has no
  /// effect, and they must not contradict each other. If a key is set twice, the last value applies.
  void override_layer(const std::vector<std::string>& overrides, Layer& layer) {
    std::vector<Removal> removals;
    Layer own;
    for (const auto& text : overrides) {
      TomlSource source{.name = text, .kind = Origin::Kind::set};
      auto table = parse_override(text, source);
      if (!table) continue;
      take_removals(*table, source, removals);
      for (auto& [key, located] : flatten(*table, source, fs::current_path())) {
        auto [found, added] = own.try_emplace(key, located);
        if (!added) put_again(found->second, std::move(located), /*part=*/text.starts_with(key + "."));
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

  /// Merges `upper` over `lower`. If `upper` names another strategy, all options of the strategy in `lower` are
  /// dropped. If it sets a key on which others depend (optimizer.name, lr_scheduler.name ...), the keys that no longer
  /// apply are dropped. A number of devices in --set replaces the number of CPU ranks, too.
  /// Returns a note about what was dropped with the strategy.
  static std::string overlay(Layer& lower, const Layer& upper) {
    const std::string note = drop_strategy(lower, upper);
    for (const auto& key : key_table()) {
      auto decides = upper.find(key.needs.key);
      if (decides != upper.end() && !key.needs.met_by(decides->second.value)) lower.erase(key.dotted());
    }
    if (auto devices = upper.find("devices.devices"); devices != upper.end() && sets_count(devices->second))
      lower.erase("devices.cpu_processes");
    ConfigurationLayers::remove_replaced(lower, upper);
    for (const auto& [key, located] : upper) {
      auto found = lower.find(key);
      // Tables are replaced. Only a key of a table in --set (model.rope_scaling.factor) is merged into the table.
      if (found != lower.end() && located.origin.kind == Origin::Kind::set && located.value.is_object() &&
          found->second.value.is_object()) {
        found->second.value.update(located.value);
        found->second.origin = located.origin;
      } else {
        lower[key] = ConfigurationLayers::over(found == lower.end() ? nullptr : &found->second, located);
      }
    }
    return note;
  }

  /// A key or section to remove, and the location of `unset`.
  struct Removal {
    std::string name;
    Origin place;
  };

  /// Merges `own` into `layer`, after it has removed `removals` from `layer`.
  void put(Layer own, const std::vector<Removal>& removals, Layer& layer) {
    for (const auto& removal : removals) remove(layer, removal.name, removal.place);
    translate(own, layer);
    configurations_.add(own, layer);
    merge(own, layer);
  }

  void merge(const Layer& upper, Layer& layer) {
    if (auto note = overlay(layer, upper); !note.empty()) notes_.push_back(note);
  }

  void put(toml::table& table, const TomlSource& source, const fs::path& folder, Layer& layer) {
    std::vector<Removal> removals;
    take_removals(table, source, removals);
    put(flatten(table, source, folder), removals, layer);
  }

  /// Removes a key, or all keys of a section, from `layer`, together with keys that no longer apply without them.
  void remove(Layer& layer, const std::string& name, const Origin& place) {
    const bool open = name.starts_with("strategy.") || name.starts_with("hooks.");  // options may have any name
    if (!open && !find_section(name) && !find_key(name)) return unknown_removal(name, place);
    Layer gone;
    for (const auto& [dotted, located] : layer) {
      if (dotted != name && !dotted.starts_with(name + ".")) continue;
      const Key* key = find_key(dotted);
      gone[dotted] = {key ? key->default_value : json(), place, {}, nullptr, located.from_configuration};
    }
    overlay(layer, gone);  // as if they were set to their defaults
    for (const auto& [dotted, located] : gone) {
      layer.erase(dotted);
      removed_[dotted] = located.origin;
    }
    if (gone.contains("strategy.config")) configurations_.forget();
    if (gone.empty()) notes_.push_back(fmt::format("unset `{}` has no effect: the key is not set", name));
  }

  Recipe build(const Layer& layer, const std::string& file) {
    Recipe recipe;
    recipe.file = file;
    auto family = layer.find("model.name");
    recipe.model.tie_embeddings = !(family != layer.end() && family->second.value == "llama");
    for (const auto& [dotted, located] : layer)
      if (!located.value.is_null()) apply(recipe, dotted, located);
    configurations_.complete(recipe);
    recipe.notes.insert(recipe.notes.end(), notes_.begin(), notes_.end());
    for (const auto& [dotted, located] : layer)
      if (!located.note.empty()) recipe.notes.push_back(located.note);
    if (recipe.run.name.empty()) recipe.run.name = fs::path(file).stem().string();
    for (const auto& key : key_table())
      if (key.required && !layer.contains(key.dotted()) && !failed_.contains(key.dotted())) {
        Diagnostic diagnostic;
        auto removed = removed_.find(key.dotted());
        diagnostic.place.file = file;
        if (removed != removed_.end()) diagnostic.place = removed->second;
        diagnostic.code = "missing-key";
        diagnostic.message = fmt::format("[{}] needs `{}`{}: {}", key.section, key.name,
                                         removed != removed_.end() ? ", which is unset here" : "", key.help);
        diagnostic.allowed = key.choices;
        diagnostic.section = key.section;
        diagnostics_.push_back(diagnostic);
      }
    return recipe;
  }

 private:
  static bool sets_count(const Located& devices) {
    std::string why;
    auto request = devices.origin.kind == Origin::Kind::set ? parse_devices(devices.value, why) : std::nullopt;
    return request && request->kind == DeviceRequest::Kind::count && request->count > 0;
  }

  /// The TOML of `--set KEY=VALUE`. A bare word or a date is read as a string, and so is every word if the key takes
  /// strings.
  std::optional<toml::table> parse_override(const std::string& text, const TomlSource& source) {
    auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      problem(source.at({}), "usage", "an override is KEY=VALUE, e.g. train.max_steps=10");
      return std::nullopt;
    }
    auto key = std::string(trim(std::string_view(text).substr(0, equals))),
         value = std::string(trim(std::string_view(text).substr(equals + 1)));
    try {
      auto table = toml::parse(key + " = " + value);
      auto node = table.at_path(key);
      bool date = node.is_date() || node.is_time() || node.is_date_time();
      bool scalar = node.is_floating_point() || node.is_integer() || node.is_boolean();
      if (!date && !(scalar && takes_text(key))) return table;
    } catch (const toml::parse_error&) {
    }
    try {
      return toml::parse(key + " = " + json(value).dump());
    } catch (const toml::parse_error& error) {
      problem(source.at({}), "usage", fmt::format("`{}` is not a key: {}", key, error.description()));
      return std::nullopt;
    }
  }

  /// Whether the value of `name`, which may be a section with a main key, is a string or a list of strings.
  static bool takes_text(const std::string& name) {
    const Section* section = find_section(name);
    const Key* key = section ? find_key(section->name, section->main_key) : find_key(name);
    if (!key) return false;
    const auto type = key->type;
    using T = Option::Type;
    return type == T::text || type == T::path || type == T::texts || type == T::paths;
  }

  /// Sets a key of the same layer a second time. `part`: sets only one key of a table, as in --set
  /// strategy.config.KEY=VALUE.
  static void put_again(Located& located, Located again, bool part) {
    if (!part || !located.value.is_object() || !again.value.is_object()) {
      located = std::move(again);
      return;
    }
    located.value.update(again.value, /*merge_objects=*/true);
    if (located.tree && again.tree) merge(*located.tree, *again.tree);
  }

  static void merge(LocatedJson& tree, const LocatedJson& again) {
    for (const auto& [name, value] : again.members) {
      auto same = [&name = name](const auto& member) { return member.first == name; };
      auto found = std::find_if(tree.members.begin(), tree.members.end(), same);
      if (found == tree.members.end())
        tree.members.emplace_back(name, value);
      else if (found->second.is_object && value.is_object)
        merge(found->second, value);
      else
        found->second = value;
    }
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

  void problem(const Origin& place, const std::string& code, const std::string& message,
               const std::string& section = "") {
    diagnostics_.push_back({.place = place, .code = code, .message = message, .section = section});
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

  void unknown_removal(const std::string& name, const Origin& place) {
    Diagnostic diagnostic{place, "unknown-key", fmt::format("recipes have no section or key `{}`", name)};
    std::vector<std::string> names;
    for (const auto& section : sections()) names.push_back(section.name);
    for (const auto& key : key_table()) names.push_back(key.dotted());
    suggest_elsewhere(diagnostic, name);
    if (!diagnostic.suggestion) diagnostic.suggestion = nearest(name, names);
    diagnostics_.push_back(diagnostic);
  }

  Layer flatten(const toml::table& table, const TomlSource& source, const fs::path& folder) {
    Layer layer;
    for (const auto& [name_key, node] : table) {
      std::string name(name_key.str());
      Origin at_key = source.at(name_key.source(), static_cast<int>(name.size()));
      const Section* section = find_section(name);
      if (translated_at_top(name, node)) {
        layer["." + name] = {expand(to_json(node), source.at(node.source()), ""), at_key, folder};
      } else if (!section) {
        unknown_section(name, at_key, node.is_table());
      } else if (!section->unavailable.empty()) {
        problem(node.is_table() ? source.at(node.source(), 1) : at_key, "unavailable",
                fmt::format("[{}] {}", name, section->unavailable), name);
      } else if (!node.is_table()) {
        if (section->main_key.empty())
          problem(at_key, "wrong-type", fmt::format("`{}` is a section: write [{}] and its keys below", name, name),
                  name);
        else
          layer[name + "." + section->main_key] = {expand(to_json(node), source.at(node.source()), name),
                                                   source.at(node.source()), folder};
      } else {
        flatten_section(*section, *node.as_table(), source, folder, layer);
      }
    }
    return layer;
  }

  void flatten_section(const Section& section, const toml::table& table, const TomlSource& source,
                       const fs::path& folder, Layer& layer) {
    for (const auto& [key_name, node] : table) {
      std::string name(key_name.str());
      Origin at_key = source.at(key_name.source(), static_cast<int>(name.size()));
      std::string dotted = section.name + "." + name;
      const Key* key = find_key(section.name, name);
      if (!key && section.name == "hooks" && node.is_table()) {
        for (const auto& [option_key, value] : *node.as_table()) {
          std::string option(option_key.str());
          layer[dotted + "." + option] = {expand(to_json(value), source.at(value.source()), "hooks"),
                                          source.at(option_key.source(), static_cast<int>(option.size())), folder};
        }
        continue;
      }
      const bool translated = section.name != "hooks" && translation_of(dotted);
      if (!key && section.name != "strategy" && !translated) {
        unknown_key(section.name, name, at_key);
        continue;
      }
      Origin at_value = source.at(node.source());
      layer[dotted] = {expand(to_json(node), at_value, section.name), key ? at_value : at_key, folder};
      if (dotted == "strategy.config" && node.is_table())
        layer[dotted].tree = std::make_shared<LocatedJson>(to_tree(node, layer[dotted].value, at_key, source));
    }
  }

  void unknown_section(const std::string& name, const Origin& place, bool table) {
    Diagnostic diagnostic{place, "unknown-key", fmt::format("unknown {} `{}`", table ? "section" : "key", name)};
    for (const auto& section : sections()) diagnostic.allowed.push_back(section.name);
    auto names = diagnostic.allowed;
    for (const auto& key : top_level_keys()) names.push_back(key.name);
    diagnostic.suggestion = nearest(name, names);
    suggest_elsewhere(diagnostic, name);
    // The mistake belongs to the section that was probably meant.
    auto meant = diagnostic.suggestion.value_or(name);
    diagnostic.section = meant.substr(0, meant.find('.'));
    diagnostic.name = name;
    diagnostics_.push_back(diagnostic);
  }

  void unknown_key(const std::string& section, const std::string& name, const Origin& place) {
    Diagnostic diagnostic{place, "unknown-key", fmt::format("unknown key `{}` in [{}]", name, section)};
    for (const auto& key : key_table())
      if (key.section == section) diagnostic.allowed.push_back(key.name);
    suggest_elsewhere(diagnostic, name);
    if (!diagnostic.suggestion) diagnostic.suggestion = nearest(name, diagnostic.allowed);
    diagnostic.section = section;
    diagnostic.name = name;
    diagnostics_.push_back(diagnostic);
  }

  static void suggest_elsewhere(Diagnostic& diagnostic, const std::string& name) {
    if (auto meant = key_meant_by(name)) diagnostic.suggestion = meant;
  }

  /// The entry by which translate() handles "section.name", or ".name" at the top; nullptr: it leaves the name alone.
  const ForeignName* translation_of(const std::string& dotted) const {
    const auto dot = dotted.find('.');
    const auto* foreign = find_foreign_name(dotted);
    if (!foreign) foreign = find_foreign_name(dotted.substr(dot + 1));
    if (!foreign && help_.importer) foreign = help_.importer->find_name(dotted.substr(dot + 1));
    if (!foreign || foreign->only_suggested) return nullptr;
    const auto& sections = foreign->sections;
    const bool meant = sections.empty() || std::ranges::find(sections, dotted.substr(0, dot)) != sections.end();
    return meant ? foreign : nullptr;
  }

  /// Whether translate() handles `name = value` outside the sections. A section has priority if `value` can be its
  /// table or its main key: activation_checkpointing = "all", but not activation_checkpointing = true.
  bool translated_at_top(const std::string& name, const toml::node& value) const {
    const bool of_section = find_section(name) && (value.is_table() || value.is_string());
    return !of_section && translation_of("." + name);
  }

  /// Replaces names of other tools in `own` by the keys that they mean. `below`: the layers below `own`.
  void translate(Layer& own, const Layer& below) {
    auto text_of = [&](const std::string& key) -> std::string {
      const Layer& layer = own.contains(key) ? own : below;
      auto found = layer.find(key);
      return found != layer.end() && found->second.value.is_string() ? found->second.value.get<std::string>() : "";
    };
    // A strategy in Lua defines the names of its options.
    bool script = text_of("strategy.name").starts_with("lua:") || !text_of("strategy.registry").empty();
    for (const auto& [dotted, located] : Layer(own)) {
      auto section = dotted.substr(0, dotted.find('.'));
      const auto* foreign = section == "hooks" || find_key(dotted) ? nullptr : translation_of(dotted);
      if (!foreign) continue;
      bool option = section == "strategy";
      if (!option || (foreign->in_strategy && !script)) translate(own, dotted, *foreign, option);
    }
  }

  void translate(Layer& own, const std::string& dotted, const ForeignName& foreign, bool option) {
    const Located given = own.at(dotted);
    own[dotted] = {nullptr, given.origin, given.folder};
    auto section = option ? "strategy" : "";
    auto meant = foreign.meaning ? foreign.meaning(given.value) : std::nullopt;
    if (!meant) {
      auto what = foreign.meaning ? fmt::format("`{}` cannot be {}", foreign.name, toml_value(given.value))
                                  : fmt::format("`{}` is not an option here", foreign.name);
      problem(given.origin, "refused", what + ": " + foreign.refusal, section);
      return;
    }
    std::vector<std::string> parts;
    for (const auto& [key, value] : *meant) {
      parts.push_back(fmt::format("{} = {}", key, toml_value(value)));
      auto before = own.find(key);
      if (before != own.end() && before->second.value != value) {
        problem(given.origin, "contradiction",
                fmt::format("`{}` means {}, and {} = {}", foreign.name, parts.back(), key,
                            toml_value(before->second.value)),
                section);
        diagnostics_.back().other = before->second.origin;
        diagnostics_.back().other_message = key + " is set here";
      } else if (before == own.end()) {
        own[key] = {value, given.origin, given.folder};
        own[key].of_strategy = option;
        own[key].written = foreign.name;
      }
    }
    if (!parts.empty()) parts = {"read as " + join(parts, ", ")};
    if (!foreign.note.empty()) parts.push_back(foreign.note);
    own[dotted].note = fmt::format("`{}`: {}", foreign.name, join(parts, "; "));
  }

  /// ${env:NAME} and ${env:NAME:-default} in strings, also inside lists and tables.
  json expand(json value, const Origin& place, const std::string& section) {
    if (value.is_structured()) {
      for (auto& item : value) item = expand(item, place, section);
      return value;
    }
    if (!value.is_string()) return value;
    std::string text = value.get<std::string>(), out;
    size_t at = 0;
    for (size_t open; (open = text.find("${env:", at)) != std::string::npos;) {
      size_t close = text.find('}', open);
      if (close == std::string::npos) break;
      out += text.substr(at, open - at);
      std::string name = text.substr(open + 6, close - open - 6), otherwise;
      auto dash = name.find(":-");
      bool has_default = dash != std::string::npos;
      if (has_default) {
        otherwise = name.substr(dash + 2);
        name.resize(dash);
      }
      const char* found = std::getenv(name.c_str());
      if (!found && !has_default)
        problem(place, "missing-env",
                fmt::format("the environment variable `{}` is not set (${{env:{}:-default}} would give it a default)",
                            name, name),
                section);
      out += found ? found : otherwise;
      at = close + 1;
    }
    return out + text.substr(at);
  }

  void apply(Recipe& recipe, const std::string& dotted, const Located& located) {
    auto dot = dotted.find('.');
    std::string section = dotted.substr(0, dot), name = dotted.substr(dot + 1);
    const Key* key = find_key(section, name);
    recipe.origins[dotted] = located.origin;
    if (!key && section == "hooks") {  // an option of a hook
      auto inner = name.find('.');
      recipe.hooks.options[name.substr(0, inner)][name.substr(inner + 1)] = located.value;
      return;
    }
    if (!key) {  // an option of a strategy
      const bool path = (name == "registry" || name == "nvme_path") && located.value.is_string();
      recipe.strategy.options[name] =
          path ? json(absolute(located.value.get<std::string>(), located.folder)) : script_at(located);
      return;
    }
    json value = dotted == "strategy.name" ? script_at(located) : located.value;
    if (convert(*key, value, located))
      key->set(recipe, value);
    else
      failed_.insert(dotted);
  }

  /// Checks `value` and converts it for the setter of `key`. Returns false after it has reported a mistake.
  bool convert(const Key& key, json& value, const Located& located) {
    if (auto diagnostic = check_value(key, value)) {
      diagnostic->place = located.origin;
      if (!located.written.empty() && located.written != key.name)
        diagnostic->message = fmt::format("`{}` means {}: {}", located.written, key.dotted(), diagnostic->message);
      diagnostics_.push_back(*diagnostic);
      return false;
    }
    if (key.type == Option::Type::paths) value = located_paths(key, value, located.folder);
    if (key.type == Option::Type::path && !value.get<std::string>().empty() &&
        !plain_word(key, value.get<std::string>()))
      value = absolute(value.get<std::string>(), located.folder);
    return true;
  }

  /// Paths resolved against the folder of the file that contains them. Patterns of data files are replaced by their
  /// matches. A pattern without matches remains, and is refused when the data are opened.
  static json located_paths(const Key& key, const json& paths, const fs::path& folder) {
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

  static bool plain_word(const Key& key, const std::string& value) {
    if (key.dotted() == "hooks.files") return value.find_first_of("./") == std::string::npos;
    return key.name == "tokenizer" && (value == "bytes" || value == "sentencepiece");
  }
  /// "lua:FILE.lua" with the file's absolute path; other values unchanged.
  static json script_at(const Located& located) {
    static const std::string prefix = "lua:";
    if (!located.value.is_string()) return located.value;
    auto text = located.value.get<std::string>();
    if (!text.starts_with(prefix) || text.find_first_of("./", prefix.size()) == std::string::npos) return text;
    return prefix + absolute(text.substr(prefix.size()), located.folder);
  }
  static std::string absolute(const std::string& path, const fs::path& folder) {
    return (folder / path).lexically_normal().string();
  }

  std::vector<Diagnostic>& diagnostics_;
  ReaderHelp help_;
  ConfigurationLayers configurations_;
  std::set<std::string> failed_;           ///< keys with a wrong value
  std::map<std::string, Origin> removed_;  ///< keys that `unset` removed -> location of `unset`
  std::vector<std::string> notes_;
};

Recipe finish(Reader& reader, Layer layer, const std::string& file, const OverrideLayers& overrides,
              std::vector<Diagnostic>& diagnostics, const RecipeCheck& check = {}) {
  for (const auto& command : overrides) reader.override_layer(command, layer);
  if (layer.empty() && !diagnostics.empty()) throw RecipeError(diagnostics);
  Recipe recipe = reader.build(layer, file);
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
  auto found = origins.find(key);
  if (found != origins.end()) return found->second;
  Origin origin;
  origin.file = file;
  return origin;
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
  Origin asked;
  asked.file = file;
  Layer layer = reader.read_file_layers(file, asked, {});
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
