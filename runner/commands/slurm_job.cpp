#include "runner/commands/slurm_job.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "runner/base/files.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/provenance.hpp"
#include "runner/commands/sweep.hpp"
#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/key_table.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

using std::chrono::minutes;
using std::chrono::seconds;

/// Between the end of train.grace_time, when the run has saved or was killed, and the time limit: the script requeues the job.
constexpr seconds time_to_requeue{60};
constexpr seconds latest_signal{65535};  ///< the most that sbatch's --signal takes
constexpr minutes time_to_start{10};  ///< added to train.max_time, which does not count the time before the first step
constexpr int64_t most_of_node = 65533;  ///< the most tasks, and CPUs of a task, that Slurm can count

[[noreturn]] void refuse(const Recipe& recipe, const std::string& key, const std::string& message) {
  Diagnostic diagnostic{recipe.origin(key), "slurm", message};
  diagnostic.section = key.substr(0, key.find('.'));
  throw RecipeError({std::move(diagnostic)});
}

/// The devices of one node that a recipe asks for.
struct Demand {
  bool cuda = false;
  int ranks = 1;                   ///< on each node
  std::string key;                 ///< of the recipe, that decides the number
  std::optional<int64_t> threads;  ///< of each rank
};

int number_of_devices(const Recipe& recipe, const Recipe::Devices& devices) {
  const char* known =
      "Slurm must know their number before the job runs; give it: --set devices.devices=8, for example (in a "
      "sweep: the key in [sweep.set])";
  switch (devices.devices.kind) {
    case DeviceRequest::Kind::count:
      if (devices.devices.count > 0) return devices.devices.count;
      refuse(recipe, "devices.devices", fmt::format("devices = -1 means all devices of a node, and {}", known));
    case DeviceRequest::Kind::automatic:
      refuse(recipe, "devices.devices", fmt::format("devices = \"auto\" means all devices of a node, and {}", known));
    case DeviceRequest::Kind::free_count:
      refuse(recipe, "devices.devices",
             fmt::format("Slurm gives a job devices that nobody uses: write devices = {} instead of \"free:{}\"",
                         devices.devices.count, devices.devices.count));
    case DeviceRequest::Kind::indices:
      refuse(recipe, "devices.devices",
             fmt::format("Slurm chooses which devices a job gets: give their number, devices = {}, instead of indices",
                         devices.devices.indices.size()));
  }
  RUNNER_CHECK(false, "a kind of request");
  return 0;
}

Demand demand_of(const Recipe& recipe) {
  const auto devices = devices_of(recipe);
  if (devices.simulate)
    refuse(recipe, "devices.simulate",
           "devices.simulate tries a recipe on one machine, with one command that starts all ranks; a job of Slurm "
           "starts one for each rank: remove it");
  if (recipe.plugins.accelerator)
    refuse(
        recipe, "plugins.accelerator",
        "which devices the plug-in has is known only on the node, and Slurm must know it before: remove the plug-in, "
        "or start `runner run` in a job script of your own");
  if (devices.accelerator == "auto")
    refuse(
        recipe, "devices.accelerator",
        fmt::format("accelerator = \"auto\" is decided by the node on which the job runs, and Slurm must know before "
                    "whether the job needs GPUs: add --set devices.accelerator=cuda{} or --set "
                    "devices.accelerator=cpu (in a sweep: the keys in [sweep.set])",
                    devices.devices.kind == DeviceRequest::Kind::count && devices.devices.count > 0
                        ? ""
                        : " devices.devices=8 (the number of GPUs of a node)"));
  Demand demand{.cuda = devices.accelerator == "cuda", .ranks = 1, .key = "", .threads = devices.threads_per_rank};
  const bool counted = devices.devices.kind == DeviceRequest::Kind::count && devices.devices.count > 0;
  const bool by_devices = demand.cuda || counted;
  demand.ranks = by_devices ? number_of_devices(recipe, devices) : static_cast<int>(devices.cpu_processes);
  demand.key = by_devices ? "devices.devices" : "devices.cpu_processes";
  return demand;
}

