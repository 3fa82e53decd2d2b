// Parses Slurm's compact lists: hosts as in SLURM_JOB_NODELIST, counts as in SLURM_TASKS_PER_NODE.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace runner {

/// "host[5-9,12],other" -> host5 ... host9, host12, other. Keeps leading zeros. A name may have several brackets
/// ("r[1-2]n[01-02]"). Throws Error(environment) with the text.
std::vector<std::string> expand_hostlist(std::string_view text);

/// "2(x3),1" -> 2, 2, 2, 1. Throws Error(environment) with the text.
std::vector<int> expand_counts(std::string_view text);

}  // namespace runner
