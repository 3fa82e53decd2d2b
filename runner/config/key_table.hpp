// The one table of recipe keys: type, default, bounds and help of each, bound to its field. Reader, printer, schema and
// help are made from it.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

enum class KeyType {
  boolean,
  integer,
  integer_or_auto,
  number,
  text,
  choice,
  path,
  paths,
  texts,
  numbers,
  duration,
  bytes,
  devices,
  precision,
  accumulation,
  table,
  groups,
  stopping
};

/// What makes a key mean something: another key of its section.
struct Need {
  std::string key;                       ///< dotted; empty: nothing is needed
  std::vector<std::string> values = {};  ///< that it must have one of; none: it must be unset

  bool met_by(const nlohmann::json& value) const;
};

struct Key {
  std::string section, name;
  KeyType type;
  std::string help;
  std::vector<std::string> choices = {};
  std::optional<double> minimum = {}, maximum = {};
  bool above_minimum = false;  ///< the minimum itself is not allowed
  bool required = false;
  std::string family = "";  ///< only for this model family
  std::function<void(Recipe&, const nlohmann::json&)> set = {};
  std::function<nlohmann::json(const Recipe&)> get = {};  ///< null: unset
  Need needs = {};

  std::string dotted() const { return section + "." + name; }
  bool needs_met(const Recipe& recipe) const;
  /// What `needs` asks for, in words: "lr_scheduler.name = \"step\"".
  std::string needs_text() const;
};

const std::vector<Key>& key_table();
const Key* find_key(const std::string& section, const std::string& name);
const Key* find_key(const std::string& dotted);

struct Section {
  std::string name;
  std::string main_key;  ///< what `section = value` means; empty: nothing
  std::string help;
  std::string unavailable;  ///< has its place, but does not work yet: why
};
const std::vector<Section>& sections();

/// A key above the sections. Its value is a string or a list of strings.
struct TopLevelKey {
  std::string name, help;
};
const std::vector<TopLevelKey>& top_level_keys();
const Section* find_section(const std::string& name);

/// What a key wants, in words: "an integer", "one of ...".
std::string wanted(const Key& key);

/// Other spellings of a key's choices, in lower case, and the choice that each means.
using Spellings = std::map<std::string, std::string>;
const Spellings& spellings_of(const Key& key);

}  // namespace runner
