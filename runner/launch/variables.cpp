// Reads variables and derives the rendezvous port of a job.
#include "runner/launch/variables.hpp"

#include <unistd.h>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "runner/base/text.hpp"

namespace runner {

std::optional<std::string> Variables::text(std::initializer_list<const char*> names) const {
  for (const char* name : names)
    if (auto value = environment_(name); value && !value->empty()) return value;
  return std::nullopt;
}

std::optional<int> Variables::optional_number(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    auto value = environment_(name);
    if (!value || value->empty()) continue;
    const auto number = parse_number<int>(*value);
    if (!number || *number < 0)
      throw environment_error("{}=\"{}\" is not a whole number >= 0 ({} sets it)", name, *value, title_);
    return number;
  }
  return std::nullopt;
}

int Variables::number(std::initializer_list<const char*> names) const {
  if (auto value = optional_number(names)) return *value;
  throw environment_error("{} is not set; {} sets it for every rank: is this process started by it?",
                          join_or({names.begin(), names.end()}), title_);
}

void Variables::set_meeting_point(Placement& placement, const std::optional<std::string>& default_addr,
                                  const std::string& job_key) const {
  if (auto addr = text({"MASTER_ADDR"}))
    placement.master_addr = *addr;
  else if (placement.num_nodes == 1)
    placement.master_addr = "127.0.0.1";
  else if (default_addr)
    placement.master_addr = *default_addr;
  else
    throw usage_error(
        "{} started {} ranks on {} nodes but gives no rendezvous address: set MASTER_ADDR to the host of rank 0 for "
        "every rank",
        title_, placement.world_size, placement.num_nodes);
  placement.master_port = optional_number({"MASTER_PORT"}).value_or(derived_port(job_key));
  if (placement.master_port < 1 || placement.master_port > 65535)
    throw environment_error("MASTER_PORT={} is not a port: 1 to 65535", placement.master_port);
}

int derived_port(const std::string& job_key) {
  return 20000 + static_cast<int>(fnv1a(job_key + "/" + std::to_string(::getuid())) % 12768);
}

}  // namespace runner
