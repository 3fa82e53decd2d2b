// The one record for all settings that a user can give (keys of recipes, options of strategies, search methods and Lua scripts), and
// the one checker of their values.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

struct Option {
  enum class Type {
    boolean,
    integer,
    integer_or_auto,
    number,
    pair,     ///< two numbers
    numbers,  ///< one or more numbers
    text,
    choice,
    path,
    texts,  ///< strings; one string becomes a list
    paths,  ///< paths; one path becomes a list
    names,  ///< one string, which stays a string, or a list of one or more
    list,   ///< any list
    duration,
    bytes,   ///< a size; becomes a number of bytes
    table,   ///< a table of `fields`
    tables,  ///< a list of tables of `fields`
    table_or_text,
    other  ///< `fits` decides
  };

  std::string name = "";
  Type type = Type::boolean;  ///< a row that binds a member has the member's type, unless it gives another one
  nlohmann::json default_value = nullptr;  ///< null: unset
  std::string help = "";
  std::vector<std::string> choices = {};
  std::map<std::string, std::string> spellings = {};  ///< other spellings of choices, in lower case, and their choice
  std::optional<double> minimum = {}, maximum = {};   ///< of each number
  bool above_minimum = false;                         ///< the minimum itself is not allowed
  bool may_be_infinite = false;
  bool required = false;
  bool takes_script = false;        ///< a choice, or "lua:FILE.lua"
  std::vector<Option> fields = {};  ///< of a table
  std::string wanted = "";          ///< the type in words, if `type` does not say it
  std::string note = "";            ///< printed if a recipe sets the option (e.g. why it has no effect)
  /// A further check of a value of the right type. It may convert the value. Returns nullopt if the value fits, "" for the
  /// message "must be WANTED", or else the message.
  std::function<std::optional<std::string>(nlohmann::json& value)> fits = {};
  /// The message for a value that another tool knows and that is not supported here; empty for all other values.
  std::function<std::string(const nlohmann::json& value)> refuses = {};
};

/// A mistake in a value.
struct OptionProblem {
  std::string code;                            ///< "wrong-type", "not-allowed" or "out-of-bounds"
  std::string message;                         ///< "`lr` must be at least 0, not -1"
  std::vector<std::string> allowed = {};       ///< choices, or names of fields
  std::optional<std::string> suggestion = {};  ///< the nearest of them
  std::string unknown_field = "";              ///< a name that is not in `fields`
};

/// Checks `value` and converts it to the form that programs read. An integer: 2e8 to 200000000. A choice: other spellings,
/// and "ShardingStrategy.FULL_SHARD". A size: "22GiB" to bytes. A list: one string to a list.
std::optional<OptionProblem> check_option(const Option& option, nlohmann::json& value);

/// The type of an option in words: "an integer", "a list of strings".
std::string wanted(const Option& option);
/// The name of the type for scripts: "integer", "string", "names".
std::string type_name(const Option& option);
/// A number of an option for messages. Sizes have a unit: "64MiB".
std::string number_text(const Option& option, double number);
/// A value for messages: JSON; "nan", "inf"; "the date ..." for { date = "..." }, with which readers represent dates.
std::string value_text(const nlohmann::json& value);

/// Whether `value` is an integer of 64 bits. A float without a fraction (2e8) is converted to one.
bool to_integer(nlohmann::json& value);

/// The option with this name, or nullptr.
template <typename Options>
auto find_option(Options& options, const std::string& name) -> decltype(&*options.begin()) {
  for (auto& option : options)
    if (option.name == name) return &option;
  return nullptr;
}

/// `given`, and the defaults of the options that it lacks.
template <typename Options>
nlohmann::json with_defaults(const Options& options, nlohmann::json given) {
  for (const auto& option : options)
    if (!given.contains(option.name) && !option.default_value.is_null()) given[option.name] = option.default_value;
  return given;
}

}  // namespace runner
