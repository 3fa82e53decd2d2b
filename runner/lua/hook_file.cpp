#include "runner/lua/hook_file.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/text.hpp"
#include "runner/lua/shipped.hpp"

namespace runner::lua {

using nlohmann::json;

const std::array<const char*, moments_count>& moment_names() {
  static const std::array<const char*, moments_count> names = {"setup",
                                                               "on_train_start",
                                                               "on_train_epoch_start",
                                                               "on_train_batch_start",
                                                               "on_before_backward",
                                                               "on_after_backward",
                                                               "on_before_optimizer_step",
                                                               "on_train_batch_end",
                                                               "on_validation_start",
                                                               "on_validation_end",
                                                               "on_train_epoch_end",
                                                               "on_save_checkpoint",
                                                               "on_load_checkpoint",
                                                               "on_exception",
                                                               "on_train_end",
                                                               "teardown"};
  return names;
}

namespace {

const std::vector<std::string> option_types = {"number", "integer", "boolean", "string", "list"};

bool fits(const std::string& type, json& value) {
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "list") return value.is_array();
  if (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>() &&
      std::abs(value.get<double>()) < 9e15)
    value = static_cast<int64_t>(value.get<double>());
  return value.is_number_integer();
}

std::string article(const std::string& type) {
  if (type == "boolean") return "true or false";
  return (type == "integer" ? "an " : "a ") + type;
}

/// What is wrong with a value of an option, if anything. Integers become such.
std::string value_problem(const std::string& name, const HookOption& option, json& value) {
  if (!fits(option.type, value))
    return fmt::format("`{}` must be {}, not {}", name, article(option.type), value.dump());
  if (value.is_number()) {
    double number = value.get<double>();
    if (std::isnan(number)) return fmt::format("`{}` must be a number, not NaN", name);
    if (option.minimum && number < *option.minimum)
      return fmt::format("`{}` must be at least {}, not {}", name, *option.minimum, value.dump());
    if (option.maximum && number > *option.maximum)
      return fmt::format("`{}` must be at most {}, not {}", name, *option.maximum, value.dump());
  }
  bool chosen =
      option.choices.empty() || std::find(option.choices.begin(), option.choices.end(), value) != option.choices.end();
  return chosen ? "" : fmt::format("`{}` cannot be {}", name, value.dump());
}

/// Reads one file's table.
class Loader {
 public:
  Loader(State& state, const HookSource& source, std::vector<Diagnostic>& diagnostics)
      : state_(state), source_(source), diagnostics_(diagnostics) {
    hook_.asked_at = source.asked_at;
  }

  std::optional<HookFile> load() {
    size_t before = diagnostics_.size();
    try {
      Value table = run();
      if (diagnostics_.size() > before) return {};
      if (!table.reference.is_table()) {
        report(0, "hook-file", fmt::format("a hook file returns a table of its functions, not {}", kind_of(table)));
        return {};
      }
      read(table.reference);
    } catch (const LuaError& error) {
      auto calls = error.trace().substr(0, error.trace().find_last_not_of('\n') + 1);
      report(error.line(), "hook-file", error.message() + (calls.empty() ? "" : "\n" + calls), error.file());
    } catch (const ScriptMistake& mistake) {
      report(0, "hook-file", mistake.what());
    }
    if (diagnostics_.size() > before) return {};
    return std::move(hook_);
  }

 private:
  Value run() {
    const auto& shipped = shipped_hooks();
    if (auto found = shipped.find(source_.file); found != shipped.end()) {
      hook_.shown = "recipes/hooks/" + found->first + ".lua";
      hook_.name = found->first;
      text_ = found->second;
      return state_.load_text(text_, hook_.shown);
    }
    hook_.shown = source_.file;
    hook_.name = fs::path(source_.file).stem().string();
    if (fs::exists(source_.file) && !fs::is_directory(source_.file)) {
      text_ = read_file(source_.file);
      return state_.load_text(text_, hook_.shown, fs::absolute(source_.file).lexically_normal().parent_path());
    }
    missing();
    return {};
  }

