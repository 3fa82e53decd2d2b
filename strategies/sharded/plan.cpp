#include "strategies/sharded/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace runner {

std::optional<std::string> refuse_groups(const Job& job, const std::string& form, const std::string& option,
                                         int64_t group) {
  if (group >= 1 && job.world_size % group == 0) return std::nullopt;
  std::string works;
  for (int size = 1; size <= job.world_size; ++size)
    if (job.world_size % size == 0) works += fmt::format("{}{}", works.empty() ? "" : ", ", size);
  return fmt::format("{} cannot cut {} ranks into groups of {}; {} may be {}", form, job.world_size, group, option,
                     works);
}

std::vector<size_t> units_of_blocks(const ShardPlan& plan, size_t blocks) {
  std::vector<size_t> unit_of(blocks, plan.units.size());
  for (size_t u = 0; u < plan.units.size(); ++u)
    for (size_t block : plan.units[u].blocks) unit_of[block] = u;
  return unit_of;
}

std::vector<size_t> units_ahead(const Job& job, const ShardPlan& plan, size_t block, bool backward) {
  auto parameters = job.model->parameters();
  size_t count = job.model->blocks.size();
  auto unit_of = units_of_blocks(plan, count);
  std::vector<size_t> order;  // blocks that come after `block`
  for (size_t i = backward ? 0 : block + 1; i < (backward ? block : count); ++i) order.push_back(i);
  if (backward) std::reverse(order.begin(), order.end());
  std::vector<size_t> ahead;
  int64_t elements = 0;
  for (size_t next : order) {
    size_t u = unit_of[next];
    if (u == plan.units.size() || u == unit_of[block] || std::find(ahead.begin(), ahead.end(), u) != ahead.end())
      continue;
    if (backward && plan.units[u].first_needed_in_backward > next) continue;
    for (size_t slot : plan.units[u].slots) elements += parameters[slot]->numel();
    if (!ahead.empty() && elements > plan.prefetch_elements) break;
    ahead.push_back(u);
  }
  return ahead;
}

}  // namespace runner
