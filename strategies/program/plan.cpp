#include "strategies/program/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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

bool ShardPlan::own_copy(DType master) const {
  return shards > 1 || parameter != master || optimizer != Tier::device ||
         std::any_of(units.begin(), units.end(), [](const ShardUnit& unit) { return unit.shards != Tier::device; });
}

ShardPlaces ShardPlan::places(const ShardUnit& unit, DType master) const {
  using Master = ShardPlaces::Master;
  using Sent = ShardPlaces::Sent;
  // Without separate device memory and with equal dtypes, the update works directly on the copy that gathers send. Then only the
  // optimizer state is in the file.
  bool in_place = parameter == master && !separate_host && optimizer != Tier::host;
  Master apart = optimizer == Tier::nvme ? Master::file : Master::memory;
  if (unit.resident) {
    bool shares = parameter == master && (optimizer == Tier::device || in_place);
    return {shares ? Master::whole : apart, Sent::whole};
  }
  if (unit.shards == Tier::nvme) return {apart, Sent::file};
  bool one = optimizer == Tier::nvme ? in_place && unit.shards == Tier::device : unit.shards == optimizer;
  return one ? ShardPlaces{Master::memory, Sent::master} : ShardPlaces{apart, Sent::memory};
}

bool ShardPlan::updates_beside() const {
  return separate_host && optimizer == Tier::host &&
         std::none_of(units.begin(), units.end(), [](const ShardUnit& unit) { return unit.shards == Tier::nvme; });
}

bool ShardPlan::written_apart(const ShardUnit& unit, DType master) const {
  auto where = places(unit, master);
  bool to_device = where.sent == ShardPlaces::Sent::whole ||
                   (where.sent == ShardPlaces::Sent::memory && unit.shards == Tier::device);
  if (!separate_host || optimizer == Tier::device || !to_device) return false;
  return where.master == ShardPlaces::Master::file || (updates_beside() && parameter != master);
}

ShardPlan::SwapUse ShardPlan::swap_use(DType master) const {
  SwapUse use;
  use.state = optimizer == Tier::nvme;
  for (const auto& unit : units) {
    auto where = places(unit, master);
    use.master = use.master || where.master == ShardPlaces::Master::file;
    // Masters in the file are sent directly if their dtype is the gathered dtype.
    bool one = where.master == ShardPlaces::Master::file && parameter == master;
    use.sent = use.sent || (where.sent == ShardPlaces::Sent::file && !one);
  }
  return use;
}

std::vector<size_t> units_of_blocks(const ShardPlan& plan, size_t blocks) {
  std::vector<size_t> unit_of(blocks, plan.units.size());
  for (size_t u = 0; u < plan.units.size(); ++u)
    for (size_t block : plan.units[u].blocks) unit_of[block] = u;
  return unit_of;
}

namespace {

/// For each block, the slots that it uses, including shared ones.
std::vector<std::vector<size_t>> slots_of_blocks(const ModelSpec& model) {
  std::vector<std::vector<size_t>> slots;
  size_t next = 0;
  for (const auto& block : model.blocks) {
    auto& own = slots.emplace_back(block.parameters.size());
    std::iota(own.begin(), own.end(), next);
    next += own.size();
    for (const auto& name : block.shared) own.push_back(model.slot(name));
  }
  return slots;
}

bool uses(const std::vector<size_t>& slots, const ShardUnit& unit) {
  return std::any_of(slots.begin(), slots.end(), [&](size_t slot) {
    return std::find(unit.slots.begin(), unit.slots.end(), slot) != unit.slots.end();
  });
}

}  // namespace

std::vector<std::vector<size_t>> resident_units_of_blocks(const ModelSpec& model, const ShardPlan& plan) {
  std::vector<std::vector<size_t>> residents;
  for (const auto& slots : slots_of_blocks(model)) {
    auto& of_block = residents.emplace_back();
    for (size_t u = 0; u < plan.units.size(); ++u)
      if (plan.units[u].resident && uses(slots, plan.units[u])) of_block.push_back(u);
  }
  return residents;
}

std::vector<size_t> units_in_forward(const ModelSpec& model, const ShardPlan& plan) {
  std::vector<size_t> order;
  std::vector<bool> listed(plan.units.size(), false);
  auto list = [&](size_t u) {
    if (!listed[u]) order.push_back(u);
    listed[u] = true;
  };
  for (const auto& slots : slots_of_blocks(model))
    for (size_t u = 0; u < plan.units.size(); ++u)
      if (uses(slots, plan.units[u])) list(u);
  for (size_t u = 0; u < plan.units.size(); ++u) list(u);
  return order;
}

std::vector<std::vector<size_t>> units_ahead(const ModelSpec& model, const ShardPlan& plan, bool backward) {
  size_t count = model.blocks.size();
  auto unit_of = units_of_blocks(plan, count);
  std::vector<int64_t> elements_of_unit;
  for (const auto& unit : plan.units) elements_of_unit.push_back(elements_of(model, unit.slots));
  std::vector<std::vector<size_t>> of_blocks(count);
  for (size_t block = 0; block < count; ++block) {
    auto& ahead = of_blocks[block];
    int64_t elements = 0;
    for (size_t step = 1; step <= (backward ? block : count - 1 - block); ++step) {
      size_t next = backward ? block - step : block + step, u = unit_of[next];
      if (u == plan.units.size() || u == unit_of[block] || std::find(ahead.begin(), ahead.end(), u) != ahead.end())
        continue;
      if (backward && plan.units[u].first_needed_in_backward > next) continue;
      elements += elements_of_unit[u];
      if (!ahead.empty() && elements > plan.prefetch_elements) break;
      ahead.push_back(u);
    }
  }
  return of_blocks;
}

}  // namespace runner
