// `runner lua`: checks a hook or a strategy in Lua.
#include <memory>

#include "runner/base/files.hpp"
#include "runner/commands/check_script.hpp"
#include "runner/commands/command.hpp"

namespace runner {

Action setup_lua(CLI::App& app) {
  auto verb = std::make_shared<std::string>(), file = std::make_shared<std::string>(),
       recipe = std::make_shared<std::string>();
  app.add_option("verb", *verb, "check: trains a tiny model on two ranks with a hook or a strategy")
      ->required()
      ->check(CLI::IsMember({"check"}));
  app.add_option("file", *file, "The file of a hook or a strategy, or the name of a shipped one")->required();
  app.add_option("--recipe", *recipe, "Use the options and limits of this recipe");
  return [=, kept = verb] {  // keeps `verb` alive: the option is bound to it
    if (file->ends_with(".lua") && !fs::exists(*file)) throw usage_error("there is no file {}", *file);
    return check_script(*file, *recipe);
  };
}

}  // namespace runner
