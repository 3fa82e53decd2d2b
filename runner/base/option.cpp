#include "runner/base/option.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;
using Type = Option::Type;

bool to_integer(json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  double number = value.get<double>();
  if (number != std::floor(number) || std::abs(number) > 9e15) return false;
  value = static_cast<int64_t>(number);
  return true;
}

std::string value_text(const json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return nonfinite_word(value.get<double>());
  bool date = value.is_object() && value.size() == 1 && value.contains("date") && value["date"].is_string();
  return date ? "the date " + value["date"].get<std::string>() : shortened_json(value);
}

namespace {

/// A type in words, and its name for scripts.
struct TypeWords {
  const char* wanted;
  const char* name;
};

/// The rows are in the order of Option::Type.
constexpr TypeWords type_words[] = {
    {"true or false", "boolean"},
    {"an integer", "integer"},
    {"an integer or \"auto\"", "integer"},
    {"a number", "number"},
    {"a list of two numbers", "numbers"},
    {"a list of numbers", "numbers"},
    {"a string", "string"},
    {"a string", "choice"},
    {"a string", "string"},
    {"a list of strings", "names"},
    {"a list of strings", "names"},
    {"a string or a list of strings", "names"},
    {"a list", "list"},
    {"a duration such as \"30m\" or \"1d12h\"", "duration"},
    {"a size such as \"22GiB\"", "size"},
    {"a table", "table"},
    {"a table or a list of tables", "table"},
    {"a table or a string", "table"},
    {"a table", "table"},
};
static_assert(std::size(type_words) == static_cast<size_t>(Type::other) + 1);

const TypeWords& words_of(Type type) { return type_words[static_cast<size_t>(type)]; }

}  // namespace

std::string wanted(const Option& option) {
  return option.wanted.empty() ? words_of(option.type).wanted : option.wanted;
}

std::string type_name(const Option& option) { return words_of(option.type).name; }

std::string number_text(const Option& option, double number) {
  if (option.type != Type::bytes) return fmt::format("{}", number);
  static constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; number != 0 && std::fmod(number, 1024) == 0 && unit + 1 < units.size(); ++unit) number /= 1024;
  return fmt::format("{}{}", number, units[unit]);
}

namespace {

bool is_script(const json& value) { return value.is_string() && value.get<std::string>().starts_with("lua:"); }

bool all_of(const json& list, bool (json::*is)() const noexcept) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [&](const json& item) { return (item.*is)(); });
}