/// Refuses a recipe that srun cannot start with one process for each rank.
void check_launch(const Recipe& recipe) {
  if (recipe.devices.elastic())
    refuse(recipe, recipe.devices.min_nodes ? "devices.min_nodes" : "devices.max_nodes",
           "srun starts a fixed number of nodes, so a job of Slurm cannot be elastic: remove min_nodes and max_nodes, "
           "and set devices.num_nodes; the job resumes after a preemption");
  const auto& cluster = recipe.devices.cluster;
  if (cluster != "auto" && cluster != "slurm")
    refuse(recipe, "devices.cluster",
           fmt::format("devices.cluster = \"{}\", and the job starts its ranks by srun: write \"slurm\" or \"auto\"",
                       cluster));
  if (recipe.plugins.cluster_environment)
    refuse(recipe, "plugins.cluster_environment",
           "the job starts its ranks by srun, and Slurm's variables say which ranks they are: remove the plug-in, or "
           "start `runner run` in a job script of your own");
  std::vector<Diagnostic> ignored;
  const auto strategy = resolve_strategy(recipe, ignored);
  if (strategy.entry && strategy.entry->ranks_are_threads)
    refuse(recipe, "strategy.name",
           fmt::format("strategy `{}` has one process for all devices of a node, and Slurm starts one for each device: "
                       "use ddp",
                       strategy.entry->name));
}

/// How long before the time limit Slurm tells the run to stop.
seconds signal_lead(const Recipe& recipe) {
  const seconds lead = recipe.train.grace_time + time_to_requeue;
  if (lead > latest_signal)
    refuse(recipe, "train.grace_time",
           fmt::format("Slurm can tell a job at most {} before its end to stop, and grace_time and the {} s to requeue "
                       "the job are {}",
                       write_duration(latest_signal), time_to_requeue.count(), write_duration(lead)));
  return lead;
}

/// The resources that a job asks for.
struct Wanted {
  int nodes = 1;
  int64_t tasks = 1, gpus = 0;      ///< on each node
  std::string key;                  ///< of the recipe, that decides tasks and GPUs
  std::optional<SlurmOption> cpus;  ///< --cpus-per-task
  std::optional<seconds> time;      ///< the longest time that the job trains
  std::string time_key;             ///< that decides it
};

/// The value of --time, from the command line or from the time that the job trains; nothing: the partition's default.
std::optional<SlurmOption> time_limit(const Wanted& wanted, const Recipe& recipe, const SubmitOptions& options,
                                      seconds lead, std::vector<std::string>& notes) {
  if (!options.time) {
    if (!wanted.time) return std::nullopt;
    const seconds all = *wanted.time + lead + time_to_start;
    return SlurmOption{"time", write_slurm_time(std::chrono::ceil<minutes>(all)), wanted.time_key};
  }
  const auto limit = parse_slurm_time(*options.time);
  if (!limit)
    throw usage_error(
        "--time {}: it takes a time as sbatch does, such as 90 (minutes), 12:00:00 or 2-00:00:00, or as recipes do, "
        "such as 1d12h",
        *options.time);
  if (*limit <= lead)
    throw usage_error(
        "--time {}: Slurm tells the run to stop {} before the limit (train.grace_time = {}, and {} s to requeue the "
        "job), so the limit must be longer than that",
        *options.time, write_duration(lead), write_duration(recipe.train.grace_time), time_to_requeue.count());
  if (wanted.time && *limit < *wanted.time + lead)
    notes.push_back(
        fmt::format("{} = {} is longer than the job's time limit allows; the job requeues itself until it has ended",
                    wanted.time_key, write_duration(*wanted.time)));
  return SlurmOption{"time", write_slurm_time(*limit), "--time"};
}

