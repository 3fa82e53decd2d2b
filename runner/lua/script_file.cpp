#include "runner/lua/script_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "runner/base/text.hpp"
#include "runner/config/file_format.hpp"
#include "runner/config/key_table.hpp"
#include "runner/lua/bytecode.hpp"
#include "runner/lua/key_places.hpp"

namespace runner::lua {

using nlohmann::json;

std::optional<int64_t> claimed_count(const json& claim) {
  constexpr double most = int64_t{1} << 50;
  if (!claim.is_number() || !(claim.get<double>() >= 0 && claim.get<double>() <= most)) return {};
  return static_cast<int64_t>(claim.get<double>());
}

namespace {

/// The types of options by their names in Lua. A string with choices is a choice.
constexpr std::pair<const char*, Option::Type> option_types[] = {{"number", Option::Type::number},
                                                                 {"integer", Option::Type::integer},
                                                                 {"boolean", Option::Type::boolean},
                                                                 {"string", Option::Type::text},
                                                                 {"list", Option::Type::list}};

/// Reads the table of one file.
class Loader {
 public:
  Loader(State& state, const ScriptKind& kind, const ScriptSource& source, std::vector<Diagnostic>& diagnostics)
      : state_(state), kind_(kind), source_(source), diagnostics_(diagnostics), code_(kind.noun + "-file") {
    std::ranges::replace(code_, ' ', '-');
    file_.kind = &kind;
    file_.asked_at = source.asked_at;
  }

  bool run(const std::vector<Global>& globals) {
    guarded([&] { run_file(globals); });
    return finish();
  }

  std::optional<ScriptFile> load() {
    guarded([&] {
      Value table = run_file({});
      if (!diagnostics_here_.empty()) return;
      if (table.reference.is_table())
        read(table.reference);
      else
        report(0, code_, fmt::format("a {} file returns a table of its functions, not {}", kind_.noun, kind_of(table)));
    });
    if (!finish()) return {};
    return std::move(file_);
  }

  std::optional<ScriptFile> read(const std::string& shown, const Reference& table) {
    file_.shown = shown;
    file_.name = source_.file;
    guarded([&] { read(table); });
    if (!finish()) return {};
    return std::move(file_);
  }

 private:
  void guarded(const std::function<void()>& work) {
    try {
      work();
    } catch (const LuaError& error) {
      auto calls = error.trace().substr(0, error.trace().find_last_not_of('\n') + 1);
      report(error.line(), code_, error.message() + (calls.empty() ? "" : "\n" + calls), error.file());
    } catch (const ScriptMistake& mistake) {
      report(0, code_, mistake.what());
    }
  }

  /// Passes the mistakes on. Returns whether there are none.
  bool finish() {
    const bool complete = diagnostics_here_.empty();
    for (const auto& name : kind_.functions)
      if (kind_.needs_all && complete && !file_.functions.contains(name))
        diagnostics_here_.push_back({.place = source_.asked_at,
                                     .code = code_,
                                     .message = fmt::format("{} has no function `{}`: a {} needs {}", file_.shown, name,
                                                            kind_.noun, join(kind_.functions, ", ")),
                                     .section = kind_.section});
    diagnostics_.insert(diagnostics_.end(), diagnostics_here_.begin(), diagnostics_here_.end());
    return diagnostics_here_.empty();
  }

  Value run_file(const std::vector<Global>& globals) {
    const auto& shipped = kind_.shipped;
    if (auto found = shipped.find(source_.file); found != shipped.end()) {
      file_.shown = kind_.folder + "/" + found->first + ".lua";
      file_.name = found->first;
      text_ = found->second;
      return state_.load_text(text_, file_.shown, {}, globals);
    }
    file_.shown = source_.file;
    file_.name = fs::path(source_.file).stem().string();
    if (fs::exists(source_.file) && !fs::is_directory(source_.file)) {
      text_ = read_file(source_.file);
      if (const auto other = wrong_format(FileFormat::lua, file_.shown, text_); !other.empty()) {
        report(0, "wrong-format", other);
        return {};
      }
      return state_.load_text(text_, file_.shown, fs::absolute(source_.file).lexically_normal().parent_path(), globals);
    }
    missing();
    return {};
  }

