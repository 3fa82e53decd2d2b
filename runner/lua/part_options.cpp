#include "runner/lua/part_options.hpp"

namespace runner::lua {

nlohmann::json part_options(const ScriptFile& file, const Recipe& recipe, AskedOptions& asked,
                            std::vector<Diagnostic>& diagnostics) {
  nlohmann::json given = nlohmann::json::object();
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

}  // namespace runner::lua