/// --cpus-per-task for tasks with `ranks` ranks each; nothing: the partition's default.
std::optional<SlurmOption> cpus_per_task(const Demand& demand, const SubmitOptions& options, int64_t ranks) {
  if (demand.threads && *demand.threads > most_of_node / ranks)
    throw usage_error("{} with devices.threads_per_rank = {} each need more CPUs than Slurm can give a task ({})",
                      counted(ranks, "rank"), *demand.threads, most_of_node);
  const auto needed = demand.threads ? std::optional(*demand.threads * ranks) : std::nullopt;
  if (!options.cpus_per_task)
    return needed ? std::optional(SlurmOption{"cpus-per-task", std::to_string(*needed), "devices.threads_per_rank"})
                  : std::nullopt;
  if (needed && *options.cpus_per_task < *needed)
    throw usage_error("--cpus-per-task {}: a task of {} needs {} (devices.threads_per_rank = {})",
                      *options.cpus_per_task, counted(ranks, "rank"), *needed, *demand.threads);
  return SlurmOption{"cpus-per-task", std::to_string(*options.cpus_per_task), "--cpus-per-task"};
}

/// The options that all jobs have: nodes, tasks and devices of a node, time, and those of the command line.
void add_options(SlurmJob& job, const Recipe& recipe, const SubmitOptions& options, const Wanted& wanted,
                 std::vector<std::string>& notes) {
  auto& list = job.options;
  list.push_back({"job-name", job.name, "the run's name"});
  list.push_back({"nodes", std::to_string(wanted.nodes), "devices.num_nodes"});
  list.push_back({"ntasks-per-node", std::to_string(wanted.tasks), wanted.key});
  if (wanted.gpus > 0) list.push_back({"gpus-per-node", std::to_string(wanted.gpus), wanted.key});
  if (wanted.cpus) list.push_back(*wanted.cpus), job.cpus_per_task = wanted.cpus->value;
  const seconds lead = signal_lead(recipe);
  if (auto time = time_limit(wanted, recipe, options, lead, notes)) list.push_back(*time);
  list.push_back({"signal", fmt::format("TERM@{}", lead.count()), "train.grace_time"});
  list.push_back({.name = "requeue", .origin = "`runner submit`"});
  list.push_back({"open-mode", "append", "`runner submit`"});
  const std::string output = job.kind == SlurmJob::Kind::trials ? "%x-%A_%a.out" : "%x-%j.out";
  if (!options.output) list.push_back({"output", output, "`runner submit`"});
  auto add = [&](const char* name, const std::optional<std::string>& value) {
    if (value && value->empty()) throw usage_error("--{}: its value is empty", name);
    if (value) list.push_back({name, *value, fmt::format("--{}", name)});
  };
  add("output", options.output);
  add("partition", options.partition);
  add("account", options.account);
  add("qos", options.qos);
  add("dependency", options.dependency);
  add("mail-user", options.mail_user);
  if (options.mail_user) list.push_back({"mail-type", "END,FAIL,REQUEUE", "--mail-user"});
  job.further = options.further;
}

/// Adds the absolute paths of files in Lua that options name ("lua:FILE"), and of an option that is a path itself.
void add_option_files(const nlohmann::json& options, std::vector<std::string>& files) {
  constexpr std::string_view script = "lua:";
  for (const auto& value : options) {
    if (value.is_structured()) add_option_files(value, files);
    if (!value.is_string()) continue;
    auto text = value.get<std::string>();
    if (text.starts_with(script)) text.erase(0, script.size());
    if (fs::path(text).is_absolute() && fs::exists(text)) files.push_back(text);
  }
}

/// The files and folders that a recipe names or was read from, as far as their paths are absolute.
std::vector<std::string> files_of(const Recipe& recipe) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& path) {
    if (fs::path(path).is_absolute()) files.push_back(path);
  };
  const auto values = recipe_to_json(recipe);
  for (const auto& key : key_table()) {
    const auto section = values.find(key.section);
    if (section == values.end() || !section->contains(key.name)) continue;
    const auto& value = section->at(key.name);
    if (key.type == Option::Type::path && value.is_string()) add(value);
    if (key.type == Option::Type::paths)
      for (const auto& path : value) add(path);
  }
  for (const auto& source : recipe.data.sources)
    for (const auto* list : {&source.train, &source.validation}) std::ranges::for_each(*list, add);
  add_option_files(recipe.strategy.options, files);
  add_option_files(recipe.hooks.options, files);
  const auto read = recipe_files(recipe);
  for (const auto& [path, hash] : read.items()) add(path);
  return files;
}

