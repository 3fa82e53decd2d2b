#include "runner/commands/run_code.hpp"

#include "runner/base/error.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/launch/line_seal.hpp"
#include "runner/lua/strategy_file.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// Keys of other sections whose value is always a file or folder with code.
constexpr const char* files_with_code[] = {"model.plugin",      "data.plugin",     "data.order",
                                           "strategy.registry", "strategy.plugin", "strategy.compilation_cache"};
/// Keys whose value is a script if it begins with "lua:".
constexpr const char* names_or_scripts[] = {"strategy.name", "strategy.ddp_comm_hook"};

}  // namespace

json code_of(const Recipe& recipe) {
  std::vector<std::string> hidden;
  const json all = Secrets().take_from(recipe_to_json(recipe), hidden);
  json code = json::object();
  for (const auto& [section, keys] : all.items())
    for (const auto& [name, value] : keys.items()) {
      const std::string key = section + "." + name;
      const bool script =
          std::ranges::count(names_or_scripts, key) && value.is_string() && lua::names_script(value.get<std::string>());
      if (section == "plugins" || section == "hooks" || std::ranges::count(files_with_code, key) || script)
        code[key] = value;
    }
  return code;
}

void refuse_other_code(const Recipe& own, const fs::path& run_dir) {
  const json here = code_of(own), there = code_of(load_recipe((run_dir / "resolved.toml").string()));
  std::vector<std::string> other;
  for (const auto& [key, value] : there.items())
    if (!here.contains(key) || here[key] != value)
      other.push_back(fmt::format("{} is {} there and {} here", key, value.dump(),
                                  here.contains(key) ? here[key].dump() : "not set"));
  if (!other.empty())
    throw usage_error(
        "the run's folder {} names other code than the recipe of this node: {}; without a secret ({}), a node runs "
        "only the code that its own recipe names",
        run_dir.string(), join(other, ", "), nodes_secret_variable);
}

}  // namespace runner
