#include "runner/lua/recipe_file.hpp"

#include "runner/base/log.hpp"
#include "runner/lua/key_places.hpp"
#include "runner/lua/state.hpp"

namespace runner::lua {

using nlohmann::json;

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
