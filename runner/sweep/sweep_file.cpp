#include "runner/sweep/sweep_file.hpp"

#include <algorithm>
#include <map>

#include "runner/base/files.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/located_json.hpp"
#include "runner/config/sweep_keys.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/lua_script.hpp"
#include "runner/sweep/lua_sweep.hpp"
#include "runner/sweep/methods.hpp"
#include "runner/sweep/space_reader.hpp"

namespace runner::sweep {

namespace {

using nlohmann::json;

/// The names in the tables of [sweep] that limit it.
const std::map<std::string, std::vector<std::string>> limit_names = {
    {"budget", {"trials", "time", "trial_time"}}, {"stop", {"target", "no_improvement", "failures"}}};

class SweepReader {
 public:
  SweepReader(SweepFile& sweep, bool snapshot) : sweep_(sweep), snapshot_(snapshot) {}

  void read(const LocatedJson& file) {
    if (!file.find("sweep") && file.find("model")) {
      problems_.add(file.place, "missing-key",
                    "this is a recipe, not a sweep file: a sweep file has a section [sweep]");
      problems_.throw_if_any();
    }
    for (const auto& [name, value] : file.members)
      if (name != "sweep")
        problems_.add(value.key_place, "unknown-key",
                      fmt::format("a sweep's file has [sweep] only; `{}` belongs in the recipe that it names, or in "
                                  "[sweep.set], as \"{}.KEY\" = VALUE for all trials",
                                  name, name));
    const auto* table = file.find("sweep");
    if (!table || !table->is_object) {
      problems_.add(file.place, "missing-key", "a sweep's file needs a section [sweep]");
      problems_.throw_if_any();
    }
    const auto known = sweep_key_names(SweepKey::In::toml);
    for (const auto& [name, value] : table->members) {
      if (std::ranges::find(known, name) != known.end()) continue;
      if (const auto line = line_of_option(*table, name); !line.empty()) {
        problems_.add(value.key_place, "unknown-key",
                      fmt::format("unknown key `{}` in [sweep]: it is written inside another key: {}", name, line));
        continue;
      }
      const bool is_shared = value.is_object || name == "overrides";
      problems_.add(value.key_place, "unknown-key",
                    fmt::format("unknown key `{}` in [sweep]{}", name,
                                is_shared ? ": values that all trials share are in [sweep.set]" : ""),
                    known, name);
    }
    method(*table);
    read_rest(*table);
  }

  /// The table that a file in Lua returns.
  void read_lua(const LocatedJson& table) {
    sweep_.method = "lua";
    if (const auto* named = table.find("method"))
      problems_.add(named->key_place, "contradiction",
                    "a sweep in Lua has no `method`: its `run` decides what is tried");
    else
      check_names(table, sweep_key_names(SweepKey::In::lua), "the table of a sweep", problems_);
    read(table, {.name = "reports"}, [&](const json& value) { sweep_.reports = value; });
    read_rest(table);
  }

 private:
  void read_rest(const LocatedJson& table) {
    simple_keys(table);
    recipe(table);
    limits(table);
    space(table);
    problems_.throw_if_any();
  }

  /// Checks the value of `option` in `table`, if it is there, and passes it to `use` in the form that the type has.
  template <typename Use>
  const LocatedJson* read(const LocatedJson& table, const Option& option, Use&& use) {
    const auto* found = table.find(option.name);
    if (!found) return nullptr;
    json value = found->plain();
    if (const auto problem = check_option(option, value))
      problems_.add(diagnostic_of(*problem, found->place));
    else
      use(value);
    return found;
  }

  const LocatedJson* text(const LocatedJson& table, const std::string& name, std::string& target) {
    auto not_empty = [](const json& value) { return value == "" ? std::optional<std::string>("") : std::nullopt; };
    return read(table, {.name = name, .type = Option::Type::text, .fits = not_empty},
                [&](const json& value) { target = value; });
  }

  /// The first choice is the default.
  std::string one_of(const LocatedJson& table, const std::string& name, const std::vector<std::string>& allowed) {
    std::string word = allowed.front();
    read(table, {.name = name, .type = Option::Type::choice, .choices = allowed},
         [&](const json& value) { word = value; });
    return word;
  }

