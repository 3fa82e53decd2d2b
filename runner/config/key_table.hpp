// The table of recipe keys: type, bounds, help and field of each key, and the check of its values. Reader, printer, schema and help use it.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/option.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// The condition under which a key applies: a value of another key in its section.
struct Need {
  std::string key;                       ///< dotted; empty: no condition
  std::vector<std::string> values = {};  ///< the key must have one of these; empty: see `set`
  bool set = false;                      ///< without `values`: whether the key must be set or unset

  bool met_by(const nlohmann::json& value) const;
};

/// Key::family of keys that every language model has.
inline constexpr const char* language_models = "gpt decoder encoder";

struct Key : Option {
  std::string section = "";
  std::string family =
      "";              ///< the kinds of families that have this key (family_kind()), with spaces between; empty: all
  bool quiet = false;  ///< printed only if the value is not the family's default
  Need needs = {};
  std::function<void(Recipe&, const nlohmann::json&)> set = {};
  std::function<nlohmann::json(const Recipe&)> get = {};  ///< null: unset
  nlohmann::json schema = nullptr;                        ///< for type `other`: the values, as JSON Schema
  bool secret =
      false;  ///< ${env:NAME} stays as it is written, so that no record has its value; who uses the key expands it
  bool tokens = false;  ///< only for data that consist of tokens, and not for rows of tables and images

  std::string dotted() const { return section + "." + name; }
  bool in_family(const std::string& name) const;
  /// The families that have the key, for messages: "gpt models".
  std::string family_text() const;
  bool needs_met(const Recipe& recipe) const;
  /// The condition `needs` in words: "lr_scheduler.name = \"step\"".
  std::string needs_text() const;
};

const std::vector<Key>& key_table();
const Key* find_key(const std::string& section, const std::string& name);
const Key* find_key(const std::string& dotted);

struct Section {
  std::string name;
  std::string main_key = "";  ///< the key that `section = value` sets; empty: none
  std::string help;
  std::string unavailable = "";  ///< why a recipe cannot have the section; empty: it can
};
const std::vector<Section>& sections();

/// A key outside the sections. Its value is a string or a list of strings.
struct TopLevelKey {
  std::string name, help;
};
const std::vector<TopLevelKey>& top_level_keys();
const Section* find_section(const std::string& name);

// The check of values.

/// A problem of an option as a mistake at `place`.
Diagnostic diagnostic_of(const OptionProblem& problem, const Origin& place = {}, const std::string& section = "");

/// Checks `value`, and converts it to the form that the setter of `key` takes. Returns the mistake, without a location, if any.
std::optional<Diagnostic> check_value(const Key& key, nlohmann::json& value);

}  // namespace runner