  void missing() {
    bool bare = source_.file.find_first_of("./") == std::string::npos;
    Diagnostic diagnostic{source_.asked_at, "missing-file", "", {}, {}, {}, "", "hooks"};
    std::vector<std::string> names;
    for (const auto& [name, text] : shipped_hooks()) names.push_back(name);
    if (bare) {
      diagnostic.message =
          fmt::format("there is no shipped hook \"{}\"; a file of your own ends in .lua", source_.file);
      diagnostic.allowed = names;
    } else {
      diagnostic.message = fmt::format("the hook file {} does not exist", source_.file);
      std::error_code ignored;
      names.clear();
      for (const auto& entry : fs::directory_iterator(fs::path(source_.file).parent_path(), ignored))
        if (entry.path().extension() == ".lua") names.push_back(entry.path().string());
    }
    diagnostic.suggestion = nearest(source_.file, names);
    diagnostics_.push_back(diagnostic);
  }

  Diagnostic& report(int line, const std::string& code, const std::string& message, const std::string& file = "") {
    Diagnostic diagnostic;
    diagnostic.place.kind = Origin::Kind::file;
    diagnostic.place.file = file.empty() ? hook_.shown : file;
    diagnostic.place.line = line;
    diagnostic.place.column = line > 0 ? 1 : 0;
    auto lines = split(text_, '\n');
    if (diagnostic.place.file == hook_.shown && line > 0 && line <= static_cast<int>(lines.size()))
      diagnostic.place.excerpt = lines[static_cast<size_t>(line) - 1];
    diagnostic.code = code;
    diagnostic.message = message;
    diagnostic.section = "hooks";
    if (source_.asked_at.line > 0 || source_.asked_at.kind == Origin::Kind::set) {
      diagnostic.other = source_.asked_at;
      diagnostic.other_message = "the file is named here";
    }
    diagnostics_.push_back(diagnostic);
    return diagnostics_.back();
  }

  void read(const Reference& table) {
    for (const auto& key : state_.keys(table)) {
      Value value = state_.field(table, key);
      if (key == "name" || key == "about")
        read_text(key, value);
      else if (key == "options")
        read_options(value);
      else
        read_function(key, value);
    }
  }

  void read_text(const std::string& key, const Value& value) {
    if (!value.plain.is_string() || value.plain.get<std::string>().empty()) {
      report(0, "hook-file", fmt::format("`{}` must be a string, not {}", key, kind_of(value)));
      return;
    }
    auto text = value.plain.get<std::string>();
    if (key == "name" &&
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != std::string::npos)
      report(0, "hook-file", fmt::format("`name` = \"{}\": letters, digits, _ and - only, as in [hooks.NAME]", text));
    (key == "name" ? hook_.name : hook_.about) = text;
  }

  void read_function(const std::string& key, const Value& value) {
    const auto& names = moment_names();
    auto found = std::find(names.begin(), names.end(), key);
    const bool loss = key == "loss";
    if (found == names.end() && !loss) {
      int line = value.reference.is_function() ? state_.line_of(value.reference) : 0;
      auto& diagnostic = report(line, "unknown-hook",
                                fmt::format("`{}` is no hook{}", key, line > 0 ? ", so it would never be called" : ""));
      diagnostic.allowed.assign(names.begin(), names.end());
      diagnostic.allowed.insert(diagnostic.allowed.begin(), {"name", "about", "options", "loss"});
      diagnostic.suggestion = nearest(key, diagnostic.allowed);
      return;
    }
    if (!value.reference.is_function()) {
      report(0, "hook-file", fmt::format("`{}` must be a function, not {}", key, kind_of(value)));
      return;
    }
    (loss ? hook_.loss : hook_.functions[static_cast<size_t>(found - names.begin())]) = value.reference;
  }

  void read_options(const Value& value) {
    if (!value.reference.is_table()) {
      report(0, "hook-file", fmt::format("`options` must be a table, not {}", kind_of(value)));
      return;
    }
    json all = state_.to_json(value.reference, "options");
    if (all.is_array() && !all.empty())
      report(0, "hook-file", "`options` must be a table from names to descriptions, not a list");
    if (!all.is_object()) return;
    for (const auto& [name, description] : all.items()) read_option(name, description);
  }

