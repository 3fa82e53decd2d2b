#include "runner/config/toml_layer.hpp"

#include <algorithm>

#include "runner/base/environment_text.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/tool_names.hpp"
#include "runner/config/unknown_names.hpp"

namespace runner {

using nlohmann::json;

namespace {

std::string section_of(const std::string& dotted) { return dotted.substr(0, dotted.find('.')); }

/// Whether the value of `name`, which may be a section with a main key, is a string or a list of strings.
bool takes_text(const std::string& name) {
  const Section* section = find_section(name);
  const Key* key = section ? find_key(section->name, section->main_key) : find_key(name);
  using T = Option::Type;
  return key && (key->type == T::text || key->type == T::path || key->type == T::texts || key->type == T::paths);
}

}  // namespace

const ForeignName* Translation::find(const std::string& dotted) const {
  const auto* foreign = find_foreign_name(dotted, names_);
  if (!foreign) foreign = find_foreign_name(dotted.substr(dotted.find('.') + 1), names_);
  if (!foreign || foreign->only_suggested) return nullptr;
  const auto& sections = foreign->sections;
  return sections.empty() || std::ranges::find(sections, section_of(dotted)) != sections.end() ? foreign : nullptr;
}

void Translation::translate(Layer& own, const Layer& below) {
  auto text_of = [&](const std::string& key) -> std::string {
    const Layer& layer = own.contains(key) ? own : below;
    auto found = layer.find(key);
    return found != layer.end() && found->second.value.is_string() ? found->second.value.get<std::string>() : "";
  };
  // A strategy in Lua defines the names of its options.
  const bool script = text_of("strategy.name").starts_with("lua:") || !text_of("strategy.registry").empty();
  for (const auto& [dotted, located] : Layer(own)) {
    const auto section = section_of(dotted);
    const auto* foreign = section == "hooks" || find_key(dotted) ? nullptr : find(dotted);
    if (foreign && (section != "strategy" || (foreign->in_strategy && !script)))
      translate(own, dotted, *foreign, text_of("model.name"));
  }
}

void Translation::translate(Layer& own, const std::string& dotted, const ForeignName& foreign,
                            const std::string& family) {
  const Located given = own.at(dotted);
  own[dotted] = {.value = nullptr, .origin = given.origin, .folder = given.folder};
  const bool option = section_of(dotted) == "strategy";
  const auto problem = [&](const char* code, const std::string& message) -> Diagnostic& {
    diagnostics_.push_back(
        {.place = given.origin, .code = code, .message = message, .section = option ? "strategy" : ""});
    return diagnostics_.back();
  };
  const auto meant = foreign.meaning ? foreign.meaning(given.value) : std::nullopt;
  if (!meant) {
    auto what = foreign.meaning ? fmt::format("`{}` cannot be {}", foreign.name, toml_value(given.value))
                                : fmt::format("`{}` is not an option here", foreign.name);
    problem("refused", what + ": " + foreign.refusal);
    return;
  }
  std::vector<std::string> parts;
  // The note of a name for a key of some families is for the others, for which the name has no effect.
  const Key* of_families = find_key(foreign.key);
  if (of_families && of_families->family.empty()) of_families = nullptr;
  const bool applies = !of_families || foreign.note.empty() || of_families->in_family(family);
  for (const auto& [key, value] : applies ? *meant : ForeignName::Values()) {
    parts.push_back(fmt::format("{} = {}", key, toml_value(value)));
    auto before = own.find(key);
    if (before != own.end() && before->second.value != value) {
      auto& diagnostic = problem("contradiction", fmt::format("`{}` means {}, and {} = {}", foreign.name, parts.back(),
                                                              key, toml_value(before->second.value)));
      diagnostic.other = before->second.origin;
      diagnostic.other_message = key + " is set here";
    } else if (before == own.end()) {
      own[key] = {.value = value,
                  .origin = given.origin,
                  .folder = given.folder,
                  .of_strategy = option,
                  .written = foreign.name};
    }
  }
  if (!parts.empty()) parts = {"read as " + join(parts, ", ")};
  if (!foreign.note.empty() && !(of_families && applies)) parts.push_back(foreign.note);
  own[dotted].note = fmt::format("`{}`: {}", foreign.name, join(parts, "; "));
}

Layer TomlLayer::read(const toml::table& table, const TomlSource& source, const fs::path& folder) {
  Layer layer;
  for (const auto& [name_key, node] : table) {
    std::string name(name_key.str());
    Origin at_key = source.at(name_key.source(), static_cast<int>(name.size())), at_value = source.at(node.source());
    const Section* section = find_section(name);
    if (translated_at_top(name, node)) {
      layer["." + name] = {.value = expand(to_json(node), at_value, ""), .origin = at_key, .folder = folder};
    } else if (!section) {
      auto unknown = unknown_section(name, node.is_table(), to_json(node), at_key, names_);
      const bool of_tool = node.is_table() && tool_with_section(name);
      const bool said = of_tool && at_key.kind == Origin::Kind::set &&  // once for several --set of its keys
                        std::ranges::any_of(diagnostics_, [&](const Diagnostic& other) {
                          return other.place.kind == Origin::Kind::set && other.message == unknown.message;
                        });
      if (!said) diagnostics_.push_back(std::move(unknown));
      if (of_tool) read_section({.name = name, .help = ""}, *node.as_table(), source, folder, layer);
    } else if (!section->unavailable.empty()) {
      problem(node.is_table() ? source.at(node.source(), 1) : at_key, "unavailable",
              fmt::format("[{}] {}", name, section->unavailable), name);
    } else if (node.is_table()) {
      read_section(*section, *node.as_table(), source, folder, layer);
    } else if (section->main_key.empty()) {
      problem(at_key, "wrong-type", fmt::format("`{}` is a section: write [{}] and its keys below", name, name), name);
    } else {
      layer[name + "." + section->main_key] = {
          .value = expand(to_json(node), at_value, name), .origin = at_value, .folder = folder};
    }
  }
  return layer;
}

void TomlLayer::read_section(const Section& section, const toml::table& table, const TomlSource& source,
                             const fs::path& folder, Layer& layer) {
  const bool hooks = section.name == "hooks";
  for (const auto& [key_name, node] : table) {
    std::string name(key_name.str());
    Origin at_key = source.at(key_name.source(), static_cast<int>(name.size())), at_value = source.at(node.source());
    std::string dotted = section.name + "." + name;
    const Key* key = find_key(section.name, name);
    if (!key && hooks && node.is_table()) {
      for (const auto& [option_key, value] : *node.as_table()) {
        std::string option(option_key.str());
        layer[dotted + "." + option] = {.value = expand(to_json(value), source.at(value.source()), section.name),
                                        .origin = source.at(option_key.source(), static_cast<int>(option.size())),
                                        .folder = folder};
      }
      continue;
    }
    if (!key && section.name != "strategy" && (hooks || !translation_.knows(dotted))) {
      diagnostics_.push_back(unknown_key(section.name, name, to_json(node), at_key, names_));
      continue;
    }
    // Variables of secret keys are read when they are used.
    json value = to_json(node);
    if (!key || !key->secret) value = expand(std::move(value), at_value, section.name);
    auto& located = layer[dotted] = {.value = std::move(value), .origin = key ? at_value : at_key, .folder = folder};
    if (dotted == "strategy.config" && node.is_table())
      located.tree = std::make_shared<LocatedJson>(to_tree(node, located.value, at_key, source));
  }
}

/// Whether `name = value` outside the sections is a name of another tool. A section has priority if `value` can be its table or its
/// main key: activation_checkpointing = "all", but not activation_checkpointing = true.
bool TomlLayer::translated_at_top(const std::string& name, const toml::node& value) const {
  const bool of_section = find_section(name) && (value.is_table() || value.is_string());
  return !of_section && translation_.knows("." + name);
}

/// Expands environment variables, also inside lists and tables.
json TomlLayer::expand(json value, const Origin& place, const std::string& section) {
  if (value.is_structured())
    for (auto& item : value) item = expand(item, place, section);
  else if (value.is_string())
    value = expand(value.get_ref<const std::string&>(), place, section);
  return value;
}

std::string TomlLayer::expand(const std::string& text, const Origin& place, const std::string& section) {
  return expand_environment(text, [&](const std::string& name) {
    problem(place, "missing-env",
            fmt::format("the environment variable `{}` is not set (${{env:{}:-default}} would give it a default)", name,
                        name),
            section);
  });
}

void TomlLayer::problem(const Origin& place, const std::string& code, const std::string& message,
                        const std::string& section) {
  diagnostics_.push_back({.place = place, .code = code, .message = message, .section = section});
}

std::optional<toml::table> parse_override(const TomlSource& source, std::vector<Diagnostic>& diagnostics) {
  const auto wrong = [&](const std::string& message) {
    diagnostics.push_back({.place = source.at({}), .code = "usage", .message = message});
    return std::nullopt;
  };
  const std::string_view text = source.name;
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return wrong("an override is KEY=VALUE, e.g. train.max_steps=10");
  const std::string key(trim(text.substr(0, equals))), value(trim(text.substr(equals + 1)));
  try {
    auto table = parse_bounded_toml(key + " = " + value);
    auto node = table.at_path(key);
    bool date = node.is_date() || node.is_time() || node.is_date_time();
    bool scalar = node.is_floating_point() || node.is_integer() || node.is_boolean();
    if (!date && !(scalar && takes_text(key))) return table;
  } catch (const toml::parse_error&) {
  }
  try {
    return parse_bounded_toml(key + " = " + json(value).dump());
  } catch (const toml::parse_error& error) {
    return wrong(fmt::format("`{}` is not a key: {}", shortened_text(key), error.description()));
  }
}

}  // namespace runner
