// Reads a launcher's environment variables. A missing or invalid variable is an error with its name, its value and the
// launcher that sets it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runner/launch/cluster.hpp"

namespace runner {

class Variables {
 public:
  /// `title`: the launcher's name in messages.
  Variables(const Environment& environment, std::string title) : environment_(environment), title_(std::move(title)) {}

  /// The value of the first of `names` that is set and not empty.
  std::optional<std::string> text(std::initializer_list<const char*> names) const;
  /// The value of the first of `names` that is set, as an integer >= 0. Throws Error(environment) if none is set or the value is invalid.
  int number(std::initializer_list<const char*> names) const;
  std::optional<int> optional_number(std::initializer_list<const char*> names) const;

  /// Sets master_addr and master_port. The address is MASTER_ADDR, otherwise 127.0.0.1 for one node and `default_addr` for
  /// several; throws Error(usage) if that is empty. The port is MASTER_PORT, otherwise derived_port(job_key).
  void set_meeting_point(Placement& placement, const std::optional<std::string>& default_addr,
                         const std::string& job_key) const;

 private:
  const Environment& environment_;
  std::string title_;
};

/// A port from 20000 to 32767, the same on all ranks of the job: a hash of `job_key` and the user id. It is below Linux's
/// range for outgoing connections (32768 to 60999).
int derived_port(const std::string& job_key);

// Slurm's compact lists: hosts as in SLURM_JOB_NODELIST, counts as in SLURM_TASKS_PER_NODE.

/// "host[5-9,12],other" -> host5 ... host9, host12, other. Keeps leading zeros. A name may have several brackets
/// ("r[1-2]n[01-02]"). Throws Error(environment) with the text.
std::vector<std::string> expand_hostlist(std::string_view text);

/// "2(x3),1" -> 2, 2, 2, 1. Throws Error(environment) with the text.
std::vector<int> expand_counts(std::string_view text);

}  // namespace runner