  void missing() {
    bool bare = source_.file.find_first_of("./") == std::string::npos;
    Diagnostic diagnostic{.place = source_.asked_at, .code = "missing-file", .section = kind_.section};
    std::vector<std::string> names;
    for (const auto& [name, text] : kind_.shipped) names.push_back(name);
    if (bare) {
      diagnostic.message =
          fmt::format("there is no shipped {} \"{}\"; a file of your own ends in .lua", kind_.noun, source_.file);
      diagnostic.allowed = names;
    } else {
      diagnostic.message = fmt::format("the {} file {} does not exist", kind_.noun, source_.file);
      std::error_code ignored;
      names.clear();
      for (const auto& entry : fs::directory_iterator(fs::path(source_.file).parent_path(), ignored))
        if (entry.path().extension() == ".lua") names.push_back(entry.path().string());
    }
    diagnostic.suggestion = nearest(source_.file, names);
    diagnostics_here_.push_back(diagnostic);
  }

  Diagnostic& report(int line, const std::string& code, const std::string& message, const std::string& file = "") {
    Diagnostic diagnostic;
    diagnostic.place.kind = Origin::Kind::file;
    diagnostic.place.file = file.empty() ? file_.shown : file;
    diagnostic.place.line = line;
    diagnostic.place.column = line > 0 ? 1 : 0;
    auto lines = split(text_, '\n');
    if (diagnostic.place.file == file_.shown && line > 0 && line <= static_cast<int>(lines.size()))
      diagnostic.place.excerpt = lines[static_cast<size_t>(line) - 1];
    diagnostic.code = code;
    diagnostic.message = message;
    diagnostic.section = kind_.section;
    if (source_.asked_at.line > 0 || source_.asked_at.kind == Origin::Kind::set) {
      diagnostic.other = source_.asked_at;
      diagnostic.other_message = "the file is named here";
    }
    diagnostics_here_.push_back(diagnostic);
    return diagnostics_here_.back();
  }

  void read(const Reference& table) {
    for (const auto& key : state_.keys(table)) {
      Value value = state_.field(table, key);
      if (key == "name" || key == "about")
        read_text(key, value);
      else if (key == "options")
        read_options(value);
      else if (std::find(kind_.fields.begin(), kind_.fields.end(), key) != kind_.fields.end())
        file_.fields[key] = value;
      else
        read_function(key, value);
    }
    check_option_names();
  }

  /// The names that functions ask of their options. With a `base`, the options are also those of what it extends.
  void check_option_names() {
    if (file_.fields.contains("base")) return;
    ObjectNames names{.name = file_.name, .members = kind_.further_options, .are_options = true};
    names.members.insert(names.members.end(), declared_.begin(), declared_.end());
    for (const auto& [function, parameter] : kind_.options_at)
      if (const auto found = file_.functions.find(function); found != file_.functions.end())
        check_members(names, found->second, parameter);
  }

  void read_text(const std::string& key, const Value& value) {
    if (!value.plain.is_string() || value.plain.get<std::string>().empty()) {
      report(0, code_, fmt::format("`{}` must be a string, not {}", key, kind_of(value)));
      return;
    }
    auto text = value.plain.get<std::string>();
    if (key == "name" &&
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != std::string::npos)
      report(0, code_,
             fmt::format("`name` = \"{}\": letters, digits, _ and - only, as in [{}.NAME]", text, kind_.section));
    (key == "name" ? file_.name : file_.about) = text;
  }

  void read_function(const std::string& key, const Value& value) {
    const auto& names = kind_.functions;
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      int line = value.reference.is_function() ? state_.line_of(value.reference) : 0;
      auto& diagnostic =
          report(line, kind_.noun == "hook" ? "unknown-hook" : "unknown-part",
                 fmt::format("`{}` is not {}{}", key, kind_.noun == "hook" ? "a hook" : "part of a " + kind_.noun,
                             line > 0 ? ", so it would never be called" : ""));
      diagnostic.allowed = {"name", "about", "options"};
      diagnostic.allowed.insert(diagnostic.allowed.end(), kind_.fields.begin(), kind_.fields.end());
      diagnostic.allowed.insert(diagnostic.allowed.end(), names.begin(), names.end());
      diagnostic.suggestion = nearest(key, diagnostic.allowed);
      if (line > 0 && !diagnostic.suggestion && diagnostic.other_message.empty())
        diagnostic.other_message = kind_with_functions({key}, file_.shown);
      return;
    }
    if (!value.reference.is_function()) {
      report(0, code_, fmt::format("`{}` must be a function, not {}", key, kind_of(value)));
      return;
    }
    file_.functions[key] = value.reference;
    const auto objects = kind_.objects.find(key);
    for (size_t i = 0; objects != kind_.objects.end() && i < objects->second.size(); ++i)
      check_members(objects->second[i], value.reference, static_cast<int>(i));
  }

