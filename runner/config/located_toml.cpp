#include "runner/config/located_toml.hpp"

#include <sstream>

#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/toml_source.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// A date or a time, as written; empty for other nodes.
std::string date_text(const toml::node& node) {
  std::ostringstream text;
  if (const auto* date = node.as_date()) text << date->get();
  if (const auto* time = node.as_time()) text << time->get();
  if (const auto* both = node.as_date_time()) text << both->get();
  return text.str();
}

}  // namespace

json to_json(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: {
      json object = json::object();
      for (const auto& [key, value] : *node.as_table()) object[std::string(key.str())] = to_json(value);
      return object;
    }
    case toml::node_type::array: {
      json array = json::array();
      for (const auto& value : *node.as_array()) array.push_back(to_json(value));
      return array;
    }
    case toml::node_type::string:
      return node.as_string()->get();
    case toml::node_type::integer:
      return node.as_integer()->get();
    case toml::node_type::floating_point:
      return node.as_floating_point()->get();
    case toml::node_type::boolean:
      return node.as_boolean()->get();
    default:
      return {{"date", date_text(node)}};
  }
}

LocatedJson to_tree(const toml::node& node, const json& expanded, const Origin& key_place, const TomlSource& source) {
  LocatedJson tree;
  tree.place = source.at(node.source());
  tree.key_place = key_place;
  tree.is_object = node.is_table();
  if (!node.is_table()) tree.value = expanded;
  if (const auto* table = node.as_table())
    for (const auto& [key, value] : *table) {
      std::string name(key.str());
      tree.members.emplace_back(
          name, to_tree(value, expanded.at(name), source.at(key.source(), static_cast<int>(name.size())), source));
    }
  return tree;
}

LocatedJson parse_located_toml(const std::string& text, const std::string& name) {
  TomlSource source{.name = name, .lines = split(text, '\n')};
  const toml::table table = parse_toml(text, source);
  Origin whole;
  whole.file = name;
  auto tree = to_tree(table, to_json(table), whole, source);
  tree.place = whole;
  return tree;
}

}  // namespace runner
