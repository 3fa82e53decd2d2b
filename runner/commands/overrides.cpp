#include "runner/commands/overrides.hpp"

#include "runner/config/config.hpp"

namespace runner {

void add_overrides(CLI::App& app, std::vector<std::string>& overrides) {
  app.add_option_function<std::string>(
         "--set", [&overrides](const std::string& text) { overrides.push_back(text); },
         "Override values of the recipe: --set train.max_steps=10 strategy=ddp")
      ->type_name("KEY=VALUE ...")
      ->trigger_on_parse()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option_function<std::string>(
         "--unset", [&overrides](const std::string& key) { overrides.push_back(unset_override(key)); },
         "Remove a key, or a whole section, that the recipe sets: --unset data.validation_fraction")
      ->type_name("KEY")
      ->trigger_on_parse()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace runner
