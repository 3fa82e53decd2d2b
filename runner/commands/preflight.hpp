// What can be known about a run before it is started or recorded: its inputs, its plan on this machine, its disk space.
// `runner check`, `run` and `sweep plan` ask the same functions.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/selection/plan.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner {

/// Where tokenizers and tokenised text are kept.
std::string data_cache();

/// Appends what is wrong with what a recipe reads: data files, tokenizer, the folder of model.init_from (names and
/// shapes of its tensors), and a metric that early stopping would wait for in vain. Reads at most the first 256 MiB of
/// data; tokenises nothing. Where other mistakes are known already, only files that are missing are looked for.
void check_inputs(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// Notes on inputs that are no mistakes, yet probably not meant.
std::vector<std::string> input_notes(const Recipe& recipe);

/// load_whole_recipe() with the mistakes of check_inputs() in the same pass.
Recipe load_ready_recipe(const std::string& file, const std::vector<std::string>& overrides);

/// Every `auto` decided for these devices. `several_supervisors`: as Place has it. Throws as make_plan() does.
Plan plan_on(const Recipe& recipe, const Topology& topology, bool several_supervisors);
/// "gpt 4.8 M parameters, fsdp on 2 CPU ranks, ...": the plan in one line.
std::string describe(const Plan& plan);

/// Bytes of one checkpoint without what hooks keep: every parameter and its optimizer states once, at least float32.
int64_t one_checkpoint_bytes(const Job& job);
/// Holds the checkpoints that a run keeps against `free_bytes` on its disk, of which `existing` are there already.
/// Throws Error(environment) where not even one more fits; else what is worth a note, or nothing.
std::string disk_space_note(const Plan& plan, int64_t free_bytes, int64_t existing);
/// The free bytes where `folder` is, or will be; nullopt where the system does not say.
std::optional<int64_t> free_bytes(fs::path folder);

/// A sweep's file with its recipe, the recipes at the ends of its ranges, its metric and the inputs checked. Notes go
/// to `notes`.
sweep::SweepFile load_ready_sweep(const std::string& file, std::vector<std::string>& notes);
/// Whether a file is a sweep's: it has a section [sweep], or returns a table with `recipe`.
bool is_sweep_file(const std::string& file);

}  // namespace runner
