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

constexpr const char* title = "LSF's jsrun";

bool detect_lsf(const Environment& environment) {
  return environment("LSB_JOBID") && environment("LSB_DJOB_RANKFILE") && environment("JSM_NAMESPACE_SIZE");
}

/// The compute hosts of the rank file, in its order and without duplicates. The file has one line for each task; its first
/// line is the launch node, which is skipped.
std::vector<std::string> compute_hosts(const Variables& variables) {
  auto path = variables.text({"LSB_DJOB_RANKFILE"});
  if (!path) throw environment_error("LSB_DJOB_RANKFILE is not set; {} sets it: is this process started by it?", title);
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

std::string own_host(const Variables& variables) {
  if (auto host = variables.text({"HOSTNAME"})) return *host;
  return host_name();
}

/// The host name without its domain.
std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

int index_of(const std::vector<std::string>& hosts, const std::string& own) {
  auto found = std::find_if(hosts.begin(), hosts.end(),
                            [&](const std::string& host) { return short_name(host) == short_name(own); });
  if (found == hosts.end())
    throw environment_error("this host, {}, is not in LSB_DJOB_RANKFILE, which names {}", own, join(hosts, ", "));
  return static_cast<int>(found - hosts.begin());
}

Placement read_lsf(const Environment& environment) {
  Variables variables(environment, title);
  Placement placement;
  placement.cluster = "lsf";
  placement.launched = true;
  placement.rank = variables.number({"JSM_NAMESPACE_RANK"});
  placement.world_size = variables.number({"JSM_NAMESPACE_SIZE"});
  placement.local_rank = variables.number({"JSM_NAMESPACE_LOCAL_RANK"});
  auto hosts = compute_hosts(variables);
  placement.num_nodes = static_cast<int>(hosts.size());
  placement.node_rank = index_of(hosts, own_host(variables));
  placement.local_size =
      variables.optional_number({"JSM_NAMESPACE_LOCAL_SIZE"}).value_or(placement.world_size / placement.num_nodes);
  placement.job_id = variables.text({"LSB_JOBID"}).value_or("lsf");
  variables.set_meeting_point(placement, hosts.front(), "lsf/" + placement.job_id);
  return placement;
}

}  // namespace

const ClusterEnvironment lsf_environment{
    .name = "lsf",
    .title = title,
    .nodes_option = "jsrun --nrs={}",
    .ranks_option = "jsrun --tasks_per_rs={}",
    .block_option = "jsrun --tasks_per_rs={} --launch_distribution=packed",
    .detect = detect_lsf,
    .read = read_lsf,
};

}  // namespace runner
