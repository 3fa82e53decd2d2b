// A verb of the command line: its options are declared on a CLI11 subcommand, and what it does is returned as a
// function.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "runner/base/error.hpp"

namespace runner {

using Action = std::function<ExitCode()>;

struct Command {
  const char* name;
  const char* summary;
  /// Declares options on `app` (bound to storage that the action owns) and returns the action.
  Action (*setup)(CLI::App& app);
  /// What other tools call it: these words are answered with the name.
  std::vector<const char*> other_names = {};
};

/// All verbs, in the order `runner --help` shows them.
const std::vector<Command>& commands();

}  // namespace runner
