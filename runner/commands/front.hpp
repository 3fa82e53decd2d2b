// The entry point of the command line: selects the verb, runs it and returns its exit code.
#pragma once
#include <string>
#include <vector>

namespace runner {

/// Runs the command line `words` (argv without the program's name). Data goes to stdout, errors go to stderr, and each error
/// has an exit code. `version` is the text of --version.
int run_command_line(std::vector<std::string> words, const std::string& version);

}  // namespace runner
