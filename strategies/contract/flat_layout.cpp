#include "strategies/contract/flat_layout.hpp"

#include <algorithm>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/glob.hpp"
#include "runner/base/round_up.hpp"

namespace runner {

namespace {

constexpr int64_t slot_alignment = 32;

/// A key for each block; equal keys share a unit. Blocks of a layer are separated only if a name selects one of them.
std::vector<size_t> unit_keys(const ModelSpec& model, const std::string& policy, int64_t min_num_params,
                              const std::vector<std::string>& names) {
  size_t count = model.blocks.size();
  std::vector<size_t> keys(count, 0);
  if (policy == "block") {
    for (size_t i = 1; i < count; ++i) keys[i] = model.continues_layer(i) ? keys[i - 1] : i;
  } else if (policy == "size") {
    int64_t held = 0;
    size_t key = 0;
    for (size_t i = 0; i < count; ++i) {
      keys[i] = key;
      held += model.blocks[i].parameter_count();
      if (held < min_num_params || (i + 1 < count && model.continues_layer(i + 1))) continue;
      held = 0;
      ++key;
    }
  } else if (policy == "names") {
    const auto is_named = [&](const std::string& name) {
      return std::ranges::any_of(names, [&](const auto& pattern) { return glob_matches(pattern, name); });
    };
    for (size_t i = 0; i < count; ++i) {
      if (is_named(model.blocks[i].layer_name()))
        keys[i] = model.continues_layer(i) ? keys[i - 1] : i + 1;
      else if (is_named(model.blocks[i].name))
        keys[i] = i + 1;
    }
  } else {
    RUNNER_CHECK(policy == "none", "unknown wrap policy `{}`", policy);
  }
  return keys;
}

/// Blocks that use each other's parameters must be gathered together.
void join_tied(const ModelSpec& model, std::vector<size_t>& keys) {
  if (std::all_of(model.blocks.begin(), model.blocks.end(), [](const auto& block) { return block.shared.empty(); }))
    return;
  std::map<std::string, size_t> owner;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    for (const auto& parameter : model.blocks[i].parameters) owner[parameter.name] = i;
    for (const auto& shared : model.blocks[i].shared) {
      size_t from = keys[i], to = keys[owner.at(shared)];
      std::replace(keys.begin(), keys.end(), from, to);
    }
  }
}

/// Calls `with` with the number of elements of each parameter in `slots`. Ascending slots need only one pass over the
/// blocks.
template <typename With>
void for_each_numel(const ModelSpec& model, const std::vector<size_t>& slots, With&& with) {
  size_t block = 0, first = 0;  // the current block, and the slot of its first parameter
  for (size_t slot : slots) {
    if (slot < first) block = first = 0;
    while (slot - first >= model.blocks.at(block).parameters.size()) first += model.blocks[block++].parameters.size();
    with(model.blocks[block].parameters[slot - first].numel());
  }
}

}  // namespace

int64_t elements_of(const ModelSpec& model, const std::vector<size_t>& slots) {
  int64_t sum = 0;
  for_each_numel(model, slots, [&](int64_t numel) { sum += numel; });
  return sum;
}

FlatLayout make_flat_layout(const ModelSpec& model, const std::vector<size_t>& slots, int shards) {
  FlatLayout layout;
  layout.items.reserve(slots.size());
  for_each_numel(model, slots, [&](int64_t numel) {
    layout.items.push_back({slots[layout.items.size()], layout.total, numel});
    layout.total += round_up(numel, slot_alignment);
  });
  layout.total = round_up(layout.total, shards * slot_alignment);
  layout.shard = layout.total / shards;
  return layout;
}

std::vector<Unit> make_units(const ModelSpec& model, const std::string& policy, int64_t min_num_params,
                             const std::vector<std::string>& names) {
  auto keys = unit_keys(model, policy, min_num_params, names);
  join_tied(model, keys);
  std::vector<Unit> units;
  std::map<std::pair<size_t, bool>, size_t> index;  // by key and whether the unit is trained
  std::map<std::string, size_t> unit_of;            // of each parameter
  size_t slot = 0;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const auto& block = model.blocks[i];
    const auto used_by_block = [&](Unit& unit) {
      if (unit.blocks.empty() || unit.blocks.back() != i) unit.blocks.push_back(i);
      if (block.kind != BlockKind::embedding)
        unit.first_needed_in_backward = std::min(unit.first_needed_in_backward, i);
    };
    for (const auto& parameter : block.parameters) {
      auto [where, fresh] = index.try_emplace({keys[i], parameter.trainable}, units.size());
      if (fresh) {
        auto& unit = units.emplace_back();
        unit.first_needed_in_backward = model.blocks.size();
        unit.frozen = !parameter.trainable;
      }
      unit_of[parameter.name] = where->second;
      units[where->second].slots.push_back(slot++);
      used_by_block(units[where->second]);
    }
    for (const auto& shared : block.shared) used_by_block(units[unit_of.at(shared)]);
  }
  return units;
}

}  // namespace runner