/// Converts "Enumeration.CHOICE" of Python to "CHOICE". The name of the enumeration begins with an upper-case letter. With
/// `modules`, also converts "module.CHOICE".
std::string without_enumeration(const std::string& value, bool modules) {
  const auto dot = value.rfind('.');
  if (dot == std::string::npos || dot == 0) return value;
  const auto path = value.substr(0, dot), last = path.substr(path.rfind('.') + 1);
  const bool named = !last.empty() && (modules || std::isupper(static_cast<unsigned char>(last[0]))) &&
                     std::ranges::all_of(path, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
  return named ? value.substr(dot + 1) : value;
}

/// Checks one value.
class Checker {
 public:
  /// `name`: of the option, for messages.
  Checker(const Option& option, std::string name, json& value)
      : option_(option), name_(std::move(name)), value_(value) {}

  std::optional<OptionProblem> check() {
    if (option_.refuses && !(option_.takes_script && is_script(value_)))
      if (auto reason = option_.refuses(value_); !reason.empty())
        return OptionProblem{.code = option_.choices.empty() ? "wrong-type" : "not-allowed",
                             .message = reason,
                             .allowed = option_.choices};
    if (!convert())
      return OptionProblem{"wrong-type",
                           fmt::format("{} must be {}, not {}", name_, wanted(option_), value_text(value_))};
    if (auto problem = choice()) return problem;
    if (auto problem = fields()) return problem;
    if (auto problem = bounds()) return problem;
    return own_check();
  }

 private:
  /// Whether the value has the type of the option. Converts it.
  bool convert() {
    switch (option_.type) {
      case Type::boolean:
        return value_.is_boolean();
      case Type::integer:
        return to_integer(value_);
      case Type::integer_or_auto:
        return value_ == "auto" || to_integer(value_);
      case Type::number:
        return value_.is_number();
      case Type::pair:
        return all_of(value_, &json::is_number) && value_.size() == 2;
      case Type::numbers:
        return all_of(value_, &json::is_number) && !value_.empty();
      case Type::text:
      case Type::path:
        return value_.is_string();
      case Type::choice:
        if (value_.is_number_integer() && takes_numbers()) value_ = value_.dump();  // 32
        return value_.is_string();
      case Type::texts:
      case Type::paths:
        if (value_.is_string()) value_ = json::array({value_});
        return all_of(value_, &json::is_string);
      case Type::names:
        return value_.is_string() || (all_of(value_, &json::is_string) && !value_.empty());
      case Type::list:
        return value_.is_array();
      case Type::duration:
        return value_.is_string() && parse_duration(value_.get<std::string>());
      case Type::bytes:
        if (value_.is_string())
          if (auto bytes = parse_bytes(value_.get<std::string>())) value_ = *bytes;
        return to_integer(value_);
      case Type::table:
        return value_.is_object();
      case Type::tables:
        if (value_.is_object()) value_ = json::array({value_});
        return all_of(value_, &json::is_object);
      case Type::table_or_text:
        return value_.is_object() || value_.is_string() || value_.is_boolean();
      case Type::other:
        return true;
    }
    return false;
  }

  /// Whether a spelling of a choice is a number.
  bool takes_numbers() const {
    return std::any_of(option_.spellings.begin(), option_.spellings.end(), [](const auto& spelling) {
      return spelling.first.find_first_not_of("0123456789") == std::string::npos;
    });
  }

  /// Checks choices, and replaces other spellings of a choice.
  std::optional<OptionProblem> choice() {
    if (option_.type != Type::choice || (option_.takes_script && is_script(value_))) return {};
    const auto& choices = option_.choices;
    const auto given = value_.get<std::string>();
    const bool exact = std::find(choices.begin(), choices.end(), given) != choices.end();
    if (exact && !option_.spellings.contains(lower(given))) return {};
    for (const auto& word : {given, without_enumeration(given, !option_.spellings.empty())}) {
      auto spelling = option_.spellings.find(lower(word));
      if (spelling != option_.spellings.end()) value_ = spelling->second;
      for (const auto& choice : choices)
        if (lower(choice) == lower(word) && spelling == option_.spellings.end()) value_ = choice;
      if (std::find(choices.begin(), choices.end(), value_) != choices.end()) return {};
    }
    return OptionProblem{.code = "not-allowed",
                         .message = fmt::format("{} cannot be {}", name_, value_text(value_)),
                         .allowed = choices,
                         .suggestion = nearest(given, choices)};
  }

  std::optional<OptionProblem> fields() {
    if (option_.fields.empty() || (option_.type != Type::table && option_.type != Type::tables)) return {};
    if (option_.type == Type::table) return fields_of(value_, option_.name);
    for (auto& item : value_) {
      const auto title = title_of(item);
      if (title.empty())
        return OptionProblem{"wrong-type",
                             fmt::format("{} must be {}, not {}", name_, wanted(option_), value_text(value_))};
      auto noun = option_.name.ends_with("s") ? option_.name.substr(0, option_.name.size() - 1) : option_.name;
      if (auto problem = fields_of(item, fmt::format("the {} {}", noun, title))) return problem;
    }
    return {};
  }

  /// The first field names an item: "the group "blocks.*"". If it is a list, one of the texts can name it instead. "": no name.
  std::string title_of(const json& item) const {
    const bool lists = option_.fields.front().type == Type::texts;
    for (const auto& field : option_.fields) {
      const auto found = item.find(field.name);
      if (found != item.end() && (found->is_string() || (lists && found->is_array()))) return value_text(*found);
      if (!lists) break;
    }
    return "";
  }

  std::optional<OptionProblem> fields_of(json& table, const std::string& owner) {
    for (auto& [name, value] : table.items()) {
      if (const Option* field = find_option(option_.fields, name)) {
        if (auto problem = Checker(*field, fmt::format("`{}` of {}", name, owner), value).check()) return problem;
        continue;
      }
      OptionProblem problem{
          .code = "not-allowed", .message = fmt::format("{} has no `{}`", owner, name), .unknown_field = name};
      for (const auto& field : option_.fields) problem.allowed.push_back(field.name);
      problem.suggestion = nearest(name, problem.allowed);
      return problem;
    }
    return {};
  }

  std::optional<OptionProblem> bounds() const {
    for (const auto& number : value_.is_array() ? value_ : json::array({value_}))
      if (auto message = number.is_number() ? bounds_message(number) : ""; !message.empty())
        return OptionProblem{"out-of-bounds", message};
    return {};
  }

  std::string bounds_message(const json& given) const {
    const auto number = given.get<double>();
    const auto &minimum = option_.minimum, &maximum = option_.maximum;
    const auto text = option_.type == Type::bytes ? number_text(option_, number) : value_text(given);
    if (std::isnan(number)) return fmt::format("{} must be a number, not NaN", name_);
    if (minimum && (number < *minimum || (option_.above_minimum && number == *minimum)))
      return fmt::format("{} must be {} {}, not {}", name_, option_.above_minimum ? "above" : "at least",
                         number_text(option_, *minimum), text);
    if (maximum && number > *maximum)
      return fmt::format("{} must be at most {}, not {}", name_, number_text(option_, *maximum), text);
    return std::isfinite(number) || option_.may_be_infinite ? "" : fmt::format("{} must be finite", name_);
  }

  std::optional<OptionProblem> own_check() {
    auto reason = option_.fits ? option_.fits(value_) : std::nullopt;
    if (!reason) return {};
    if (!reason->empty()) return OptionProblem{"wrong-type", *reason};
    return OptionProblem{"wrong-type",
                         fmt::format("{} must be {}, not {}", name_, wanted(option_), value_text(value_))};
  }

  const Option& option_;
  std::string name_;
  json& value_;
};

}  // namespace

std::optional<OptionProblem> check_option(const Option& option, json& value) {
  return Checker(option, fmt::format("`{}`", option.name), value).check();
}

}  // namespace runner
