// `runner help`.
#include <cstdio>
#include <memory>

#include "runner/commands/command.hpp"
#include "runner/config/config.hpp"

namespace runner {

Action setup_help(CLI::App& app) {
  auto subject = std::make_shared<std::string>("recipe"), topic = std::make_shared<std::string>();
  auto schema = std::make_shared<bool>(false);
  app.add_option("subject", *subject, "What to explain: recipe")->check(CLI::IsMember({"recipe"}));
  app.add_option("topic", *topic, "A section (train) or a key (train.max_steps)");
  app.add_flag("--schema", *schema, "The JSON Schema of recipes, as schemas/recipe.schema.json holds it");
  return [=, kept = subject] {  // the option is bound to it
    std::printf("%s", (*schema ? recipe_schema() : recipe_help(*topic)).c_str());
    return ExitCode::done;
  };
}

}  // namespace runner