  void read_option(const std::string& name, const json& description) {
    static const std::vector<std::string> fields = {"type", "default", "min", "max", "choices", "help"};
    auto wrong = [&](const std::string& what) { report(0, "hook-file", fmt::format("option `{}`: {}", name, what)); };
    if (!description.is_object()) return wrong("must be a table of type, default, min, max, choices and help");
    HookOption option;
    for (const auto& [field, value] : description.items())
      if (std::find(fields.begin(), fields.end(), field) == fields.end()) {
        auto near = nearest(field, fields);
        return wrong(fmt::format("has no `{}`{}", field, near ? "; did you mean `" + *near + "`?" : ""));
      }
    option.type = description.value("type", json()).is_string() ? description["type"].get<std::string>() : "";
    if (std::find(option_types.begin(), option_types.end(), option.type) == option_types.end())
      return wrong("`type` must be one of " + join(option_types, ", "));
    for (auto [field, bound] : {std::pair{"min", &option.minimum}, std::pair{"max", &option.maximum}})
      if (description.contains(field)) {
        if (!description[field].is_number()) return wrong(fmt::format("`{}` must be a number", field));
        *bound = description[field].get<double>();
      }
    if (description.contains("choices"))
      for (const auto& choice : description["choices"]) {
        if (!choice.is_string()) return wrong("`choices` must be strings");
        option.choices.push_back(choice);
      }
    if (description.contains("help") && description["help"].is_string()) option.help = description["help"];
    option.default_value = description.value("default", json());
    if (!option.default_value.is_null())
      if (auto problem = value_problem("default", option, option.default_value); !problem.empty())
        return wrong(problem);
    hook_.options[name] = option;
  }

  State& state_;
  const HookSource& source_;
  std::vector<Diagnostic>& diagnostics_;
  HookFile hook_;
  std::string text_;
};

}  // namespace

std::optional<HookFile> load_hook_file(State& state, const HookSource& source, std::vector<Diagnostic>& diagnostics) {
  return Loader(state, source, diagnostics).load();
}

json complete_hook_options(const HookFile& hook, const json& given,
                           const std::function<Origin(const std::string&)>& place,
                           std::vector<Diagnostic>& diagnostics) {
  json complete = json::object();
  for (const auto& [name, option] : hook.options)
    if (!option.default_value.is_null()) complete[name] = option.default_value;
  if (!given.is_object()) return complete;
  for (const auto& [name, written] : given.items()) {
    Diagnostic diagnostic{place(name), "unknown-key", "", {}, {}, {}, "", "hooks"};
    auto found = hook.options.find(name);
    if (found == hook.options.end()) {
      diagnostic.message = fmt::format("the hook {} has no option `{}`", hook.name, name);
      for (const auto& [known, option] : hook.options) diagnostic.allowed.push_back(known);
      diagnostic.suggestion = nearest(name, diagnostic.allowed);
      diagnostics.push_back(diagnostic);
      continue;
    }
    json value = written;
    diagnostic.message = value_problem(name, found->second, value);
    if (diagnostic.message.empty()) {
      complete[name] = value;
      continue;
    }
    diagnostic.code = "wrong-value";
    diagnostic.message += fmt::format(" (an option of the hook {})", hook.name);
    diagnostic.allowed = found->second.choices;
    if (value.is_string()) diagnostic.suggestion = nearest(value.get<std::string>(), found->second.choices);
    diagnostics.push_back(diagnostic);
  }
  return complete;
}

const std::map<std::string, std::string>& shipped_hooks() {
  static const std::map<std::string, std::string> hooks = [] {
    std::map<std::string, std::string> all;
    for (size_t i = 0; i < shipped_count; ++i) all.emplace(shipped_names[i], shipped_texts[i]);
    return all;
  }();
  return hooks;
}

}  // namespace runner::lua
