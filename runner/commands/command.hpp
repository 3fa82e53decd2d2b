// A verb of the command line: a function that declares its options on a CLI11 subcommand and returns its action.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"

namespace runner {

using Action = std::function<ExitCode()>;

struct Command {
  const char* name;
  const char* summary;
  /// Declares options on `app` (bound to storage that the action owns) and returns the action.
  Action (*setup)(CLI::App& app);
  /// Names of the same verb in other tools, used for suggestions.
  std::vector<const char*> other_names = {};
  const char* heading = "";  ///< of `runner --help`
};

/// All verbs, in the order of `runner --help`.
const std::vector<Command>& commands();

/// The sources that `runner import` reads: bundle, mlflow, ..., deepspeed.
std::vector<std::string> import_sources();

}  // namespace runner
