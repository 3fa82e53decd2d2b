// The job of Slurm that trains a recipe or runs a sweep: what it must ask Slurm for, read from the recipe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/launch/slurm_script.hpp"
#include "runner/selection/topology.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner {

/// The options of `runner submit` that the job depends on.
struct SubmitOptions {
  std::string file;
  std::vector<std::string> overrides;
  std::string checkpoint;            ///< for `runner run`
  bool accept_changed_data = false;  ///< for `runner run`
  std::optional<std::string> partition, account, qos, time, mail_user, dependency, output;
  std::optional<int> cpus_per_task, array, parallel;
  std::vector<std::string> further;  ///< options for sbatch
  std::optional<std::string> container, container_runtime;
  std::vector<std::string> mounts;
  std::optional<std::string> program;
};

/// The job of a recipe. Adds notes to `notes`. Throws RecipeError where the recipe leaves to the machine what Slurm must know, and
/// Error(usage) for options that do not fit it.
SlurmJob job_of_recipe(const Recipe& recipe, const SubmitOptions& options, std::vector<std::string>& notes);

/// The job of a sweep: with --array an array with one job for each trial, otherwise one job for all. `recipe`: that of the sweep, with
/// its overrides.
SlurmJob job_of_sweep(const sweep::SweepFile& sweep, const Recipe& recipe, const SubmitOptions& options,
                      std::vector<std::string>& notes);

/// The devices that the job of a recipe gets, as far as they are known before: not their kind and their memory.
Topology topology_of_job(const Recipe& recipe);

}  // namespace runner
