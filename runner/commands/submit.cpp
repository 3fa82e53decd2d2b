// `runner submit`: writes a job script for Slurm and submits it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runner/base/capture.hpp"
#include "runner/base/descriptor.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/plan_here.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/slurm_job.hpp"
#include "runner/selection/choice.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// Makes a plan for the job's devices, to find the mistakes that depend on the number of ranks. Devices of which nothing is known have
/// enough memory for every plan. What only the devices themselves can tell is left to the job.
void check_plan(const Recipe& recipe, std::vector<std::string>& notes) {
  const Topology topology = topology_of_job(recipe);
  const auto later = [&](const Error& error) {
    notes.push_back(fmt::format("the plan can only be made where the job runs: {}", first_line(error.what())));
  };
  try {
    plan_on(recipe, topology, topology.supervisor_each_rank);
  } catch (const SpeedNotKnown& error) {
    later(error);
  } catch (const Error& error) {
    if (error.code() != ExitCode::environment) throw;
    later(error);
  }
}

/// Refuses a --checkpoint that `runner run` would refuse. A job that waits for another one, or that mounts other
/// folders, may find it later.
void check_checkpoint(const SubmitOptions& options, std::vector<std::string>& notes) {
  if (options.checkpoint.empty()) return;
  const bool later = options.dependency || !options.mounts.empty();
  std::error_code failed;
  if (later && !fs::exists(options.checkpoint, failed))
    notes.push_back(fmt::format("--checkpoint {}: it does not exist yet, and the job ends if it does not find it",
                                options.checkpoint));
  else
    named_checkpoint(options.checkpoint);
}

/// The job of the recipe or the sweep, after the checks of `runner check`.
SlurmJob ready_job(const SubmitOptions& options, std::vector<std::string>& notes) {
  if (is_sweep_file(options.file)) {
    const auto sweep = load_ready_sweep(options.file, notes);
    return job_of_sweep(sweep, load_whole_recipe(sweep.recipe, sweep.overrides), options, notes);
  }
  const Recipe recipe = load_ready_recipe(options.file, options.overrides);
  for (const auto& note : input_notes(recipe)) notes.push_back(note);
  SlurmJob job = job_of_recipe(recipe, options, notes);
  check_checkpoint(options, notes);
  check_plan(recipe, notes);
  return job;
}

bool is_in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  const auto folders = split(path ? path : "", ':');
  return std::ranges::any_of(folders,
                             [&](const auto& folder) { return ::access((folder + "/" + program).c_str(), X_OK) == 0; });
}

/// Writes the script to a new file in the ledger's folder `submitted`. Only its owner can read it: --set may contain secrets.
fs::path keep_script(const SlurmJob& job, const std::string& text) {
  const fs::path folder = fs::path(job.home) / "submitted";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw environment_error("cannot make the folder {}: {}", folder.string(), error.message());
  for (int number = 1;; ++number) {
    const fs::path file = folder / (job.name + (number > 1 ? fmt::format("-{}", number) : "") + ".sbatch");
    const Descriptor opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
    if (!opened.is_open() && errno == EEXIST) continue;
    const bool written = opened.is_open() && ::write(opened.get(), text.data(), text.size()) == std::ssize(text) &&
                         ::fsync(opened.get()) == 0;
    if (written) return file;
    const std::string reason = std::strerror(errno);
    if (opened.is_open()) fs::remove(file, error);
    throw environment_error("cannot write {}: {}", file.string(), reason);
  }
}

/// Gives the script to sbatch, and returns the job's number.
std::string submit_script(const fs::path& script) {
  constexpr std::chrono::minutes patience{5};
  const auto answer = capture({"sbatch", "--parsable", script.string()}, {.timeout = patience, .with_stderr = true});
  if (answer.too_late)
    throw environment_error(
        "sbatch has not answered for {} and was stopped; `squeue --me` shows whether the job is "
        "there. The script: {}",
        write_duration(patience), script.string());
  if (answer.status != 0)
    throw environment_error(
        "sbatch {}: {}\nthe script: {}",
        answer.status < 0 ? "did not end by itself" : fmt::format("failed with exit code {}", answer.status),
        trim(answer.output), script.string());
  std::string number;
  for (const auto& line : split(trim(answer.output), '\n')) {
    const std::string first = line.substr(0, line.find(';'));  // with --parsable: "NUMBER" or "NUMBER;CLUSTER"
    if (number.empty() && !first.empty() && first.find_first_not_of("0123456789") == std::string::npos)
      number = first;
    else
      log::warning("{}", line);
  }
  if (!number.empty()) return number;
  throw environment_error("sbatch printed no job number; `squeue --me` shows whether the job is there. The script: {}",
                          script.string());
}

