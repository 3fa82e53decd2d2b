// Options that several verbs share. Variables that are bound to an option must outlive `app`.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"

namespace runner {

/// The required positional `recipe`.
void add_recipe_option(CLI::App& app, std::string& recipe);

/// The positional `run`. Its default is the value of `run`; it is required if that is empty.
void add_run_option(CLI::App& app, std::string& run);

/// The positional `sweep`. Its default is the value of `sweep`.
void add_sweep_option(CLI::App& app, std::string& sweep);

/// --json
CLI::Option* add_json_option(CLI::App& app, bool& json);
/// Prints the result for --json on a line of stdout.
void print_json(const nlohmann::json& result);
/// Prints a recipe's mistakes as `check --json` does.
void print_mistakes(const std::vector<Diagnostic>& mistakes);

/// Prints where a verb has written, or with `json` {output, schema} and `facts`.
void print_output(const std::string& output, bool json, nlohmann::json facts = nlohmann::json::object());

/// -y, --yes: do not ask.
void add_yes_option(CLI::App& app, bool& yes);
/// Asks on the terminal whether `verb` may delete `what` for good, unless `yes`. Throws Error(usage) if the answer is no, and without a
/// terminal.
void ask_to_delete(const std::string& verb, const std::string& what, bool yes);

/// --set and --unset. Their values are added to `overrides` in the order of the command line.
void add_overrides(CLI::App& app, std::vector<std::string>& overrides);

/// Whether `word` after a value of `option` (--set or --unset) is a further value: KEY=VALUE and not a path such as "./a=b.toml", or a
/// section or one of its keys and not a file such as "data.toml".
bool is_further_value(const std::string& option, const std::string& word);

/// The keys of --unset.
std::vector<std::string> unset_keys(const std::vector<std::string>& overrides);

// Checks of option values that several verbs use.

/// An integer of at least `least`, which is 0 or 1.
CLI::Validator at_least(int64_t least);
CLI::Validator at_least_one();

}  // namespace runner
