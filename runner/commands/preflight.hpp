// Checks of the inputs of a recipe or a sweep before a run is started or recorded. `runner check`, `run` and `sweep plan` use the same
// functions.
#pragma once
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner {

/// The folder of trained tokenizers and tokenized text.
std::string data_cache();

/// Appends mistakes in a recipe's inputs: data files, tokenizer, the folder of model.init_from (names and shapes of its
/// tensors), and a metric of early stopping that is never reported. Reads at most the first 256 MiB of data and tokenizes
/// nothing. If there are already diagnostics, only checks the data: if none is in [data], for missing files, and if none is in
/// [model] either, for all mistakes.
void check_inputs(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// Notes on inputs that are valid but probably not intended.
std::vector<std::string> input_notes(const Recipe& recipe);

/// Like load_whole_recipe(), and also reports the mistakes of check_inputs().
Recipe load_ready_recipe(const std::string& file, const std::vector<std::string>& overrides);

/// Loads a sweep file and checks its recipe, the recipes at the ends of its ranges, its metric and its inputs. Adds notes to
/// `notes`.
sweep::SweepFile load_ready_sweep(const std::string& file, std::vector<std::string>& notes);
/// Whether a file is a sweep file: TOML with a section [sweep], or Lua that returns a table with `recipe`.
bool is_sweep_file(const std::string& file);

/// The recipe with what its data determine (take_data_facts()). Throws RecipeError.
Recipe with_data_facts(Recipe recipe);

// Finds the mistakes in [plugins] before a run starts.

/// Loads every part in [plugins] and reports its mistakes, and options that no part has. It asks no part to do its work, so it needs
/// nothing that exists only in a job.
void check_plugins(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// Throws RecipeError with the mistakes of check_plugins(), before a plug-in does any work: a misspelt option of one that finds the other
/// nodes, or the checkpoint to continue from, must not be ignored.
void refuse_bad_plugins(const Recipe& recipe);

}  // namespace runner
