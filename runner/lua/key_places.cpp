#include "runner/lua/key_places.hpp"

#include <algorithm>
#include <cctype>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/state.hpp"
#include "runner/lua/strategy_file.hpp"

namespace runner::lua {

using nlohmann::json;

KeyPlaces::KeyPlaces(const std::string& text, const std::string& name) : name_(name), lines_(split(text, '\n')) {
  try {
    read(read_bytecode(State().bytecode_of(text, name)));
  } catch (const LuaError&) {  // whoever runs the file reports it
  }
}

/// Follows the tables in the registers, one instruction after another, also over jumps.
void KeyPlaces::read(const Bytecode& code) {
  const bool whole_file = code.first_line == 0;
  std::map<int, TablePointer> held;
  std::map<int, std::string> texts;  // constants in registers: names for which an instruction has no room
  const auto at = [&](int place) { return held.contains(place) ? held[place] : nullptr; };
  const auto member = [&](TablePointer table, const std::string& key) {
    return table && table->inner.contains(key) ? table->inner[key] : nullptr;
  };
  for (size_t i = 0; i < code.instructions.size(); ++i) {
    const auto step = code.instructions[i];
    const auto globals = whole_file ? globals_ : nullptr;  // elsewhere the upvalue may be another table
    TablePointer value = nullptr;
    if (step.op() == Op::new_table)
      value = &tables_->emplace_back(Table{.line = code.line(i)});
    else if (step.op() == Op::closure)
      value = &tables_->emplace_back(Table{.line = code.inner.at(static_cast<size_t>(step.bx())).first_line});
    else if (step.op() == Op::move)
      value = at(step.b());
    else if (step.op() == Op::get_field)
      value = member(at(step.b()), code.constant(step.c()));
    else if (step.op() == Op::get_table_of_upvalue)
      value = member(globals, code.constant(step.c()));
    else if (step.op() == Op::set_field || step.op() == Op::set_table_of_upvalue)
      set(step.op() == Op::set_field ? at(step.a()) : globals, code.constant(step.b()),
          step.k() ? nullptr : at(step.c()), code.line(i));
    else if (step.op() == Op::set_table && texts.contains(step.b()))
      set(at(step.a()), texts[step.b()], step.k() ? nullptr : at(step.c()), code.line(i));
    else if (step.op() == Op::give_back && whole_file && step.b() != 1) {
      root_ = step.b() == 2 ? at(step.a()) : nullptr;
      const bool at_table = root_ && find_word(root_->line, "return", false, return_);
      for (int line = code.line(i); !at_table && line > 0 && !find_word(line, "return", false, return_);) --line;
    }
    if (step.op() == Op::get_table_of_upvalue && code.constant(step.c()) == "extend")
      find_word(code.line(i), "extend", false, extend_.emplace());
    const auto spoilt = [&](const auto& one) { return step.spoils(one.first); };
    std::erase_if(held, spoilt);
    std::erase_if(texts, spoilt);
    if (value) held[step.a()] = value;
    if (const auto& text = code.constant(step.bx()); step.op() == Op::load_constant && !text.empty())
      texts[step.a()] = text;
  }
  for (const auto& inner : code.inner) read(inner);
}

/// Sets a field at a line, where its value ends.
void KeyPlaces::set(TablePointer table, const std::string& key, TablePointer value, int line) {
  Place place{.line = line};
  if (!value || !find_word(value->line, key, true, place))
    for (int above = line; above >= (table ? table->line : line) && !find_word(above, key, true, place);) --above;
  keys_.insert(place);
  anywhere_[key] = std::max(anywhere_[key], place);
  if (!table) return;
  table->fields[key] = place;
  table->inner[key] = value;
}

/// Finds a word in a line. `is_key`: before `=`, also as ["word"].
bool KeyPlaces::find_word(int line, const std::string& word, bool is_key, Place& found) const {
  if (line < 1 || line > std::ssize(lines_)) return false;
  const auto& text = lines_[static_cast<size_t>(line) - 1];
  const auto in_word = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    size_t end = at + word.size();
    const bool quoted =
        at > 0 && end < text.size() && (text[at - 1] == '"' || text[at - 1] == '\'') && text[end] == text[at - 1];
    const Place place{.line = line,
                      .column = static_cast<int>(at) + (quoted ? 0 : 1),
                      .span = static_cast<int>(word.size()) + (quoted ? 2 : 0)};
    if (!quoted && (in_word(end) || (at > 0 && in_word(at - 1)))) continue;
    while (end < text.size() && std::string_view("\"'] \t").find(text[end]) != std::string_view::npos) ++end;
    const bool sets = end < text.size() && text[end] == '=' && text[end + 1] != '=' &&
                      !trim(std::string_view(text).substr(0, at)).ends_with("local");
    if (is_key && (!sets || keys_.contains(place))) continue;
    found = place;
    return true;
  }
  return false;
}

Origin KeyPlaces::origin(const Place& place) const {
  Origin origin = line(place.line);
  origin.column = place.column;
  origin.span = place.span;
  return origin;
}

