#include "strategies/program/unit.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>

#include "runner/base/error.hpp"
#include "runner/base/glob.hpp"
#include "strategies/contract/flat_layout.hpp"

namespace runner {

namespace {

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

/// resident_units() of parameters that are all frozen, or all trained.
std::vector<Unit> make_resident_units(const ModelSpec& model, const std::vector<size_t>& slots, bool frozen,
                                      const std::function<bool(const UnitFill&)>& is_full) {
  std::vector<Unit> units;
  const auto parameters = model.parameters();
  int64_t held = 0;
  size_t end = parameters.size();
  for (const auto& block : model.blocks | std::views::reverse) {
    const size_t first = end - block.parameters.size();
    const std::vector<size_t> own(std::ranges::lower_bound(slots, first), std::ranges::lower_bound(slots, end));
    end = first;
    if (own.empty()) continue;
    const int64_t elements = elements_of(parameters, own);
    if (units.empty() || is_full({.unit = units.size() - 1, .held = held, .next = elements})) {
      units.push_back({.slots = {}, .resident = true, .frozen = frozen});
      held = 0;
    }
    auto& bucket = units.back().slots;
    bucket.insert(bucket.begin(), own.begin(), own.end());
    held += elements;
  }
  return units;
}

}  // namespace

std::vector<Unit> units_of_keys(const ModelSpec& model, const std::vector<size_t>& keys) {
  std::vector<Unit> units;
  std::map<std::pair<size_t, bool>, size_t> index;  // by key and whether the unit is trained
  std::map<std::string, size_t> unit_of;            // of each parameter that another block shares
  for (const auto& block : model.blocks)
    for (const auto& shared : block.shared) unit_of.emplace(shared, 0);
  size_t slot = 0, unit = 0;
  std::optional<std::pair<size_t, bool>> last_key;  // of `unit`
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const auto& block = model.blocks[i];
    const auto used_by_block = [&](Unit& unit) {
      if (unit.blocks.empty() || unit.blocks.back() != i) unit.blocks.push_back(i);
      if (block.kind != BlockKind::embedding)
        unit.first_needed_in_backward = std::min(unit.first_needed_in_backward, i);
    };
    for (const auto& parameter : block.parameters) {
      const std::pair key(keys[slot], parameter.trainable);
      if (key != last_key) {
        const auto [where, fresh] = index.try_emplace(key, units.size());
        if (fresh) {
          auto& added = units.emplace_back();
          added.first_needed_in_backward = model.blocks.size();
          added.frozen = !parameter.trainable;
        }
        last_key = key;
        unit = where->second;
      }
      if (!unit_of.empty())
        if (const auto shared = unit_of.find(parameter.name); shared != unit_of.end()) shared->second = unit;
      units[unit].slots.push_back(slot++);
      used_by_block(units[unit]);
    }
    for (const auto& shared : block.shared) used_by_block(units[unit_of.at(shared)]);
  }
  return units;
}

std::vector<Unit> make_units(const ModelSpec& model, const std::string& policy, int64_t min_num_params,
                             const std::vector<std::string>& names) {
  auto keys = unit_keys(model, policy, min_num_params, names);
  join_tied(model, keys);
  std::vector<size_t> of_slots;
  for (size_t i = 0; i < model.blocks.size(); ++i)
    of_slots.insert(of_slots.end(), model.blocks[i].parameters.size(), keys[i]);
  return units_of_keys(model, of_slots);
}

std::vector<Unit> resident_units(const ModelSpec& model, const std::vector<size_t>& slots,
                                 const std::function<bool(const UnitFill&)>& is_full) {
  const auto parameters = model.parameters();
  std::vector<size_t> trained, frozen;
  for (size_t slot : slots) (parameters[slot]->trainable ? trained : frozen).push_back(slot);
  auto units = make_resident_units(model, trained, /*frozen=*/false, is_full);
  for (auto& unit : make_resident_units(model, frozen, /*frozen=*/true, is_full)) units.push_back(std::move(unit));
  sort_by_slot(units);
  return units;
}

std::vector<Unit> resident_units_of_keys(const ModelSpec& model, const std::vector<size_t>& slots,
                                         const std::vector<size_t>& keys) {
  const auto parameters = model.parameters();
  std::map<std::pair<size_t, bool>, Unit> by_key;  // and by whether it is frozen
  for (const size_t slot : slots) {
    const bool frozen = !parameters[slot]->trainable;
    auto& unit = by_key[{keys[slot], frozen}];
    unit.resident = true;
    unit.frozen = frozen;
    unit.slots.push_back(slot);
  }
  std::vector<Unit> units;
  for (auto& [key, unit] : by_key) units.push_back(std::move(unit));
  sort_by_slot(units);
  return units;
}

void sort_by_slot(std::vector<Unit>& units) {
  std::ranges::sort(units, {}, [](const Unit& unit) { return unit.slots.front(); });
}

}  // namespace runner
