// Completion of the command line in shells: the shell's script asks `runner __complete WORDS` what may come next.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace runner {

/// The hidden verb that the scripts call; its words are the command line so far, the last one not finished.
inline const std::string completion_verb = "__complete";

/// What the last word may become, one candidate a line, with a tab before its description: verbs, options, keys of
/// recipes and their values, strategies, runs. Nothing where only a file name can follow.
std::string completions(CLI::App& app, const std::vector<std::string>& words);

}  // namespace runner