Origin KeyPlaces::line(int number) const {
  Origin origin;
  origin.kind = Origin::Kind::file;
  origin.file = name_;
  origin.line = number;
  origin.column = number > 0 ? 1 : 0;
  if (number >= 1 && number <= static_cast<int>(lines_.size()))
    origin.excerpt = lines_[static_cast<size_t>(number) - 1];
  return origin;
}

RecipeError KeyPlaces::located(const LuaError& error, const std::string& code) const {
  const bool here = error.file() == name_ || error.file().empty();
  Diagnostic diagnostic{line(here ? error.line() : 0), code, error.message()};
  if (!here) {
    diagnostic.place.file = error.file();
    diagnostic.place.line = error.line();
    diagnostic.place.column = 1;
  }
  diagnostic.other_message = trim(error.trace());
  return RecipeError({diagnostic});
}

void KeyPlaces::guard(const std::string& code, const std::function<void()>& work) const {
  try {
    work();
  } catch (const LuaError& error) {
    throw located(error, code);
  } catch (const ScriptMistake& mistake) {
    throw RecipeError({Diagnostic{find_path({}), code, mistake.what()}});
  }
}

Origin KeyPlaces::find(const std::string& dotted) const {
  if (dotted == "extends" && extend_) return origin(*extend_);
  return find_path(split(dotted, '.'));
}

Origin KeyPlaces::find_path(const std::vector<std::string>& path) const {
  Place best = return_;
  TablePointer table = root_;
  for (const auto& part : path) {
    if (!table || !table->fields.contains(part)) {
      if (const auto guess = anywhere_.find(path.back()); guess != anywhere_.end()) best = guess->second;
      break;
    }
    best = table->fields[part];
    table = table->inner[part];
  }
  return origin(best);
}

std::string kind_with_functions(const std::vector<std::string>& functions, const std::string& file) {
  struct KnownKind {
    std::string text;  ///< {}: the file
    std::vector<std::string> functions;
  };
  static const std::vector<KnownKind> kinds = [] {
    KnownKind hook{"hook: `runner lua check {0}` tries it, and hooks.files = [\"{0}\"] in a recipe uses it",
                   {"loss", "memory"}};
    hook.functions.insert(hook.functions.end(), moment_names().begin(), moment_names().end());
    KnownKind strategy{"strategy: `runner lua check {0}` tries it, and strategy.name = \"lua:{0}\" in a recipe uses it",
                       strategy_kind().functions};
    std::erase_if(strategy.functions, [&](const auto& name) { return std::ranges::count(hook.functions, name) > 0; });
    return std::vector<KnownKind>{
        strategy,
        hook,
        {"sweep: `runner sweep run {0}` runs it", {"run"}},
        {"sample order: data.order = \"{0}\" in a recipe uses it", {"sample"}},
        {"cluster environment: plugins.cluster_environment = \"{0}\" in a recipe uses it", {"ranks"}},
        {"checkpoint store: plugins.checkpoint_io = \"{0}\" in a recipe uses it", {"save", "load", "remove", "names"}}};
  }();
  for (const auto& kind : kinds)
    for (const auto& function : functions)
      if (std::ranges::count(kind.functions, function) > 0)
        return "this looks like a " + fmt::format(fmt::runtime(kind.text), file);
  return "";
}

ComputedRecipe evaluate_recipe(const std::string& file, const BaseReader& read_base) {
  auto text = read_file(file);
  KeyPlaces places(text, file);
  StateOptions options;
  options.limits = {256u << 20, 100'000'000, 10.0};
  options.print = [](std::string_view line) { log::info("{}", line); };
  State state(options);
  json bases = json::array();
  Function extend = [&](const Arguments& arguments) {
    arguments.at_most(1);
    auto base = arguments.text(1);
    json says = read_base(base, places.find("extends"));
    bases.push_back(base);
    return Value(state.table(says));
  };
  json recipe;
  places.guard("computed", [&] {
    Value returned =
        state.load_text(text, file, fs::absolute(file).lexically_normal().parent_path(), {{"extend", {}, extend}});
    if (!returned.reference.is_table())
      throw ScriptMistake(fmt::format("a recipe in Lua returns a table, not {}", kind_of(returned)));
    std::vector<std::string> functions;
    for (const auto& key : state.keys(returned.reference))
      if (state.field(returned.reference, key).reference.is_function()) functions.push_back(key);
    if (const auto kind = kind_with_functions(functions, file); !kind.empty())
      throw RecipeError({Diagnostic{places.find_path({functions.front()}), "computed", "this is no recipe: " + kind}});
    recipe = state.to_json(returned.reference, "the recipe");
    if (recipe.is_array() && !recipe.empty()) throw ScriptMistake("a recipe is a table of sections, not a list");
  });
  if (recipe.is_array()) recipe = json::object();
  for (auto& section : recipe)
    if (section.is_array() && section.empty()) section = json::object();  // {} is an empty list and an empty table
  if (!bases.empty() && recipe.contains("extends"))
    throw RecipeError(
        {Diagnostic{places.find("extends"), "computed", "`extend` and `extends` are both used; use only one of them"}});
  if (!bases.empty()) recipe["extends"] = bases;
  return write_computed(recipe, [&](const std::string& dotted) { return places.find(dotted); });
}

}  // namespace runner::lua
