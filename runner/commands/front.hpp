// The command line as a whole: from the words that a person typed to the verb that runs and its exit code.
#pragma once
#include <string>
#include <vector>

namespace runner {

/// Runs what `words` (argv without the program's name) ask for. Data goes to stdout; errors go to stderr and become
/// exit codes. `version` is what --version prints.
int run_command_line(std::vector<std::string> words, const std::string& version);

}  // namespace runner
