#include "strategies/program/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <ranges>

namespace runner {

namespace {

/// Makes units of whole blocks, from the last block to the first.
class UnitsOfBlocks {
 public:
  UnitsOfBlocks(int64_t first_bytes, int64_t unit_bytes) : first_bytes_(first_bytes), unit_bytes_(unit_bytes) {}

  /// Adds slots of the next block: `slots` ascending, with `bytes` together. Sharded and other slots go to different units.
  void add(const std::vector<size_t>& slots, int64_t bytes, bool replicated) {
    if (slots.empty()) return;
    Open& open = open_[replicated];
    if (open.bytes >= open.limit) {
      open = {.unit = units_.size(), .limit = units_.empty() ? first_bytes_ : unit_bytes_};
      units_.push_back({.slots = {}, .resident = true, .replicated = replicated});
    }
    auto& own = units_[open.unit].slots;
    own.insert(own.begin(), slots.begin(), slots.end());
    open.bytes += bytes;
  }

  /// In the order of parameters, so that a norm sums their squares in this order.
  std::vector<ShardUnit> take() {
    std::ranges::sort(units_, {}, [](const ShardUnit& unit) { return unit.slots.front(); });
    return std::move(units_);
  }

 private:
  struct Open {
    size_t unit = 0;
    int64_t bytes = 0, limit = 0;
  };
  int64_t first_bytes_, unit_bytes_;
  Open open_[2];
  std::vector<ShardUnit> units_;
};

}  // namespace

ShardPlan replicated_plan(const Job& job, int64_t first_bytes, int64_t unit_bytes,
                          const std::function<bool(const ParameterSpec&)>& shard) {
  ShardPlan plan;
  plan.parameter = plan.accumulate = plan.reduce = plan.gradient = job.precision.parameter;
  plan.separate_host = job.accelerator.own_memory;
  UnitsOfBlocks units(first_bytes, unit_bytes);
  size_t slot = job.model->parameters().size();
  bool any_sharded = false;
  for (const auto& block : job.model->blocks | std::views::reverse) {
    slot -= block.parameters.size();
    std::vector<size_t> of[2];  // sharded, replicated
    int64_t bytes[2] = {0, 0};
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      const bool replicated = !shard || !shard(block.parameters[i]);
      of[replicated].push_back(slot + i);
      bytes[replicated] += block.parameters[i].numel() * bytes_of(plan.parameter);
      any_sharded |= !replicated;
    }
    for (const bool replicated : {true, false}) units.add(of[replicated], bytes[replicated], replicated);
  }
  plan.units = units.take();
  (any_sharded ? plan.shards : plan.replicas) = job.world_size;
  if (!any_sharded || job.world_size == 1)
    for (auto& unit : plan.units) unit.replicated = false;  // there is nothing to distinguish
  return plan;
}

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

bool ShardPlan::takes_gradients() const {
  return shards == 1 && replicas == 1 && !own_reducer && parameter == accumulate && parameter == reduce &&
         parameter == gradient && predivide == 1.0 && optimizer == Tier::device;
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

FlatLayout layout_of(const ModelSpec& model, const ShardPlan& plan, const ShardUnit& unit) {
  return make_flat_layout(model, unit.slots, unit.replicated ? 1 : plan.shards);
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
