// Checks before a run is started or recorded: its inputs, its plan on this machine, its disk space. `runner check`, `run` and
// `sweep plan` use the same functions.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/selection/plan.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner {

/// The folder of trained tokenizers and tokenized text.
std::string data_cache();

/// Appends mistakes in a recipe's inputs: data files, tokenizer, the folder of model.init_from (names and shapes of its
/// tensors), and a metric of early stopping that is never reported. Reads at most the first 256 MiB of data and tokenizes
/// nothing. If there are already diagnostics, only checks for missing files.
void check_inputs(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// Notes on inputs that are valid but probably not intended.
std::vector<std::string> input_notes(const Recipe& recipe);

/// Like load_whole_recipe(), and also reports the mistakes of check_inputs().
Recipe load_ready_recipe(const std::string& file, const std::vector<std::string>& overrides);

/// The recipe with what its data determine (take_data_facts()). Throws RecipeError.
Recipe with_data_facts(Recipe recipe);

/// Resolves every `auto` for these devices. `several_supervisors`: as in Place. Throws as make_plan() does.
Plan plan_on(const Recipe& recipe, const Topology& topology, bool several_supervisors);
/// "gpt 4.8 M parameters, fsdp on 2 CPU ranks, ...": the plan in one line.
std::string describe(const Plan& plan);

/// Bytes of one checkpoint without the state of hooks: all parameters and optimizer states, at least 4 bytes per element.
int64_t one_checkpoint_bytes(const Job& job);
/// Compares the size of the checkpoints that a run keeps with `free_bytes` on its disk. `existing`: number of checkpoints
/// already written. Throws Error(environment) if there is no space for another one. Returns a note if space is short, or "".
std::string disk_space_note(const Plan& plan, int64_t free_bytes, int64_t existing);
/// The free bytes on the filesystem of `folder`, which may not exist yet; empty if unknown.
std::optional<int64_t> free_bytes(fs::path folder);

/// Loads a sweep file and checks its recipe, the recipes at the ends of its ranges, its metric and its inputs. Adds notes to
/// `notes`.
sweep::SweepFile load_ready_sweep(const std::string& file, std::vector<std::string>& notes);
/// Whether a file is a sweep file: TOML with a section [sweep], or Lua that returns a table with `recipe`.
bool is_sweep_file(const std::string& file);

}  // namespace runner
