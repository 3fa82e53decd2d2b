#include "strategies/program/parallel_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/other_devices.hpp"
#include "strategies/contract/gradient_buckets.hpp"

namespace runner {

ParallelPlan replicated_plan(const Job& job, int64_t first_bytes, int64_t unit_bytes,
                             const std::function<bool(const ParameterSpec&)>& shard) {
  ParallelPlan plan;
  plan.master = plan.parameter = plan.accumulate = plan.reduce = plan.gradient = job.precision.parameter;
  plan.separate_host = job.accelerator.own_memory;
  plan.alignment = alignment_of(job);
  const auto parameters = job.model->parameters();
  std::vector<size_t> replicated, sharded;
  for (size_t slot = 0; slot < parameters.size(); ++slot)
    (shard && shard(*parameters[slot]) ? sharded : replicated).push_back(slot);
  const auto is_full = [&](const UnitFill& fill) {
    return fill.held * bytes_of(plan.parameter) >= (fill.unit == 0 ? first_bytes : unit_bytes);
  };
  const auto units_of = [&](const std::vector<size_t>& slots) {
    return job.unit_of_parameter.empty() ? resident_units(*job.model, slots, is_full)
                                         : resident_units_of_keys(*job.model, slots, job.unit_of_parameter);
  };
  plan.units = units_of(sharded);
  for (auto& unit : units_of(replicated)) {
    unit.replicated = !sharded.empty() && job.sharing_ranks() > 1;  // otherwise there is nothing to distinguish
    plan.units.push_back(std::move(unit));
  }
  sort_by_slot(plan.units);
  plan.mesh = mesh_with_shards(job, sharded.empty() ? 1 : job.sharing_ranks());
  return plan;
}

ParallelPlan bucketed_plan(const Job& job) {
  const auto [first, others] = bucket_bytes(job);
  ParallelPlan plan = replicated_plan(job, first, others);
  plan.overlap = true;
  plan.reductions_in_flight = std::ssize(plan.units);
  return plan;
}

Entry simulated_entry(std::string name, std::string summary, const std::string& needs, const std::string& instead) {
  Entry entry;
  entry.name = std::move(name);
  entry.summary = std::move(summary);
  entry.unavailable = fmt::format("{}, which LibTorch does not contain; {} on CPUs and CUDA devices, and {}", needs,
                                  instead, under_simulation);
  entry.label = [label = entry.name + " (simulated)"](const Job&) { return label; };
  entry.plan = bucketed_plan;
  return entry;
}

int64_t alignment_of(const Job& job) {
  const auto in_blocks = [](const OptimizerSpec& spec) { return spec.reach == OptimizerSpec::Reach::block; };
  return job.optimizer_that(in_blocks) ? state_block : slot_alignment;
}

Mesh mesh_with_shards(const Job& job, int shards) {
  return job.mesh.joined(Axis::data, Axis::context)
      .split(Axis::data,
             {{.axis = Axis::replicate, .size = job.sharing_ranks() / shards}, {.axis = Axis::shard, .size = shards}});
}

std::optional<std::string> refuse_groups(const Job& job, const std::string& form, const std::string& option,
                                         int64_t group) {
  const int ranks = job.sharing_ranks();
  if (group >= 1 && ranks % group == 0) return std::nullopt;
  std::string works;
  for (int size = 1; size <= ranks; ++size)
    if (ranks % size == 0) works += fmt::format("{}{}", works.empty() ? "" : ", ", size);
  return fmt::format("{} cannot cut {} ranks into groups of {}; {} may be {}", form, ranks, group, option, works);
}

bool ParallelPlan::takes_gradients() const {
  return shards() == 1 && copies() == 1 && !own_reducer && parameter == accumulate && parameter == reduce &&
         parameter == gradient && predivide == 1.0 && optimizer == Tier::device;
}

namespace {

/// Blocks can use the masters themselves: every rank has all of them on its device, in the dtype of gathered parameters.
bool shares_masters(const ParallelPlan& plan) {
  return plan.shards() == 1 && plan.parameter == plan.master && plan.optimizer == Tier::device &&
         std::ranges::all_of(plan.units, [](const Unit& unit) { return unit.tier == Tier::device; });
}

}  // namespace

ShardPlaces ParallelPlan::places(const Unit& unit) const {
  using Master = ShardPlaces::Master;
  using Sent = ShardPlaces::Sent;
  if (unit.quantized) return {Master::none, Sent::packed};
  if (shares_masters(*this)) return {Master::memory, Sent::shared};
  // Without separate device memory and with equal dtypes, the update works directly on the copy that gathers send. Then only the
  // optimizer state is in the file.
  bool in_place = parameter == master && !separate_host && optimizer != Tier::host;
  Master apart = optimizer == Tier::nvme ? Master::file : Master::memory;
  if (unit.resident) {
    bool shares = parameter == master && (optimizer == Tier::device || in_place);
    return {shares ? Master::whole : apart, Sent::whole};
  }
  if (unit.tier == Tier::nvme) return {apart, Sent::file};
  bool one = optimizer == Tier::nvme ? in_place && unit.tier == Tier::device : unit.tier == optimizer;
  return one ? ShardPlaces{Master::memory, Sent::master} : ShardPlaces{apart, Sent::memory};
}

bool ParallelPlan::updates_beside() const {
  return separate_host && optimizer == Tier::host &&
         std::none_of(units.begin(), units.end(), [](const Unit& unit) { return unit.tier == Tier::nvme; });
}

bool ParallelPlan::written_apart(const Unit& unit) const {
  if (unit.frozen) return false;
  auto where = places(unit);
  bool to_device =
      where.sent == ShardPlaces::Sent::whole || (where.sent == ShardPlaces::Sent::memory && unit.tier == Tier::device);
  if (!separate_host || optimizer == Tier::device || !to_device) return false;
  return where.master == ShardPlaces::Master::file || (updates_beside() && parameter != master);
}

ParallelPlan::SwapUse ParallelPlan::swap_use() const {
  SwapUse use;
  use.state = optimizer == Tier::nvme;
  for (const auto& unit : units) {
    auto where = places(unit);
    use.master = use.master || where.master == ShardPlaces::Master::file;
    // Masters in the file are sent directly if their dtype is the gathered dtype.
    bool one = where.master == ShardPlaces::Master::file && parameter == master;
    use.sent = use.sent || (where.sent == ShardPlaces::Sent::file && !one);
  }
  return use;
}

FlatLayout layout_of(const ModelSpec& model, const ParallelPlan& plan, const Unit& unit) {
  return layout_of(model.parameters(), plan, unit);
}

FlatLayout layout_of(const Parameters& parameters, const ParallelPlan& plan, const Unit& unit) {
  return make_flat_layout(parameters, unit.slots, unit.replicated ? 1 : plan.shards(), plan.alignment);
}

std::vector<size_t> trained_units(const ParallelPlan& plan) {
  std::vector<size_t> trained;
  for (size_t u = 0; u < plan.units.size(); ++u)
    if (!plan.units[u].frozen) trained.push_back(u);
  return trained;
}

std::vector<std::vector<size_t>> units_of_blocks(const ParallelPlan& plan, size_t blocks) {
  std::vector<std::vector<size_t>> units(blocks);
  for (size_t u = 0; u < plan.units.size(); ++u)
    for (size_t block : plan.units[u].blocks) units[block].push_back(u);
  return units;
}

namespace {

/// For each block, the units whose parameters it uses, also shared ones, ascending: all of them, or only the resident ones.
std::vector<std::vector<size_t>> units_used_by_blocks(const ModelSpec& model, const ParallelPlan& plan,
                                                      bool only_resident) {
  std::vector<std::pair<size_t, size_t>> uses;  // a slot, and a unit that has it
  for (size_t u = 0; u < plan.units.size(); ++u)
    if (plan.units[u].resident || !only_resident)
      for (const size_t slot : plan.units[u].slots) uses.emplace_back(slot, u);
  std::vector<std::vector<size_t>> units_of_block(model.blocks.size());
  if (uses.empty()) return units_of_block;
  std::ranges::sort(uses);
  size_t next = 0;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    auto& units = units_of_block[b];
    const auto use = [&](size_t slot) {
      auto found = std::ranges::lower_bound(uses, slot, {}, &std::pair<size_t, size_t>::first);
      for (; found != uses.end() && found->first == slot; ++found)
        if (units.empty() || units.back() != found->second) units.push_back(found->second);
    };
    for (size_t i = 0; i < model.blocks[b].parameters.size(); ++i) use(next++);
    for (const auto& name : model.blocks[b].shared) use(model.slot(name));
    std::ranges::sort(units);
    units.erase(std::unique(units.begin(), units.end()), units.end());
  }
  return units_of_block;
}

}  // namespace

