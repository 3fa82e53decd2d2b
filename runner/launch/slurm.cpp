// Slurm: srun starts one process for each task and sets its rank and the host list. The address is the step's first host.
//
// Only `srun` starts ranks. In a batch script or an interactive shell, the variables describe the allocation:
//   batch script or salloc shell, one task   -> local workers, as without a launcher
//   the same with several tasks or nodes     -> an error, because the other tasks would never start
//   `srun --pty bash`, salloc's shell step   -> local workers; Slurm's only task is the shell
//   srun inside any of these                 -> one rank for each task
//   mpirun or horovodrun inside any of these -> the ranks of that launcher
#include <algorithm>
#include <array>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

constexpr const char* slurm_title = "Slurm";

/// Whether a step id is not from srun: extern, batch and interactive steps (slurm.h counts down from 0xfffffffe).
bool special_step(const std::string& step) { return step.size() == 10 && step.starts_with("42949672"); }

bool in_srun_step(const Variables& variables) {
  auto step = variables.text({"SLURM_STEP_ID", "SLURM_STEPID"});
  return step && !special_step(*step) && variables.text({"SLURM_PROCID"});
}

bool in_interactive_step(const Variables& variables) {
  auto step = variables.text({"SLURM_STEP_ID", "SLURM_STEPID"});
  return step && special_step(*step) && variables.text({"SLURMD_NODENAME"});
}

/// Whether the task is an interactive shell, as in `srun --pty bash`.
bool is_shell_task(const Variables& variables) {
  static constexpr std::array shells{"bash", "sh", "zsh", "fish", "tcsh", "csh", "ksh", "interactive"};
  std::string job = variables.text({"SLURM_JOB_NAME"}).value_or("");
  return variables.text({"SLURM_PTY_PORT"}) || std::find(shells.begin(), shells.end(), job) != shells.end();
}

int allocated_tasks(const Variables& variables) {
  return variables.optional_number({"SLURM_NTASKS", "SLURM_NPROCS"}).value_or(1);
}
int allocated_nodes(const Variables& variables) {
  return variables.optional_number({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}).value_or(1);
}

bool started_by_slurm(const Environment& environment) {
  Variables variables(environment, slurm_title);
  if (!variables.text({"SLURM_JOB_ID", "SLURM_JOBID"})) return false;
  if (in_srun_step(variables)) {
    int tasks = variables.optional_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}).value_or(1);
    return tasks > 1 || !is_shell_task(variables);
  }
  return !in_interactive_step(variables) && (allocated_tasks(variables) > 1 || allocated_nodes(variables) > 1);
}

/// Whether mpirun or horovodrun, if one is detected, started this process inside the job: the process is in no step of srun, or in a step
/// with fewer tasks than there are ranks. Such a step starts mpirun's daemons, one on each node.
bool started_inside_job(const Environment& environment) {
  Variables variables(environment, slurm_title);
  if (!in_srun_step(variables)) return true;
  const int tasks = variables.optional_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}).value_or(1);
  const auto ranks = variables.optional_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE"});
  return ranks.value_or(0) > tasks;
}

[[noreturn]] void refuse_without_srun(const Variables& variables, const std::string& job) {
  throw usage_error(
      "Slurm allocated {} on {} to job {}, but this process is none of them: it was started without srun. "
      "Write `srun runner run RECIPE` (one task per device), or set devices.cluster = \"local\" to use this host alone",
      counted(allocated_tasks(variables), "task"), counted(allocated_nodes(variables), "node"), job);
}

/// Checks that Slurm's variables do not contradict each other.
void check_consistent(const Variables& variables, const Placement& placement, const std::vector<int>& tasks_per_node) {
  int total = 0;
  for (int tasks : tasks_per_node) total += tasks;
  if (static_cast<int>(tasks_per_node.size()) != placement.num_nodes || total != placement.world_size)
    throw environment_error(
        "Slurm's variables disagree: SLURM_STEP_NUM_TASKS={} and SLURM_STEP_NUM_NODES={}, but "
        "SLURM_STEP_TASKS_PER_NODE={} means {} on {}",
        placement.world_size, placement.num_nodes,
        variables.text({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}).value_or(""), counted(total, "task"),
        counted(std::ssize(tasks_per_node), "node"));
}

Placement slurm_placement(const Environment& environment) {
  Variables variables(environment, slurm_title);
  Placement placement{.cluster = "slurm", .launched = true};
  auto job = variables.text({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job) throw environment_error("SLURM_JOB_ID is not set; Slurm sets it: is this process started by srun?");
  if (!in_srun_step(variables)) refuse_without_srun(variables, *job);

  placement.job_id = *job;
  placement.rank = variables.number({"SLURM_PROCID"});
  placement.world_size = variables.number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  placement.local_rank = variables.number({"SLURM_LOCALID"});
  placement.node_rank = variables.number({"SLURM_NODEID"});
  placement.num_nodes = variables.number({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  auto tasks_text = variables.text({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!tasks_text) throw environment_error("SLURM_TASKS_PER_NODE is not set; Slurm sets it for every rank");
  std::vector<int> tasks_per_node = expand_counts(*tasks_text);
  check_consistent(variables, placement, tasks_per_node);
  if (placement.node_rank >= placement.num_nodes)
    throw environment_error("SLURM_NODEID={} is beyond the {} nodes of the step", placement.node_rank,
                            placement.num_nodes);
  placement.local_size = tasks_per_node[static_cast<size_t>(placement.node_rank)];

  auto nodes = variables.text({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  std::optional<std::string> first_host;
  if (nodes) first_host = expand_hostlist(*nodes).front();
  std::string step = variables.text({"SLURM_STEP_ID", "SLURM_STEPID"}).value_or("");
  variables.set_meeting_point(placement, first_host, "slurm/" + *job + "." + step);
  return placement;
}

}  // namespace

const ClusterEnvironment slurm_environment{
    .name = "slurm",
    .title = slurm_title,
    .nodes_option = "--nodes={}",
    .ranks_option = "srun --ntasks-per-node={}",
    .block_option = "srun --ntasks-per-node={} --distribution=block",
    .detect = started_by_slurm,
    .yields = started_inside_job,
    .read = slurm_placement,
};

}  // namespace runner
