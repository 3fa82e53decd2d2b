#include "runner/sweep/space_reader.hpp"

#include <cmath>
#include <utility>

#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "runner/lua/error.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner::sweep {

using nlohmann::json;

namespace {

const std::vector<std::string> kinds = {"uniform", "log_uniform", "integer", "choice"};

class SpaceReader {
 public:
  SpaceReader(bool grid, Problems& problems) : grid_(grid), problems_(problems) {}

  ReadSpace read(const LocatedJson& table) {
    descend(table, "");
    for (auto& parameter : space_.parameters)
      if (!parameter.parent.empty()) check_when(parameter);
    std::stable_sort(space_.parameters.begin(), space_.parameters.end(), [&](const Parameter& a, const Parameter& b) {
      const auto &left = space_.places.at(a.name), &right = space_.places.at(b.name);
      return std::pair(left.line, left.column) < std::pair(right.line, right.column);
    });
    return std::move(space_);
  }

 private:
  /// `optimizer.lr = ...` without quotes is a table `optimizer` with a key `lr`; below `hooks` there is one more.
  void descend(const LocatedJson& table, const std::string& prefix) {
    for (const auto& [name, value] : table.members) {
      if (value.is_object && (prefix == "hooks." || (prefix.empty() && find_section(name))))
        descend(value, prefix + name + ".");
      else
        parameter(prefix + name, value);
    }
  }

  void parameter(const std::string& name, const LocatedJson& value) {
    if (space_.places.contains(name)) {
      problems_.add(value.key_place, "duplicate", fmt::format("`{}` is given twice in the space", name));
      return;
    }
    if (!known(name, value.key_place)) return;
    Parameter parameter;
    parameter.name = name;
    bool read = value.is_object ? range(parameter, value) : choices(parameter, value, value.value, "choice");
    if (!read || !fits_key(parameter, value.place)) return;
    space_.places[name] = value.key_place;
    space_.parameters.push_back(std::move(parameter));
  }

  bool known(const std::string& name, const Origin& place) {
    auto diagnostic = unknown_key(name);
    if (!diagnostic) return true;
    diagnostic->place = place;
    problems_.add(*diagnostic);
    return false;
  }

  bool range(Parameter& parameter, const LocatedJson& table) {
    auto where = fmt::format("the range of `{}`", parameter.name);
    check_names(table, {"uniform", "log_uniform", "integer", "choice", "step", "log", "points", "when"}, where,
                problems_);
    const LocatedJson* chosen = nullptr;
    std::string kind;
    for (const auto& name : kinds)
      if (const auto* found = table.find(name)) {
        if (chosen) {
          problems_.add(found->key_place, "contradiction",
                        fmt::format("{} is `{}` or `{}`, not both", where, kind, name));
          return false;
        }
        chosen = found;
        kind = name;
      }
    if (!chosen) {
      problems_.add(table.place, "missing-key", fmt::format("{} needs one of {}", where, join_or(kinds)));
      return false;
    }
    bool good = kind == "choice" ? choices(parameter, *chosen, chosen->value, kind) : ends(parameter, *chosen, kind);
    for (const char* name : {"step", "log", "points"})
      if (const auto* found = table.find(name)) good = detail(parameter, name, *found, kind) && good;
    if (const auto* when = table.find("when")) good = condition(parameter, *when) && good;
    return good;
  }

  bool choices(Parameter& parameter, const LocatedJson& at, const json& list, const std::string& name) {
    parameter.kind = Parameter::Kind::choice;
    if (!list.is_array() || list.empty()) {
      wrong_type(at, name == "choice" ? parameter.name : name, "a list of values, or a range", problems_);
      return false;
    }
    for (const auto& value : list) {
      if (std::find(parameter.choices.begin(), parameter.choices.end(), value) != parameter.choices.end()) {
        problems_.add(at.place, "duplicate", fmt::format("`{}` has the choice {} twice", parameter.name, value.dump()));
        return false;
      }
      parameter.choices.push_back(value);
    }
    return true;
  }

  bool ends(Parameter& parameter, const LocatedJson& at, const std::string& kind) {
    const auto& value = at.value;
    bool whole = kind == "integer";
    auto fits = [&](const json& end) { return whole ? end.is_number_integer() : end.is_number(); };
    if (at.is_object || !value.is_array() || value.size() != 2 || !fits(value[0]) || !fits(value[1]) ||
        !std::isfinite(value[0].get<double>()) || !std::isfinite(value[1].get<double>())) {
      wrong_type(at, kind, whole ? "[lowest, highest], two integers" : "[lowest, highest], two numbers", problems_);
      return false;
    }
    parameter.kind = whole ? Parameter::Kind::integer : Parameter::Kind::real;
    parameter.low = value[0];
    parameter.high = value[1];
    parameter.log = kind == "log_uniform";
    if (whole) whole_ends(parameter, value[0], value[1]);
    if (value[0] > value[1]) return out(at, fmt::format("`{}` of `{}` begins above its end", kind, parameter.name));
    return positive_if_log(parameter, at);
  }

