// `runner`: the front. Reads the command line, runs one verb, turns errors into exit codes. Links no torch.
#include <cstdio>
#include <exception>

#include "runner/base/log.hpp"
#include "runner/commands/command.hpp"
#include "runner/config/diagnostics.hpp"

int main(int argc, char** argv) {
  using namespace runner;
  CLI::App app("Declarative experiment runner for distributed training: one TOML recipe, any strategy, any machine.",
               "runner");
  app.set_version_flag("--version", RUNNER_VERSION);
  app.require_subcommand(1);
  Action chosen;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    Action action = command.setup(*sub);
    sub->callback([&chosen, action] { chosen = action; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? static_cast<int>(ExitCode::done) : static_cast<int>(ExitCode::usage);
  }
  try {
    return static_cast<int>(chosen());
  } catch (const RecipeError& error) {
    std::fprintf(stderr, "%s\n", error.what());  // says "error:" itself, with its place
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    log::error("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    log::error("{} (this is a bug in runner)", error.what());
    return static_cast<int>(ExitCode::run_failed);
  }
}
