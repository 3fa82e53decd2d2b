// Sets up the environment, log and descriptors of each rank.
#include "runner/launch/worker_group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "runner/base/clock.hpp"
#include "runner/base/descriptor_limit.hpp"
#include "runner/base/log_heading.hpp"
#include "runner/launch/worker_process.hpp"

namespace runner {

namespace {

std::map<std::string, std::string> rank_environment(const WorkerGroup& group, const Handout& handout, int local) {
  std::map<std::string, std::string> variables = group.environment;
  int local_world = group.local_world_size > 0 ? group.local_world_size : group.local_size;
  variables["RANK"] = std::to_string(group.first_rank + local);
  const int local_rank = group.local_rank_offset + local;  // beyond the first node in a simulation of several
  variables["LOCAL_RANK"] = std::to_string(local_rank % local_world);
  variables["WORLD_SIZE"] = std::to_string(group.world_size);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(local_world);
  variables["NODE_RANK"] = std::to_string(group.node_rank + local_rank / local_world);
  variables["MASTER_ADDR"] = group.master_addr;
  variables["MASTER_PORT"] = std::to_string(handout.master_port);
  if (group.ranks_of_worker > 1) {
    variables["RUNNER_RANKS_OF_WORKER"] = std::to_string(group.ranks_of_worker);
    // LibTorch's record of collectives has a map of the process that its threads change without a lock (FlightRecorderDetail.hpp).
    variables["TORCH_FR_BUFFER_SIZE"] = "0";
  }
  if (!group.device_indices.empty()) {
    const auto first = group.device_indices.begin() + local;
    variables["RUNNER_DEVICE_INDEX"] = fmt::format("{}", fmt::join(first, first + group.ranks_of_worker, ","));
  }
  if (!handout.node_address.empty()) variables["RUNNER_NODE_ADDRESS"] = handout.node_address;
  if (local == 0 && handout.listen_fd >= 0) variables["RUNNER_LISTEN_FD"] = std::to_string(handout.listen_fd);
  if (handout.shm_fd >= 0) variables["RUNNER_SHM_FD"] = std::to_string(handout.shm_fd);
  return variables;
}

}  // namespace

void place(WorkerGroup& group, const Placement& placement) {
  group.first_rank = placement.rank;
  group.world_size = placement.world_size;
  group.local_size = placement.launched ? 1 : placement.simulated ? placement.world_size : placement.local_size;
  group.local_rank_offset = placement.launched ? placement.local_rank : 0;
  group.local_world_size = placement.local_size;
  group.node_rank = placement.node_rank;
  group.num_nodes = placement.num_nodes;
  group.master_addr = placement.master_addr;
  group.master_port = placement.master_port;
}

std::string log_file_of(const WorkerGroup& group, int rank) {
  return (std::filesystem::path(group.log_dir) / fmt::format("rank-{}.log", rank)).string();
}

std::vector<std::unique_ptr<Worker>> start_workers(const WorkerGroup& group, const Handout& handout) {
  // A worker takes an event pipe, an eventfd, and a log while it starts. The leader has a connection to each other supervisor.
  raise_descriptor_limit(256 + 4 * group.local_size + (group.world_size - group.local_size),
                         fmt::format("the supervisor of {} of {} ranks", group.local_size, group.world_size));
  std::filesystem::create_directories(group.log_dir);
  std::vector<std::unique_ptr<Worker>> workers;
  const auto option = std::ranges::find(group.arguments, "--attempt");
  const bool numbered = option != group.arguments.end() && option + 1 != group.arguments.end();
  const std::string heading = numbered ? log_heading(*(option + 1), format_time(wall_seconds())) : "";
  for (int local = 0; local < group.local_size; local += group.ranks_of_worker) {
    WorkerCommand command;
    command.rank = group.first_rank + local;
    command.ranks = group.ranks_of_worker;
    command.program = group.worker;
    command.arguments = group.arguments;
    command.environment = rank_environment(group, handout, local);
    command.log_file = log_file_of(group, command.rank);
    command.log_heading = heading;
    command.stopped_limit = group.stopped_limit;
    if (local == 0 && handout.listen_fd >= 0) command.inherited.push_back(handout.listen_fd);
    if (handout.shm_fd >= 0) command.inherited.push_back(handout.shm_fd);
    workers.push_back(std::make_unique<WorkerProcess>(command));
  }
  return workers;
}

}  // namespace runner