  template <typename Target>
  void integer(const LocatedJson& table, const std::string& name, double least, Target& target) {
    read(table, {.name = name, .type = Option::Type::integer, .minimum = least},
         [&](const json& value) { target = value.get<int64_t>(); });
  }

  void duration(const LocatedJson& table, const std::string& name, std::optional<double>& target) {
    read(table, {.name = name, .type = Option::Type::duration},
         [&](const json& value) { target = static_cast<double>(parse_duration(value.get<std::string>())->count()); });
  }

  void simple_keys(const LocatedJson& table) {
    text(table, "name", sweep_.name);
    text(table, "metric", sweep_.metric);
    const auto goal = one_of(table, "goal", {"min", "max"});
    const bool larger = table.find("goal") ? goal == "max" : higher_is_better(sweep_.metric);
    sweep_.goal = larger ? Goal::max : Goal::min;
    sweep_.best_value = one_of(table, "value", {"last", "best"}) == "best";
    integer(table, "seed", 0, sweep_.seed);
    read(table, {.name = "parallel", .type = Option::Type::integer_or_auto, .minimum = 1}, [&](const json& value) {
      if (value != "auto") sweep_.parallel = static_cast<int>(std::min(value.get<int64_t>(), int64_t{100'000}));
    });
  }

  void recipe(const LocatedJson& table) {
    const auto* found = text(table, "recipe", sweep_.named_recipe);
    if (!found) {
      problems_.add(table.place, "missing-key",
                    fmt::format("{} needs `recipe`: the file that is varied, relative to this one",
                                sweep_.in_lua() ? "a sweep" : "[sweep]"));
      return;
    }
    sweep_.named_recipe = (fs::absolute(sweep_.file).parent_path() / sweep_.named_recipe).lexically_normal().string();
    if (!snapshot_) {
      const bool there = fs::exists(sweep_.named_recipe) && !fs::is_directory(sweep_.named_recipe);
      if (there)
        sweep_.recipe = sweep_.named_recipe;
      else
        problems_.add(found->place, "missing-file", fmt::format("the recipe {} does not exist", sweep_.named_recipe));
    }
    const auto* set = table.find("set");
    if (!set) return;
    if (!set->is_object) return wrong_type(*set, "set", "a table of recipe keys and values", problems_);
    add_set(*set, "");
  }

  void add_set(const LocatedJson& table, const std::string& prefix) {
    for (const auto& [name, value] : table.members) {
      const Section* section = prefix.empty() ? find_section(name) : nullptr;
      if (value.is_object && (prefix == "hooks." || section))
        add_set(value, prefix + name + ".");
      else  // the full key of `strategy = "fsdp"`, so that best --toml can write it with other keys of the section
        sweep_.overrides.push_back(prefix + name +
                                   (section && !section->main_key.empty() ? "." + section->main_key : "") + "=" +
                                   toml_value(value.plain()));
    }
  }

  void method(const LocatedJson& table) {
    const auto* found = table.find("method");
    if (!found) return;
    std::vector<std::string> names;
    for (const auto& entry : methods()) names.push_back(entry.name);
    const LocatedJson* name = found->is_object ? found->find("name") : found;
    if (!name || name->is_object || !name->value.is_string())
      return wrong_type(*found, "method", "a method's name, or { name = \"...\", options }", problems_);
    const auto* entry = find_method(name->value);
    sweep_.method = entry ? entry->name : "";
    if (!entry)
      return problems_.add(name->place, "not-allowed", fmt::format("there is no method {}", name->value.dump()), names,
                           name->value);
    std::vector<std::string> known = {"name"};
    for (const auto& option : entry->options) known.push_back(option.name);
    if (found->is_object) check_names(*found, known, "the options of method " + entry->name, problems_);
    for (const auto& option : entry->options) method_option(*entry, option, table);
  }

  /// The line for a name in [sweep] that belongs inside `method`, `budget` or `stop`; empty: it does not.
  static std::string line_of_option(const LocatedJson& sweep, const std::string& name) {
    for (const auto& entry : methods())
      if (std::ranges::find(entry.options, name, &Option::name) != entry.options.end())
        return method_line(entry, sweep);
    for (const auto& [key, inner] : limit_names)
      if (std::ranges::find(inner, name) != inner.end())
        return fmt::format("{} = {{ {} = {} }}", key, name, toml_value(sweep.find(name)->plain()));
    return "";
  }

  /// method = { name = "asha", min_steps = 4 }: the values that [sweep] gives, in `method` or beside it, and examples of the missing ones.
  static std::string method_line(const MethodEntry& entry, const LocatedJson& sweep) {
    constexpr int example = 4;
    const auto* method = sweep.find("method");
    std::string line = fmt::format("method = {{ name = \"{}\"", entry.name);
    for (const auto& option : entry.options) {
      const auto* given = method && method->is_object ? method->find(option.name) : nullptr;
      if (!given) given = sweep.find(option.name);
      if (given || option.required)
        line += fmt::format(", {} = {}", option.name, given ? toml_value(given->plain()) : std::to_string(example));
    }
    return line + " }";
  }

  void method_option(const MethodEntry& entry, const Option& option, const LocatedJson& sweep) {
    const LocatedJson& table = *sweep.find("method");
    const bool given = table.is_object && table.find(option.name);
    if (given)
      read(table, option, [&](const json& value) { sweep_.method_options[option.name] = value; });
    else if (option.required)
      problems_.add(table.place, "missing-key",
                    fmt::format("the method {} needs `{}`: {}; write {}", entry.name, option.name, option.help,
                                method_line(entry, sweep)));
  }

  void limits(const LocatedJson& table) {
    const auto* budget = table.find("budget");
    if (budget && !budget->is_object) {
      wrong_type(*budget, "budget", "{ trials, time, trial_time }", problems_);
    } else if (budget) {
      check_names(*budget, limit_names.at("budget"), "budget", problems_);
      integer(*budget, "trials", 1, sweep_.limits.trials);
      duration(*budget, "time", sweep_.time_s);
      duration(*budget, "trial_time", sweep_.trial_time_s);
    }
    if (const auto* stop = table.find("stop"); stop && !stop->is_object) {
      wrong_type(*stop, "stop", "{ target, no_improvement, failures }", problems_);
    } else if (stop) {
      check_names(*stop, limit_names.at("stop"), "stop", problems_);
      integer(*stop, "no_improvement", 1, sweep_.limits.no_improvement);
      integer(*stop, "failures", 1, sweep_.limits.failures);
      read(*stop, {.name = "target", .type = Option::Type::number},
           [&](const json& value) { sweep_.limits.target = value.get<double>(); });
    }
    if (sweep_.in_lua()) return;  // ends where `run` does
    const auto* entry = find_method(sweep_.method);
    const bool has_end = budget && (budget->find("trials") || budget->find("time"));
    if (entry && entry->needs_trials && !has_end)
      problems_.add(
          table.place, "missing-key",
          fmt::format("[sweep] with method {} needs an end: budget = {{ trials = 40 }} or {{ time = \"2h\" }}",
                      entry->name));
  }

  void space(const LocatedJson& table) {
    const auto* found = table.find("space");
    if (!found && sweep_.in_lua()) {
      if (const auto* constraints = table.find("constraints"))
        problems_.add(constraints->key_place, "missing-key", "`constraints` are for a `space`, and there is none");
      return;
    }
    if (!found || !found->is_object || found->members.empty()) {
      problems_.add(
          found ? found->place : table.place, "missing-key",
          sweep_.in_lua()
              ? "`space` is a table from keys to ranges: [\"optimizer.lr\"] = {log_uniform = {1e-5, 1e-2}} ..."
              : "[sweep] needs a space: [sweep.space] and below it \"optimizer.lr\" = { log_uniform = [1e-5, 1e-2] } "
                "...");
      return;
    }
    auto read = read_space(*found, sweep_.method == "grid", problems_);
    std::vector<Constraint> constraints;
    const auto* list = table.find("constraints");
    if (list && !(list->value.is_array() && std::all_of(list->value.begin(), list->value.end(),
                                                        [](const json& item) { return item.is_string(); })))
      return wrong_type(*list, "constraints", "a list of strings", problems_);
    try {
      if (list)
        for (const auto& text : list->value) constraints.emplace_back(text.get<std::string>());
      if (!problems_.empty()) return;
      json values = constraints.empty() ? json::object() : constants();
      sweep_.space = Space(std::move(read.parameters), std::move(constraints), std::move(values));
    } catch (const RecipeError&) {
      throw;
    } catch (const Error& error) {
      problems_.add(list ? list->place : found->place, "not-allowed", error.what());
    }
    if (!problems_.empty() || sweep_.in_lua()) return;
    try {
      if (sweep_.make_method()->count(1) == 0)
        problems_.add(found->place, "not-allowed", "the constraints leave no point of the grid");
    } catch (const Error& error) {
      problems_.add(found->place, "not-allowed", error.what());
    }
  }

  /// The recipe's own values of keys, for constraints.
  json constants() const {
    json values = json::object();
    if (sweep_.recipe.empty()) return values;
    Recipe recipe = load_whole_recipe(sweep_.recipe, snapshot_ ? std::vector<std::string>() : sweep_.overrides);
    for (const auto& key : key_table())
      if (auto value = key.get(recipe); !value.is_null()) values[key.dotted()] = value;
    return values;
  }

  SweepFile& sweep_;
  bool snapshot_;
  Problems problems_;
};

}  // namespace

bool SweepFile::uses_reports() const { return in_lua() ? reports : find_method(method)->uses_reports; }

std::unique_ptr<Method> SweepFile::make_method() const {
  if (in_lua()) return std::make_unique<LuaScript>(*this);
  return sweep::make_method(method, space, seed, method_options);
}

Search SweepFile::make_search() const { return Search(make_method(), goal, limits); }

SweepFile parse_sweep(const std::string& text, const std::string& file, const std::string& snapshot) {
  SweepFile sweep;
  sweep.name = fs::path(file).stem().string();
  sweep.file = file;
  sweep.source = text;
  sweep.recipe = snapshot;
  SweepReader reader(sweep, !snapshot.empty());
  if (auto bad = is_lua_sweep(file) ? first_invalid_utf8(text) : std::nullopt)
    throw usage_error("{}:{}: this line is not UTF-8 text", file,
                      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*bad), '\n'));
  if (is_lua_sweep(file))
    reader.read_lua(read_lua_sweep(text, file));
  else
    reader.read(parse_located_toml(text, file));
  return sweep;
}

SweepFile load_sweep(const std::string& file) {
  if (!fs::exists(file) || fs::is_directory(file))
    throw usage_error("the sweep's file {} {}", file, fs::exists(file) ? "is a folder" : "does not exist");
  return parse_sweep(read_file(file), file);
}

std::string budget_note(const SweepFile& sweep) {
  constexpr int64_t counted_max = 1'000'000;
  const auto most = sweep.limits.trials;
  if (!most || sweep.in_lua()) return "";
  const auto all = sweep.make_method()->count(std::max(counted_max, *most) + 1);
  if (!all || *most >= *all) return "";
  if (*all > counted_max)
    return fmt::format("budget = {{ trials = {} }} leaves out all but the first {} of more than {} trials of method {}",
                       *most, *most, *all - 1, sweep.method);
  return fmt::format("budget = {{ trials = {} }} leaves out {} of the {} trials of method {}", *most, *all - *most,
                     *all, sweep.method);
}

std::vector<std::string> overrides_of(const json& parameters) {
  std::vector<std::string> overrides;
  for (const auto& [name, value] : parameters.items()) overrides.push_back(name + "=" + toml_value(value));
  return overrides;
}

std::string recipe_with(const std::string& base, const std::vector<std::string>& overrides, const json& parameters) {
  std::string text = "extends = " + toml_value(base) + "\n";
  auto put = [&](const std::string& override_text) {
    auto equals = override_text.find('=');
    text += override_text.substr(0, equals) + " = " + override_text.substr(equals + 1) + "\n";
  };
  for (const auto& one : overrides) put(one);
  for (const auto& one : overrides_of(parameters)) put(one);
  return text;
}

}  // namespace runner::sweep
