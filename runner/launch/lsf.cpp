// LSF: jsrun starts one process for each task and sets the ranks (JSM_NAMESPACE_*). The job's rank file contains the hosts.
#include <algorithm>
#include <fstream>
#include <utility>

#include "runner/base/error.hpp"
#include "runner/base/host_name.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/variables.hpp"

namespace runner {

namespace {

constexpr const char* lsf_title = "LSF's jsrun";

bool detect_lsf(const Environment& environment) {
  return environment("LSB_JOBID") && environment("LSB_DJOB_RANKFILE") && environment("JSM_NAMESPACE_SIZE");
}

/// The compute hosts of the rank file, in its order and without duplicates. The file has one line for each task; its first
/// line is the launch node, which is skipped.
std::vector<std::string> compute_hosts(const Variables& variables) {
  auto path = variables.text({"LSB_DJOB_RANKFILE"});
  if (!path)
    throw environment_error("LSB_DJOB_RANKFILE is not set; {} sets it: is this process started by it?", lsf_title);
  std::ifstream file(*path);
  std::vector<std::string> hosts;
  bool launch_node = true;
  for (std::string line; std::getline(file, line);) {
    std::string host(trim(line));
    if (host.empty() || std::exchange(launch_node, false)) continue;
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  if (hosts.empty()) throw environment_error("LSB_DJOB_RANKFILE={} names no compute host", *path);
  return hosts;
}

/// The host name without its domain.
std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

/// The place of this host in the rank file. jsrun passes on the HOSTNAME of the launch node if that node exports it, so the variable counts
/// only if the real name is not in the file.
int own_index(const std::vector<std::string>& hosts, const Variables& variables) {
  const std::string real = host_name(), named = variables.text({"HOSTNAME"}).value_or(real);
  for (const auto& own : {real, named}) {
    const auto found = std::ranges::find(hosts, short_name(own), short_name);
    if (found != hosts.end()) return static_cast<int>(found - hosts.begin());
  }
  throw environment_error("this host, {}{}, is not in LSB_DJOB_RANKFILE, which names {}", real,
                          named == real ? "" : fmt::format(" (HOSTNAME={})", named), join(hosts, ", "));
}

Placement read_lsf(const Environment& environment) {
  Variables variables(environment, lsf_title);
  Placement placement;
  placement.cluster = "lsf";
  placement.launched = true;
  placement.rank = variables.number({"JSM_NAMESPACE_RANK"});
  placement.world_size = variables.number({"JSM_NAMESPACE_SIZE"});
  placement.local_rank = variables.number({"JSM_NAMESPACE_LOCAL_RANK"});
  auto hosts = compute_hosts(variables);
  placement.num_nodes = static_cast<int>(hosts.size());
  placement.node_rank = own_index(hosts, variables);
  placement.local_size =
      variables.optional_number({"JSM_NAMESPACE_LOCAL_SIZE"}).value_or(placement.world_size / placement.num_nodes);
  placement.job_id = variables.text({"LSB_JOBID"}).value_or("lsf");
  variables.set_meeting_point(placement, hosts.front(), "lsf/" + placement.job_id);
  return placement;
}

}  // namespace

const ClusterEnvironment lsf_environment{
    .name = "lsf",
    .title = lsf_title,
    .nodes_option = "jsrun --nrs={}",
    .ranks_option = "jsrun --tasks_per_rs={}",
    .block_option = "jsrun --tasks_per_rs={} --launch_distribution=packed",
    .detect = detect_lsf,
    .read = read_lsf,
};

}  // namespace runner
