// Completion of the command line in shells: the shell's script calls `runner __complete WORDS` to get candidates.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace runner {

/// The hidden verb that the scripts call. Its words are the command line so far; the last word is incomplete.
inline const std::string completion_verb = "__complete";

/// The scripts (generated from completion/). That of bash splits the line itself, because bash splits words at "=" and ":", which keys and
/// strategies contain, and keeps their quotes. It quotes what is inserted for the place where it stands.
extern const char* const bash_script;
extern const char* const zsh_script;
extern const char* const fish_script;

/// Candidates for the last word: verbs, options, recipe keys and their values, strategies, runs. One candidate per line, with
/// a tab before its description. Empty if only a file name is possible.
std::string completions(CLI::App& app, const std::vector<std::string>& words);

}  // namespace runner