  /// Checks what a function, and the local functions that it passes the object to, ask of an object that is its parameter of this number.
  void check_members(const ObjectNames& object, const Reference& function, int parameter, int depth = 0) {
    constexpr int deepest = 8;
    const std::string dump = state_.bytecode(function);
    if (dump.empty() || depth > deepest || !checked_members_.emplace(dump, parameter).second) return;
    const Bytecode code = read_bytecode(dump);
    for (const auto& member : code.members_of(parameter)) check_member(object, member, code.source);
    for (const auto& passed : code.passes(parameter))
      if (const auto helper = state_.upvalue(function, passed.upvalue).reference; helper.is_function())
        check_members(object, helper, passed.argument, depth + 1);
  }

  void check_member(const ObjectNames& asked, const Bytecode::Member& member, const std::string& file) {
    const auto part = asked.parts.find(member.of);
    if (!member.of.empty() && part == asked.parts.end()) return;
    const auto& object = member.of.empty() ? asked : part->second;
    const auto& names = object.members;
    const bool known = std::ranges::find(names, member.name) != names.end();
    if ((known && !member.set) || !told_members_.emplace(member.line, member.name).second) return;
    const std::string owner =
                          asked.are_options ? fmt::format("the {} {}", kind_.noun, object.name) : "a " + object.name,
                      has = !asked.are_options ? "it has " + join(names, ", ")
                            : names.empty()    ? "its `options` declare none"
                                               : "its `options` are " + join(names, ", ");
    auto& diagnostic =
        report(member.line, "unknown-name",
               known ? fmt::format("`{}`: the {} of {} cannot be set", member.name,
                                   asked.are_options ? "options" : "fields", owner)
                     : fmt::format("{} has no {}`{}`; {}", owner, asked.are_options ? "option " : "", member.name, has),
               file);
    if (!known) diagnostic.suggestion = nearest(member.name, names);
    const auto& excerpt = diagnostic.place.excerpt;
    const auto at = std::min(excerpt.find("." + member.name), excerpt.find(":" + member.name));
    if (at == std::string::npos) return;
    diagnostic.place.column = static_cast<int>(at) + 2;
    diagnostic.place.span = static_cast<int>(member.name.size());
  }

  void read_options(const Value& value) {
    if (!value.reference.is_table()) {
      report(0, code_, fmt::format("`options` must be a table, not {}", kind_of(value)));
      return;
    }
    json all = state_.to_json(value.reference, "options");
    if (all.is_array() && !all.empty())
      report(0, code_, "`options` must be a table from names to descriptions, not a list");
    if (!all.is_object()) return;
    for (const auto& [name, description] : all.items()) {
      declared_.push_back(name);
      read_option(name, description);
    }
  }

  void read_option(const std::string& name, const json& description) {
    static const std::vector<std::string> fields = {"type", "default", "min", "max", "choices", "help"};
    auto wrong = [&](const std::string& what) { report(0, code_, fmt::format("option `{}`: {}", name, what)); };
    if (file_.fields.contains("base") && !(description.is_object() && description.contains("type"))) {
      file_.base_options[name] = description;
      return;
    }
    if (!description.is_object()) return wrong("must be a table of type, default, min, max, choices and help");
    Option option{.name = name, .may_be_infinite = true};
    for (const auto& [field, value] : description.items())
      if (std::find(fields.begin(), fields.end(), field) == fields.end()) {
        auto near = nearest(field, fields);
        return wrong(fmt::format("has no `{}`{}", field, near ? "; did you mean `" + *near + "`?" : ""));
      }
    const auto type = std::find_if(std::begin(option_types), std::end(option_types),
                                   [&](const auto& known) { return description.value("type", json()) == known.first; });
    if (type == std::end(option_types)) {
      std::vector<std::string> names;
      for (const auto& [known, meant] : option_types) names.push_back(known);
      return wrong("`type` must be one of " + join(names, ", "));
    }
    option.type = type->second;
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
    if (!option.choices.empty()) {
      if (option.type != Option::Type::text) return wrong("`choices` are for the type string");
      option.type = Option::Type::choice;
    }
    if (description.contains("help") && description["help"].is_string()) option.help = description["help"];
    if (json value = description.value("default", json()); !value.is_null()) {
      Option written = option;
      written.name = "default";
      if (auto problem = check_option(written, value)) return wrong(problem->message);
      option.default_value = value;
    }
    file_.options.push_back(option);
  }