  /// Integers beyond 2^53 are kept exactly.
  static void whole_ends(Parameter& parameter, int64_t low, int64_t high) {
    constexpr int64_t exact_max = int64_t{1} << 53;
    parameter.most = high;
    if ((low >= -exact_max && high <= exact_max) || low > high) return;
    parameter.origin = low;
    parameter.low = 0;
    parameter.high = static_cast<double>(static_cast<uint64_t>(high) - static_cast<uint64_t>(low));
  }

  bool positive_if_log(const Parameter& parameter, const LocatedJson& at) {
    if (!parameter.log || parameter.low > 0) return true;
    return out(at, fmt::format("a logarithmic range must begin above 0; that of `{}` begins at {}", parameter.name,
                               parameter.low));
  }

  bool detail(Parameter& parameter, const std::string& name, const LocatedJson& at, const std::string& kind) {
    bool means = name == "step"  ? kind == "integer" || kind == "uniform"
                 : name == "log" ? kind == "integer"
                                 : kind != "choice";
    if (!means) return out(at, fmt::format("`{}` has no effect with `{}`", name, kind));
    if (name == "points" && !grid_) return out(at, "`points` is for method = \"grid\" only");
    Option option{.name = name, .type = Option::Type::boolean};
    if (name != "log") {
      option.type = name == "points" || kind == "integer" ? Option::Type::integer : Option::Type::number;
      option.minimum = 0;
      option.above_minimum = true;
    }
    json value = at.plain();
    if (const auto problem = check_option(option, value)) {
      problems_.add(diagnostic_of(*problem, at.place));
      return false;
    }
    if (name == "step") parameter.step = value;
    if (name == "points") parameter.points = value;
    if (name == "log" && value == true) {  // logarithms are of values, not of distances
      parameter.log = true;
      parameter.low += static_cast<double>(parameter.origin);
      parameter.high += static_cast<double>(std::exchange(parameter.origin, 0));
    }
    return name != "log" || positive_if_log(parameter, at);
  }

  bool condition(Parameter& parameter, const LocatedJson& at) {
    const LocatedJson* values = at.is_object && at.members.size() == 1 ? &at.members[0].second : nullptr;
    if (!values || values->is_object || values->value == json::array())
      return wrong(at, "when", "{ \"KEY\" = value } or { \"KEY\" = [values] }, one key");
    parameter.parent = at.members[0].first;
    parameter.when = values->value.is_array() ? values->value.get<std::vector<json>>() : std::vector{values->value};
    when_places_[parameter.name] = values->place;
    return true;
  }

  /// Checks that the values of `when` are values of the parent, and replaces each by the parent's value. With any other
  /// value the parameter would never be active. Space reports a missing parent.
  void check_when(Parameter& parameter) {
    auto parent = std::find_if(space_.parameters.begin(), space_.parameters.end(),
                               [&](const Parameter& other) { return other.name == parameter.parent; });
    if (parent == space_.parameters.end()) return;
    const bool finite = parent->count() > 0 || (grid_ && parent->points > 0);
    for (auto& value : parameter.when) {
      auto near = finite ? closest(*parent, value) : std::nullopt;
      if (near && same(*near, value)) {
        value = *near;
        continue;
      }
      Diagnostic diagnostic{when_places_.at(parameter.name), "not-allowed"};
      diagnostic.message =
          fmt::format("`when` of `{}`: `{}` never has the value {}", parameter.name, parent->name, value.dump());
      for (const auto& choice : parent->choices) diagnostic.allowed.push_back(word(choice));
      if (near) diagnostic.suggestion = word(*near);
      if (!finite)
        diagnostic.other_message = fmt::format("`{}` is a continuous range: give it a `step` or a list", parent->name);
      else if (parent->choices.empty() && !near)
        diagnostic.other_message = fmt::format("its values are from {} to {}", word(parent->value_at(parent->low)),
                                               word(parent->value_at(parent->high)));
      problems_.add(diagnostic);
    }
  }

  /// The parent's value closest to `value`; nothing if none is close.
  std::optional<json> closest(const Parameter& parent, const json& value) const {
    if (parent.kind == Parameter::Kind::choice) {
      for (const auto& choice : parent.choices)
        if (choice == value) return choice;
      std::vector<std::string> words;
      for (const auto& choice : parent.choices) words.push_back(word(choice));
      auto near = nearest(word(value), words);
      if (!near) return std::nullopt;
      return parent.choices[static_cast<size_t>(std::find(words.begin(), words.end(), *near) - words.begin())];
    }
    if (!value.is_number()) return std::nullopt;
    const double number = parent.distance(value);
    if (!grid_) return parent.rounded(number);
    auto values = parent.grid();
    return *std::min_element(values.begin(), values.end(), [&](const json& a, const json& b) {
      return std::abs(parent.distance(a) - number) < std::abs(parent.distance(b) - number);
    });
  }

