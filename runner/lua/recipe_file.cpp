#include "runner/lua/recipe_file.hpp"

#include "runner/base/log.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/lua/key_places.hpp"
#include "runner/lua/state.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

[[noreturn]] void refuse(const Origin& place, const std::string& message, const std::string& trace = "") {
  Diagnostic diagnostic{place, "computed", message, {}, {}, {}, ""};
  auto begin = trace.find_first_not_of(' ');
  if (begin != std::string::npos)
    diagnostic.other_message = trace.substr(begin, trace.find_last_not_of('\n') + 1 - begin);
  throw RecipeError({diagnostic});
}

/// The place of an error, also one in a file that this one requires.
Origin place_of(const LuaError& error, const KeyPlaces& places, const std::string& file) {
  if (error.file() == file || error.file().empty()) return places.line(error.line());
  Origin origin = places.line(0);
  origin.file = error.file();
  origin.line = error.line();
  origin.column = 1;
  return origin;
}

}  // namespace

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
  try {
    Value returned =
        state.load_text(text, file, fs::absolute(file).lexically_normal().parent_path(), {{"extend", {}, extend}});
    if (!returned.reference.is_table())
      refuse(places.find(""), fmt::format("a recipe in Lua returns a table, not {}", kind_of(returned)));
    recipe = state.to_json(returned.reference, "the recipe");
  } catch (const LuaError& error) {
    refuse(place_of(error, places, file), error.message(), error.trace());
  } catch (const ScriptMistake& mistake) {
    refuse(places.find(""), mistake.what());
  }
  if (recipe.is_array() && !recipe.empty()) refuse(places.find(""), "a recipe is a table of sections, not a list");
  if (recipe.is_array()) recipe = json::object();
  for (auto& section : recipe)
    if (section.is_array() && section.empty()) section = json::object();  // {} is both in Lua
  if (!bases.empty() && recipe.contains("extends"))
    refuse(places.find("extends"), "`extend` and `extends` are both used; one says it");
  if (!bases.empty()) recipe["extends"] = bases;
  return write_computed(recipe, [&](const std::string& dotted) { return places.find(dotted); });
}

}  // namespace runner::lua
