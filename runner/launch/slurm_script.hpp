// A job of Slurm that trains, resumes after preemptions and time limits, and requeues itself, as a script for sbatch.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// An option of sbatch, for a line `#SBATCH --NAME=VALUE`.
struct SlurmOption {
  std::string name;        ///< without dashes
  std::string value = {};  ///< empty: the option takes none
  std::string origin;      ///< for messages: the recipe's key or the option of `runner submit` that decides the value
};

/// An image in which the job's programs run.
struct SlurmContainer {
  enum class Runtime { pyxis, apptainer };
  Runtime runtime = Runtime::pyxis;
  std::string image;                ///< a file, or for Pyxis also a name of a registry's image
  std::vector<std::string> mounts;  ///< folders, PATH or PATH:PATH_INSIDE
  bool gpus = false;                ///< apptainer: --nv
};

struct SlurmJob {
  enum class Kind {
    run,    ///< trains a recipe
    sweep,  ///< runs the trials of a sweep in one process
    trials  ///< an array of jobs, each of which trains the trial of its index
  };
  Kind kind = Kind::run;
  std::string name;  ///< letters, digits and "._-"; of the run's or sweep's name (slurm_run_name())
  std::string tag;   ///< letters that tell this script's runs from others, also if job numbers start again
  std::vector<SlurmOption> options = {};  ///< in the order of their lines
  std::vector<std::string> further = {};  ///< options of sbatch as its user wrote them: "--constraint=a100"
  std::string directory;                  ///< working directory; relative paths of the command start here
  std::string home;                       ///< of the ledger, absolute
  std::string program;                    ///< `runner`, a path or a name in PATH; with a container: inside it
  std::optional<SlurmContainer> container = {};
  std::optional<std::string> cpus_per_task = {};   ///< srun does not take it from sbatch
  std::string file;                                ///< the recipe or the sweep's file
  std::vector<std::string> arguments = {};         ///< of `runner run` after the recipe, or of `runner sweep run`
  std::vector<std::string> resume_arguments = {};  ///< of `runner resume` or `runner sweep resume`
};

/// The script. Throws Error(usage) if a value has a line break, which a line of options cannot contain, if one of `further` sets
/// what `options` set or what `runner submit` must know, or if a path to mount has a character that separates mounts.
std::string slurm_script(const SlurmJob& job);

/// The name that the job's run or sweep gets, slurm-NUMBER-NAME-TAG: of a run and a sweep for the job's number, of trials for the
/// array's number.
std::string slurm_run_name(const SlurmJob& job, const std::string& number);

/// `text` with each character that a job's name must not contain replaced by "_".
std::string slurm_job_name(const std::string& text);

/// A time limit as sbatch writes it ("MINUTES", "HH:MM:SS", "D-HH", "D-HH:MM" ...) or as recipes do ("1d12h"). Nothing if it is none.
std::optional<std::chrono::seconds> parse_slurm_time(const std::string& text);
/// "HH:MM:SS", or "D-HH:MM:SS" from a day on.
std::string write_slurm_time(std::chrono::seconds time);

}  // namespace runner