/// The folders of files, and `folders`, without those that are inside others.
std::vector<std::string> outermost(std::vector<std::string> folders, const std::vector<std::string>& files) {
  for (const auto& file : files) folders.push_back(fs::absolute(file).lexically_normal().parent_path().string());
  std::ranges::sort(folders);
  std::vector<std::string> kept;
  for (const auto& folder : folders)
    if (std::ranges::none_of(kept, [&](const auto& outer) { return (folder + "/").starts_with(outer + "/"); }))
      kept.push_back(folder);
  return kept;
}

/// The container of --container, with the folders of the job and of what the recipe names.
std::optional<SlurmContainer> container_of(const Recipe& recipe, const SlurmJob& job, const SubmitOptions& options,
                                           bool gpus) {
  if (!options.container) {
    if (options.container_runtime || !options.mounts.empty())
      throw usage_error("{} is for jobs in a container, and --container is missing",
                        options.container_runtime ? "--container-runtime" : "--mount");
    return std::nullopt;
  }
  using Runtime = SlurmContainer::Runtime;
  const bool sif = options.container->ends_with(".sif");
  const std::string runtime = options.container_runtime.value_or(sif ? "apptainer" : "pyxis");
  auto files = files_of(recipe);
  files.push_back(job.file);
  if (!options.checkpoint.empty() && fs::exists(options.checkpoint)) files.push_back(options.checkpoint);
  SlurmContainer container{.runtime = runtime == "apptainer" ? Runtime::apptainer : Runtime::pyxis,
                           .image = *options.container,
                           .mounts = outermost({job.directory, job.home}, files),
                           .gpus = gpus};
  for (const auto& folder : container.mounts)
    if (folder.find(':') != std::string::npos)
      throw usage_error("{} cannot be mounted in a container: a colon separates a folder from its path inside", folder);
  container.mounts.insert(container.mounts.end(), options.mounts.begin(), options.mounts.end());
  return container;
}

std::string random_letters() {
  constexpr std::string_view letters = "23456789abcdefghjkmnpqrstuvwxyz";
  std::random_device random;
  std::uniform_int_distribution<size_t> pick(0, letters.size() - 1);
  std::string text;
  for (int i = 0; i < 4; ++i) text += letters[pick(random)];
  return text;
}

/// The parts of a job that do not depend on what it asks for.
SlurmJob begin_job(SlurmJob::Kind kind, const std::string& name, const SubmitOptions& options) {
  SlurmJob job;
  job.kind = kind;
  job.name = slurm_job_name(name);
  job.tag = random_letters();
  job.directory = fs::current_path().string();
  job.home = fs::absolute(ledger_home()).lexically_normal().string();
  job.program = options.program.value_or(options.container ? "runner" : own_program().string());
  job.file = options.file;
  return job;
}

/// `overrides` as arguments of `runner run`, without the run's name, which the job sets.
std::vector<std::string> override_words(const std::vector<std::string>& overrides) {
  std::vector<std::string> words;
  const std::string removed = unset_override(""), name = "run.name";
  for (const auto& text : overrides) {
    if (text.starts_with(name + "=") || text == unset_override(name)) continue;
    if (text.starts_with(removed))
      words.insert(words.end(), {"--unset", text.substr(removed.size())});
    else
      words.insert(words.end(), {"--set", text});
  }
  return words;
}

}  // namespace

Topology topology_of_job(const Recipe& recipe) {
  const Demand demand = demand_of(recipe);
  Topology topology;
  if (demand.cuda) topology.accelerator = cuda_accelerator();
  topology.bf16 = demand.cuda;
  topology.devices_per_node = demand.ranks;
  topology.num_nodes = static_cast<int>(recipe.devices.num_nodes);
  topology.supervisor_each_rank = topology.world_size() > 1;
  topology.cores = demand.ranks * static_cast<int>(demand.threads.value_or(1));
  topology.device_reason = fmt::format("{} = {}", demand.key, demand.ranks);
  return topology;
}