  State& state_;
  const ScriptKind& kind_;
  const ScriptSource& source_;
  std::vector<Diagnostic>& diagnostics_;
  std::vector<Diagnostic> diagnostics_here_;
  std::string code_;
  ScriptFile file_;
  std::string text_;
  std::vector<std::string> declared_;                      ///< the names of options, also of those with mistakes
  std::set<std::pair<int, std::string>> told_members_;     ///< line, name
  std::set<std::pair<std::string, int>> checked_members_;  ///< bytecode of a function, parameter
};

}  // namespace

std::optional<ScriptFile> load_script(State& state, const ScriptKind& kind, const ScriptSource& source,
                                      std::vector<Diagnostic>& diagnostics) {
  return Loader(state, kind, source, diagnostics).load();
}

std::optional<ScriptFile> read_script(State& state, const ScriptKind& kind, const ScriptSource& source,
                                      const std::string& shown, const Reference& table,
                                      std::vector<Diagnostic>& diagnostics) {
  return Loader(state, kind, source, diagnostics).read(shown, table);
}

bool run_script(State& state, const ScriptKind& kind, const ScriptSource& source, const std::vector<Global>& globals,
                std::vector<Diagnostic>& diagnostics) {
  return Loader(state, kind, source, diagnostics).run(globals);
}

json complete_options(const OptionOwner& owner, const std::vector<Option>& options, const json& given,
                      const std::function<Origin(const std::string&)>& place, std::vector<Diagnostic>& diagnostics) {
  json checked = json::object();
  const json none = json::object();
  for (const auto& [name, written] : (given.is_object() ? given : none).items()) {
    const Option* option = find_option(options, name);
    if (!option) {
      Diagnostic diagnostic{.place = place(name), .code = "unknown-key", .section = owner.section};
      diagnostic.message = fmt::format("the {} {} has no option `{}`", owner.noun, owner.name, name);
      for (const auto& known : options) diagnostic.allowed.push_back(known.name);
      diagnostic.suggestion = nearest(name, diagnostic.allowed);
      diagnostics.push_back(diagnostic);
      continue;
    }
    json value = written;
    if (const auto problem = check_option(*option, value)) {
      diagnostics.push_back(diagnostic_of(*problem, place(name), owner.section));
      diagnostics.back().code = "wrong-value";
      diagnostics.back().message += fmt::format(" (an option of the {} {})", owner.noun, owner.name);
    } else {
      checked[name] = value;
    }
  }
  return with_defaults(options, checked);
}

json complete_options(const ScriptFile& file, const json& given, const std::function<Origin(const std::string&)>& place,
                      std::vector<Diagnostic>& diagnostics) {
  const OptionOwner owner{.noun = file.kind->noun, .name = file.name, .section = file.kind->section};
  return complete_options(owner, file.options, given, place, diagnostics);
}

json part_options(const ScriptFile& file, const Recipe& recipe, AskedOptions& asked,
                  std::vector<Diagnostic>& diagnostics) {
  json given = json::object();
  std::set<std::string> names;
  for (const auto& option : file.options) {
    names.insert(option.name);
    if (const auto value = recipe.plugins.options.find(option.name); value != recipe.plugins.options.end())
      given[option.name] = *value;
  }
  asked.add(names);
  const auto place = [&](const std::string&) { return recipe.origin("plugins.options"); };
  return complete_options(file, given, place, diagnostics);
}

std::optional<ScriptFile> load_order_file(State& state, const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  static const ScriptKind kind{.noun = "sample order", .section = "data", .functions = {"sample"}, .needs_all = true};
  return load_script(state, kind, {*recipe.data.order, recipe.origin("data.order")}, diagnostics);
}

std::string failure_text(const std::string& who, const std::string& function, const std::string& what,
                         const Origin& asked_at) {
  auto text = fmt::format("{} failed in {}: {}", who, function, what);
  if (asked_at.line > 0)
    text += fmt::format("\n  the recipe names it at {}:{}:{}", asked_at.file, asked_at.line, asked_at.column);
  return text;
}

StateOptions script_state_options(const Recipe& recipe) {
  StateOptions options;
  options.limits.memory_bytes = static_cast<size_t>(recipe.hooks.memory_limit);
  options.limits.instructions = recipe.hooks.instruction_limit;
  options.limits.seconds = recipe.hooks.time_limit;
  options.trusted = recipe.hooks.trusted;
  options.seed = static_cast<uint64_t>(recipe.run.seed);
  if (const char* file = std::getenv(lines_variable)) options.lines_file = file;
  return options;
}

}  // namespace runner::lua