void tell(const SlurmJob& job, const std::string& number, const fs::path& script) {
  const std::string name = slurm_run_name(job, number);
  const bool run = job.kind == SlurmJob::Kind::run;
  log::info("submitted job {}, whose {} is {}", number, run ? "run" : "sweep", name);
  log::info("the script: {}", script.string());
  log::info("in the queue: squeue -j {}", number);
  if (run)
    log::info("once it runs: runner logs {0}, runner tail {0}", name);
  else
    log::info("once it runs: runner sweep status {}", name);
  if (job.kind == SlurmJob::Kind::trials)
    log::info(
        "a trial whose job was killed: scontrol requeue {}_TRIAL, or, when no job is left, runner sweep resume {}",
        number, name);
}

ExitCode submit(const SubmitOptions& options, bool print, bool as_json) {
  std::vector<std::string> notes;
  const SlurmJob job = ready_job(options, notes);
  const std::string text = slurm_script(job);
  for (const auto& note : notes) log::info("note: {}", note);
  if (print) {
    std::fputs(text.c_str(), stdout);
    return ExitCode::done;
  }
  if (!is_in_path("sbatch"))
    throw environment_error(
        "sbatch is not in PATH: this machine cannot submit jobs to Slurm. With --print, `runner submit` prints the "
        "script");
  const fs::path script = keep_script(job, text);
  const std::string number = submit_script(script);
  tell(job, number, script);
  const std::string name = slurm_run_name(job, number);
  const bool run = job.kind == SlurmJob::Kind::run;
  if (as_json)
    print_json(json{{"schema", 1},
                    {"job", number},
                    {"script", script.string()},
                    {"run", run ? json(name) : json()},
                    {"sweep", run ? json() : json(name)}});
  return ExitCode::done;
}

void add_job_options(CLI::App& app, SubmitOptions& options) {
  app.add_option("--partition", options.partition, "Partition of the job");
  app.add_option("--account", options.account, "Account that is charged");
  app.add_option("--qos", options.qos, "Quality of service");
  app.add_option("--time", options.time,
                 "Time limit, as sbatch or recipes write it (12:00:00, 2-00:00:00, 1d12h). Default: train.max_time "
                 "(budget.time of a sweep without --array), 10 minutes to start and the time to save; without it, the "
                 "partition's");
  app.add_option("--cpus-per-task", options.cpus_per_task,
                 "CPUs of a task. Default: devices.threads_per_rank; without it, the partition's")
      ->check(at_least_one());
  app.add_option("--mail-user", options.mail_user, "Address that Slurm tells of the job's end, failure and requeues");
  app.add_option("--dependency", options.dependency, "When the job may begin, as in afterok:4711");
  app.add_option("--output", options.output,
                 "File for the job's output, with Slurm's patterns; default: %x-%j.out, or %x-%A_%a.out of an array");
  app.add_option("--sbatch", options.further,
                 "One more option of sbatch, as in --sbatch=--constraint=a100; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--array", options.array,
                 "Sweeps: an array with one job for each trial, of which at most N run at the same time (sbatch's own "
                 "--array takes a list of numbers)")
      ->check(at_least_one())
      ->type_name("N");
  app.add_option("--parallel", options.parallel,
                 "Sweeps without --array: trials at the same time; default: as in the file, or 1")
      ->check(at_least_one());
}

void add_container_options(CLI::App& app, SubmitOptions& options) {
  app.add_option("--container", options.container,
                 "Image in which the job runs. The working directory, the ledger, and the folders of the recipe, its "
                 "files and --checkpoint are mounted");
  app.add_option("--container-runtime", options.container_runtime,
                 "What runs the image. Default: apptainer for files that end in .sif, otherwise pyxis")
      ->check(CLI::IsMember({"pyxis", "apptainer"}));
  app.add_option("--mount", options.mounts, "One more folder to mount, PATH or PATH:PATH_INSIDE; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--program", options.program,
                 "The program `runner` where the job runs. Default: this one; in a container: runner");
}

}  // namespace

Action setup_submit(CLI::App& app) {
  auto options = std::make_shared<SubmitOptions>();
  auto print = std::make_shared<bool>(false), as_json = std::make_shared<bool>(false);
  app.add_option("recipe", options->file, "A recipe or a sweep file")->required();
  add_overrides(app, options->overrides);
  app.add_option("--checkpoint", options->checkpoint,
                 "Start from the weights, optimizer state and step of this checkpoint folder, from any run");
  app.add_flag("--accept-changed-data", options->accept_changed_data,
               "Continue from a checkpoint although the training data, their order or the tokenizer have changed");
  auto* to_stdout = app.add_flag("--print", *print, "Print the script, and submit nothing");
  add_json_option(app, *as_json)->excludes(to_stdout);
  add_job_options(app, *options);
  add_container_options(app, *options);
  app.footer(
      "Nodes, tasks and GPUs are those of [devices]. The script is kept in the ledger's folder `submitted`. The job "
      "reads the "
      "recipe when it starts. At SIGTERM it writes a checkpoint and requeues itself: before the time limit, with time "
      "for "
      "train.grace_time, and when it is preempted, if the partition's GraceTime is longer than train.grace_time.");
  return [options, print, as_json] { return submit(*options, *print, *as_json); };
}

}  // namespace runner