SlurmJob job_of_recipe(const Recipe& recipe, const SubmitOptions& options, std::vector<std::string>& notes) {
  for (const auto& [name, given] : {std::pair{"--array", options.array}, std::pair{"--parallel", options.parallel}})
    if (given) throw usage_error("{} is for sweeps, and {} is a recipe", name, options.file);
  const Demand demand = demand_of(recipe);
  check_launch(recipe);
  const std::string stem = fs::path(options.file).stem().string();
  SlurmJob job = begin_job(SlurmJob::Kind::run, recipe.run.name.empty() ? stem : recipe.run.name, options);
  add_options(job, recipe, options,
              {.nodes = static_cast<int>(recipe.devices.num_nodes),
               .tasks = demand.ranks,
               .gpus = demand.cuda ? demand.ranks : 0,
               .key = demand.key,
               .cpus = cpus_per_task(demand, options, 1),
               .time = recipe.train.max_time,
               .time_key = "train.max_time"},
              notes);
  job.arguments = override_words(options.overrides);
  if (!options.checkpoint.empty()) job.arguments.insert(job.arguments.end(), {"--checkpoint", options.checkpoint});
  if (options.accept_changed_data)
    for (auto* list : {&job.arguments, &job.resume_arguments}) list->emplace_back("--accept-changed-data");
  job.container = container_of(recipe, job, options, demand.cuda);
  return job;
}

SlurmJob job_of_sweep(const sweep::SweepFile& sweep, const Recipe& recipe, const SubmitOptions& options,
                      std::vector<std::string>& notes) {
  if (!options.overrides.empty())
    throw usage_error("--set is for recipes, but {} is a sweep file: use its section [sweep.set]", options.file);
  if (!options.checkpoint.empty() || options.accept_changed_data)
    throw usage_error("{} is for recipes, but {} is a sweep file",
                      options.checkpoint.empty() ? "--accept-changed-data" : "--checkpoint", options.file);
  if (options.array && options.parallel)
    throw usage_error(
        "--parallel and --array: a job of an array trains one trial; --array N limits the jobs that run at "
        "the same time");
  for (const auto& parameter : sweep.space.parameters())
    if (parameter.name.starts_with("devices."))
      throw usage_error("{}: the sweep varies {}, so what its trials need is not known before they begin", options.file,
                        parameter.name);
  check_launch(recipe);
  if (recipe.devices.num_nodes > 1)
    refuse(recipe, "devices.num_nodes",
           fmt::format("each trial of a sweep runs on one node, but the recipe has devices.num_nodes = {}",
                       recipe.devices.num_nodes));
  const Demand demand = demand_of(recipe);
  SlurmJob job = begin_job(options.array ? SlurmJob::Kind::trials : SlurmJob::Kind::sweep, sweep.name, options);
  const int parallel = options.array ? 1 : options.parallel.value_or(sweep.parallel.value_or(1));
  const int64_t ranks = int64_t{demand.ranks} * parallel;
  if (ranks > most_of_node)
    throw usage_error("{} at the same time with {} each are more than the {} that Slurm can count on a node: lower {}",
                      counted(parallel, "trial"), counted(demand.ranks, "rank"), most_of_node,
                      options.parallel ? "--parallel" : "[sweep] parallel");
  const auto whole = sweep.time_s ? std::optional(seconds(std::llround(std::ceil(*sweep.time_s)))) : std::nullopt;
  add_options(job, recipe, options,
              {.gpus = demand.cuda ? ranks : 0,
               .key = demand.key,
               .cpus = cpus_per_task(demand, options, ranks),
               .time = options.array ? recipe.train.max_time : whole,
               .time_key = options.array ? "train.max_time" : "budget.time"},
              notes);
  if (options.array)
    job.options.push_back(
        {"array", fmt::format("0-{}%{}", shared_trials(sweep).size() - 1, *options.array), "--array"});
  else
    job.arguments = job.resume_arguments = {"--parallel", std::to_string(parallel)};
  job.container = container_of(recipe, job, options, demand.cuda);
  return job;
}

}  // namespace runner