  static std::string word(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

  /// Whether two values are equal up to rounding: 0.3 equals the third step of 0.1.
  static bool same(const json& a, const json& b) {
    if (!a.is_number() || !b.is_number() || (a.is_number_integer() && b.is_number_integer())) return a == b;
    return std::abs(a.get<double>() - b.get<double>()) <= 1e-9 * std::abs(a.get<double>());
  }

  /// Checks that ends and choices are valid values of the recipe key.
  bool fits_key(Parameter& parameter, const Origin& place) {
    const Key* key = find_key(parameter.name);
    if (!key) return true;
    if (parameter.kind == Parameter::Kind::real && parameter.step == 0 &&
        (key->type == Option::Type::integer || key->type == Option::Type::integer_or_auto)) {
      problems_.add(place, "wrong-type",
                    fmt::format("`{}` is an integer: write integer = [lowest, highest]", parameter.name));
      return false;
    }
    std::vector<json> values = parameter.choices;
    for (double end : {parameter.low, parameter.high})
      if (parameter.choices.empty()) values.push_back(parameter.value_at(end));
    for (auto value : values)
      if (auto diagnostic = check_value(*key, value)) {
        diagnostic->place = place;
        problems_.add(*diagnostic);
        return false;
      }
    return true;
  }

  bool out(const LocatedJson& at, const std::string& message) {
    problems_.add(at.place, "out-of-bounds", message);
    return false;
  }
  bool wrong(const LocatedJson& at, const std::string& name, const std::string& wanted) {
    wrong_type(at, name, wanted, problems_);
    return false;
  }

  bool grid_;
  Problems& problems_;
  ReadSpace space_;
  std::map<std::string, Origin> when_places_;
};

bool all_finite(const json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  if (!value.is_structured()) return true;
  for (const auto& item : value)
    if (!all_finite(item)) return false;
  return true;
}

/// The diagnostic in one line. render() uses several.
std::string brief(const Diagnostic& diagnostic) {
  if (diagnostic.suggestion) return fmt::format("{}; did you mean `{}`?", diagnostic.message, *diagnostic.suggestion);
  if (!diagnostic.allowed.empty())
    return fmt::format("{}; it is one of {}", diagnostic.message, join_or(diagnostic.allowed));
  return diagnostic.other_message.empty() ? diagnostic.message : diagnostic.message + "; " + diagnostic.other_message;
}

void flatten(const json& table, const std::string& prefix, const std::string& what, json& flat) {
  for (const auto& [name, value] : table.items()) {
    const bool hook = prefix == "hooks.";
    if (value.is_object() && (hook || (prefix.empty() && find_section(name)))) {
      flatten(value, prefix + name + ".", what, flat);
      continue;
    }
    if (flat.contains(prefix + name))
      throw lua::ScriptMistake(fmt::format("{}: `{}` is given twice", what, prefix + name));
    flat[prefix + name] = value;
  }
}

}  // namespace

ReadSpace read_space(const LocatedJson& table, bool grid, Problems& problems) {
  return SpaceReader(grid, problems).read(table);
}

std::optional<Diagnostic> unknown_key(const std::string& name) {
  auto dot = name.find('.');
  const bool of_strategy = name.starts_with("strategy.") && name.size() > 9;
  const bool of_hook = name.starts_with("hooks.") && name.find('.', 6) != std::string::npos && name.back() != '.';
  if (of_strategy || of_hook || find_key(name)) return std::nullopt;
  std::vector<std::string> all;
  for (const auto& key : key_table()) all.push_back(key.dotted());
  Diagnostic diagnostic{{}, "unknown-key", fmt::format("the recipe has no key `{}`", name)};
  const Section* section = find_section(name);
  diagnostic.suggestion = section && !section->main_key.empty() ? name + "." + section->main_key : nearest(name, all);
  std::string last = dot == std::string::npos ? name : name.substr(name.rfind('.') + 1);
  if (!diagnostic.suggestion) diagnostic.suggestion = key_meant_by(last, find_argument);
  const std::string whole = name.substr(0, name.rfind('.'));
  if (find_key(whole)) diagnostic.suggestion = whole;  // for example a part of a table
  if (!diagnostic.suggestion) diagnostic.other_message = "`runner help recipe` lists all keys";
  return diagnostic;
}

json checked_parameters(const json& given, const std::string& what) {
  json flat = json::object();
  if (given.is_array() && !given.empty())
    throw lua::ScriptMistake(what + ": needs a table from recipe keys to values, not a list");
  if (given.is_object()) flatten(given, "", what, flat);  // Lua's {} is converted to an empty list
  for (auto& [name, value] : flat.items()) {
    if (auto wrong = unknown_key(name)) throw lua::ScriptMistake(what + ": " + brief(*wrong));
    if (!all_finite(value)) throw lua::ScriptMistake(fmt::format("{}: `{}` is not a finite number", what, name));
    const Key* key = find_key(name);
    if (!key) continue;
    if (auto wrong = check_value(*key, value)) throw lua::ScriptMistake(what + ": " + brief(*wrong));
  }
  return flat;
}

}  // namespace runner::sweep
