// Recipe -> TOML, JSON, schema and help, all from the key table; computed recipes and imported values -> TOML.
#include <algorithm>
#include <cmath>
#include <map>

#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/model_families.hpp"
#include "runner/config/sweep_keys.hpp"

namespace runner {

using nlohmann::json;

std::string toml_value(const json& value) {
  if (value.is_object()) {
    std::vector<std::string> parts;
    for (const auto& [name, item] : value.items())
      if (!item.is_null()) parts.push_back(toml_key(name) + " = " + toml_value(item));
    return parts.empty() ? "{}" : "{ " + join(parts, ", ") + " }";
  }
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const auto& item : value) parts.push_back(toml_value(item));
    return "[" + join(parts, ", ") + "]";
  }
  if (value.is_number_float()) {
    double number = value.get<double>();
    if (!std::isfinite(number)) return nonfinite_word(number);
    auto text = value.dump();  // shortest text that reads back to the same double
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  return value.dump();
}

std::string toml_key(const std::string& name) {
  bool bare =
      !name.empty() &&
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
  return bare ? name : json(name).dump();
}

namespace {

std::string origin_text(const Origin& origin) {
  if (origin.kind == Origin::Kind::default_value) return "default";
  return origin.kind == Origin::Kind::decided ? "decided: " + origin.note : place_of(origin);
}

/// Keys that do not apply to this recipe are not printed, because the reader would refuse them.
bool applies(const Key& key, const Recipe& recipe) { return key.in_family(recipe.model.name) && key.needs_met(recipe); }

/// Whether to print a value. Some defaults are not printed, because the reader would refuse them together with other
/// values.
bool shown(const Key& key, const Recipe& recipe, const json& value) {
  if (value.is_null() || !applies(key, recipe)) return false;
  if (value.is_array() && value.empty()) return false;
  if (key.section == "hooks" && recipe.hooks.files.empty() && !recipe.train.early_stopping)
    return recipe.origins.contains(key.dotted());
  bool given = recipe.origins.contains(key.dotted());
  if (key.dotted() == "run.name" && !given) return false;  // the ledger chooses one for each run
  if (key.quiet && !given) {
    Recipe defaults;
    defaults.model = family_defaults(recipe.model.name);
    return value != key.get(defaults);
  }
  // The kind of data that a plug-in gives may not be known yet.
  const bool open = recipe.data.is_plugin() && recipe.data.plugin_gives == "auto";
  if (key.tokens && recipe.data.has_rows()) return given && value != key.get(Recipe());
  if (key.name == "tokenizer") return (!recipe.data.has_token_ids() && !open) || given;
  static const std::vector<std::string> of_targets = {"target_type", "missing", "missing_values", "standardize"};
  if (key.section == "data" && std::ranges::find(of_targets, key.name) != of_targets.end())
    return !recipe.data.target.empty() || given;
  if (key.name == "gradient_clip_algorithm") return recipe.train.gradient_clip_val.has_value();
  return true;
}

const json text_schema = {{"type", "string"}}, integer_schema = {{"type", "integer"}},
           number_schema = {{"type", "number"}}, table_schema = {{"type", "object"}};

json list_schema(const json& items) { return {{"type", "array"}, {"items", items}}; }
json enum_schema(const json& values) {
  return {{"type", values[0].is_string() ? "string" : "integer"}, {"enum", values}};
}
json either(std::vector<json> schemas) { return {{"anyOf", std::move(schemas)}}; }

/// The values that the type and the bounds of an option allow.
json bounded_schema(const Option& option);

json choice_schema(const Option& option) {
  json words = option.choices, numbers = json::array();
  for (const auto& [spelling, choice] : option.spellings) {
    if (std::find(words.begin(), words.end(), spelling) == words.end()) words.push_back(spelling);
    if (spelling.find_first_not_of("0123456789") == std::string::npos) numbers.push_back(std::stoi(spelling));
  }
  return numbers.empty() ? enum_schema(words) : either({enum_schema(numbers), enum_schema(words)});
}

json fields_schema(const Option& option) {
  json properties = json::object();
  for (const auto& field : option.fields) properties[field.name] = bounded_schema(field);
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

/// The values that the type of an option allows.
json type_schema(const Option& option) {
  using T = Option::Type;
  switch (option.type) {
    case T::boolean:
      return {{"type", "boolean"}};
    case T::integer:
      return {{"type", "number"}, {"multipleOf", 1}};  // the reader takes 2e8 as an integer
    case T::number:
      return number_schema;
    case T::integer_or_auto:
      return either({integer_schema, enum_schema(json::array({"auto"}))});
    case T::text:
    case T::path:
      return text_schema;
    case T::choice:
      return choice_schema(option);
    case T::texts:
    case T::paths:
    case T::names:
      return either({text_schema, list_schema(text_schema)});
    case T::pair:
    case T::numbers:
      return list_schema(number_schema);
    case T::list:
      return {{"type", "array"}};
    case T::duration:
      return {{"type", "string"}, {"pattern", "^(([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?|[0-9]+(:[0-9]+){3})$"}};
    case T::bytes:
      return either({text_schema, number_schema});
    case T::table:
      return fields_schema(option);
    case T::tables:
      return either({fields_schema(option), list_schema(fields_schema(option))});
    case T::table_or_text:
      return either({table_schema, text_schema});
    case T::other:
      break;
  }
  return json::object();
}

json bounded_schema(const Option& option) {
  json schema = type_schema(option);
  const bool bounded = schema.value("type", "") == "number";
  if (option.minimum && bounded && !option.above_minimum) schema["minimum"] = *option.minimum;
  if (option.maximum && bounded) schema["maximum"] = *option.maximum;
  return schema;
}

json schema_of(const Key& key) {
  json schema = key.schema.is_null() ? bounded_schema(key) : key.schema;
  schema["description"] = key.help;
  return schema;
}

/// `wanted`: whether a key of the table is printed, by its dotted name.
template <typename Wanted>
std::string print_keys(const Recipe& recipe, PrintOrigins origins, Wanted&& wanted) {
  std::string text;
  for (const auto& section : sections()) {
    std::string body;
    auto line = [&](const std::string& name, const json& value) {
      body += name + " = " + toml_value(value);
      if (origins == PrintOrigins::yes) body += "  # " + origin_text(recipe.origin(section.name + "." + name));
      body += '\n';
    };
    for (const auto& key : key_table())
      if (key.section == section.name && wanted(key.dotted()))
        if (auto value = key.get(recipe); shown(key, recipe, value)) line(key.name, value);
    if (section.name == "strategy")
      for (const auto& [name, value] : recipe.strategy.options.items())
        if (!value.is_null()) line(name, value);
    if (section.name == "hooks")
      for (const auto& [hook, options] : recipe.hooks.options.items())
        for (const auto& [name, value] : options.items()) line(toml_key(hook) + "." + toml_key(name), value);
    if (!body.empty()) text += (text.empty() ? "" : "\n") + fmt::format("[{}]\n{}", section.name, body);
  }
  return text;
}

/// The keys whose name, help or choices contain a word: first those that are named so.
std::string keys_about(const std::string& word) {
  std::string named, others;
  for (const auto& key : key_table()) {
    const bool in_name = lower(key.dotted()).find(lower(word)) != std::string::npos;
    const bool about = lower(key.help + " " + join(key.choices, " ")).find(lower(word)) != std::string::npos;
    if (in_name || about) (in_name ? named : others) += fmt::format("  {}\n      {}\n", key.dotted(), key.help);
  }
  return named.empty() && others.empty() ? "" : fmt::format("keys about `{}`:\n{}{}", word, named, others);
}

/// Writes tables as TOML lines with their places.
class ComputedWriter {
 public:
  explicit ComputedWriter(const std::function<Origin(const std::string&)>& place) : place_(place) {}

  /// Values come before tables, because keys after a TOML header belong to that table.
  void table(const json& table, const std::string& header, const std::string& path) {
    for (const auto& [name, value] : table.items())
      if (!value.is_object() && !value.is_null()) line(toml_key(name) + " = " + toml_value(value), join(path, name));
    for (const auto& [name, value] : table.items()) {
      if (!value.is_object()) continue;
      auto inner = join(path, name), inner_header = join(header, toml_key(name));
      line("[" + inner_header + "]", inner);
      this->table(value, inner_header, inner);
    }
  }

  ComputedRecipe done() { return std::move(written_); }

 private:
  static std::string join(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }
  void line(const std::string& text, const std::string& path) {
    written_.toml += text + "\n";
    written_.places.push_back(place_(path));
  }

  const std::function<Origin(const std::string&)>& place_;
  ComputedRecipe written_;
};

}  // namespace

std::string print_recipe(const Recipe& recipe, PrintOrigins origins) {
  return print_keys(recipe, origins, [](const std::string&) { return true; });
}

std::string print_given(const Recipe& recipe) {
  return print_keys(recipe, PrintOrigins::no,
                    [&](const std::string& dotted) { return recipe.origins.contains(dotted); });
}

json recipe_to_json(const Recipe& recipe) {
  json object = json::object();
  for (const auto& key : key_table())
    if (auto value = key.get(recipe); shown(key, recipe, value)) object[key.section][key.name] = value;
  for (const auto& [name, value] : recipe.strategy.options.items()) object["strategy"][name] = value;
  for (const auto& [hook, options] : recipe.hooks.options.items()) object["hooks"][hook] = options;
  return object;
}

json origins_to_json(const Recipe& recipe) {
  json object = json::object();
  for (const auto& key : key_table())
    if (auto value = key.get(recipe); shown(key, recipe, value))
      object[key.dotted()] = origin_text(recipe.origin(key.dotted()));
  for (const auto& [name, value] : recipe.strategy.options.items())
    object["strategy." + name] = origin_text(recipe.origin("strategy." + name));
  for (const auto& [hook, options] : recipe.hooks.options.items())
    for (const auto& [name, value] : options.items()) {
      auto key = "hooks." + hook + "." + name;
      object[key] = origin_text(recipe.origin(key));
    }
  return object;
}

std::string recipe_schema() {
  json properties;
  for (const auto& key : top_level_keys())
    properties[key.name] = {{"description", key.help},
                            {"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}}}};
  for (const auto& section : sections()) {
    json keys = json::object(), main;
    for (const auto& key : key_table()) {
      if (key.section != section.name) continue;
      keys[key.name] = schema_of(key);
      if (key.name == section.main_key) main = schema_of(key);
    }
    if (section.name == "sweep")
      for (const auto& key : sweep_keys())
        if (key.in != SweepKey::In::lua) {
          keys[key.name] = key.schema;
          keys[key.name]["description"] = key.help;
        }
    json others = section.name == "strategy";
    if (section.name == "hooks")
      others = {{"type", "object"}, {"description", "The options of the hook of this name."}};
    json table = {
        {"type", "object"}, {"description", section.help}, {"properties", keys}, {"additionalProperties", others}};
    properties[section.name] = main.is_null() ? table : json{{"anyOf", {table, main}}, {"description", section.help}};
  }
  json schema = {{"$schema", "http://json-schema.org/draft-04/schema#"},
                 {"title", "runner recipe"},
                 {"type", "object"},
                 {"properties", properties},
                 {"additionalProperties", false}};
  return schema.dump(2) + "\n";
}

std::string recipe_help(const std::string& asked, FindName names) {
  std::string text, topic = asked;
  const bool known = asked.empty() || find_section(asked) || find_key(asked);
  if (auto meant = known ? std::nullopt : key_meant_by(asked, names)) {
    topic = *meant;
    text = fmt::format("`{}` is {} here\n", asked, topic);
  }
  bool one_key = topic.find('.') != std::string::npos;
  for (const auto& key : top_level_keys())
    if (topic.empty() || topic == key.name)
      text += fmt::format("{}\n      {}\n      a string or a list of strings\n", key.name, key.help);
  for (const auto& section : sections()) {
    std::string body;
    for (const auto& key : key_table()) {
      if (key.section != section.name || (one_key && key.dotted() != topic)) continue;
      const auto& value = key.default_value;
      std::string facts = wanted(key);
      if (!key.choices.empty()) facts = join_or(key.choices);
      if (key.required && key.needs.key.empty())
        facts += "; required";
      else if (key.help.find("Default:") == std::string::npos && !value.is_null() &&
               !(value.is_string() && value.get<std::string>().empty()) && !(value.is_array() && value.empty()))
        facts += "; default " + toml_value(key.type == Option::Type::bytes ? json(number_text(key, value)) : value);
      if (key.minimum)
        facts += fmt::format("; {} {}", key.above_minimum ? "above" : "at least", number_text(key, *key.minimum));
      if (key.maximum) facts += fmt::format("; at most {}", number_text(key, *key.maximum));
      if (!key.family.empty()) facts += "; for " + key.family_text();
      if (!key.needs.key.empty()) facts += "; for " + key.needs_text();
      body += fmt::format("  {}\n      {}\n      {}\n", key.name, key.help, facts);
    }
    if (section.name == "sweep")
      for (const auto& key : sweep_keys())
        if (!one_key || "sweep." + key.name == topic)
          body += fmt::format("  {}\n      {}\n      {}\n", key.name, key.help, key.wanted);
    bool wanted_section = topic.empty() || topic == section.name || (one_key && !body.empty());
    if (!wanted_section) continue;
    text += fmt::format("[{}] {}\n", section.name, section.help);
    if (!section.unavailable.empty()) text += fmt::format("  [{}] {}\n", section.name, section.unavailable);
    text += body;
  }
  if (text.empty() && topic.size() > 2) text = keys_about(topic);
  if (text.empty()) {
    std::vector<std::string> names;
    for (const auto& key : top_level_keys()) names.push_back(key.name);
    for (const auto& section : sections()) names.push_back(section.name);
    for (const auto& key : key_table()) names.push_back(key.dotted());
    for (const auto& key : sweep_keys()) names.push_back("sweep." + key.name);
    auto near = nearest(topic, names);
    throw usage_error("recipes have no section or key `{}`{}", topic, near ? "; did you mean `" + *near + "`?" : "");
  }
  return text;
}

ComputedRecipe write_computed(const json& recipe, const std::function<Origin(const std::string&)>& place) {
  ComputedWriter writer(place);
  writer.table(recipe, "", "");
  return writer.done();
}

std::string as_sections(const Imported& meaning) {
  std::string text, strategy;
  std::map<std::string, std::string> lines;
  for (const auto& note : meaning.notes) text += "# " + one_line(note) + "\n";
  for (const auto& value : meaning.values) {
    const auto name = value.key.substr(value.key.find('.') + 1);
    const auto line = value.value.is_null() ? fmt::format("# {} stays unset: nothing is clipped\n", name)
                                            : fmt::format("{} = {}{}\n", name, toml_value(value.value),
                                                          value.comment.empty() ? "" : "  # " + value.comment);
    if (value.key.starts_with("strategy."))
      strategy += line;
    else
      lines[value.key] = line;
  }
  for (const auto& section : sections()) {
    std::string body = section.name == "strategy" ? strategy : "";
    for (const auto& key : key_table())
      if (key.section == section.name) body += lines[key.dotted()];
    if (!body.empty()) text += (text.empty() ? "" : "\n") + fmt::format("[{}]\n{}", section.name, body);
  }
  return text;
}

}  // namespace runner