std::vector<std::vector<size_t>> resident_units_of_blocks(const ModelSpec& model, const ParallelPlan& plan) {
  return units_used_by_blocks(model, plan, /*only_resident=*/true);
}

std::vector<size_t> units_in_forward(const ModelSpec& model, const ParallelPlan& plan) {
  std::vector<size_t> order;
  std::vector<bool> listed(plan.units.size(), false);
  auto list = [&](size_t u) {
    if (!listed[u]) order.push_back(u);
    listed[u] = true;
  };
  for (const auto& units : units_used_by_blocks(model, plan, /*only_resident=*/false))
    for (size_t u : units) list(u);
  for (size_t u = 0; u < plan.units.size(); ++u) list(u);
  return order;
}

std::vector<std::vector<size_t>> units_ahead(const ModelSpec& model, const ParallelPlan& plan, bool backward) {
  const size_t count = model.blocks.size();
  const auto units_of = units_of_blocks(plan, count);
  std::vector<size_t> order;  // blocks that gather units, in the order of the computation
  for (size_t b = 0; b < count; ++b)
    if (!units_of[b].empty()) order.push_back(b);
  if (backward) std::ranges::reverse(order);
  const auto parameters = model.parameters();
  std::vector<int64_t> elements_of_unit;
  for (const auto& unit : plan.units)
    elements_of_unit.push_back(unit.blocks.empty() ? 0 : elements_of(parameters, unit.slots));
  std::vector<std::vector<size_t>> of_blocks(count);
  for (size_t block = 0; block < count; ++block) {
    auto& ahead = of_blocks[block];
    const auto listed = [&](size_t u, size_t most) {
      const auto end = ahead.begin() + static_cast<ptrdiff_t>(most);
      return std::ranges::find(units_of[block], u) != units_of[block].end() || std::find(ahead.begin(), end, u) != end;
    };
    int64_t elements = 0;
    const auto later =
        std::ranges::partition_point(order, [&](size_t next) { return backward ? next >= block : next <= block; });
    for (auto next = later; next != order.end(); ++next) {
      const size_t before = ahead.size();
      for (const size_t u : units_of[*next]) {
        if (listed(u, before) || (backward && plan.units[u].first_needed_in_backward > *next)) continue;
        elements += elements_of_unit[u];
        ahead.push_back(u);
      }
      if (before > 0 && elements > plan.prefetch_elements) {
        ahead.resize(before);
        break;
      }
    }
  }
  return of_blocks;
}

}  // namespace runner
