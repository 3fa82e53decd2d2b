// A small recipe and CPU devices, for tests of plans.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/selection/plan.hpp"

namespace runner {

inline Recipe small_recipe() {
  Recipe r;
  r.model.name = "gpt";
  r.model.n_layers = 2;
  r.model.dim = 64;
  r.model.n_heads = 4;
  r.model.max_seq_len = 32;
  r.data.format = "text";
  r.train.max_steps = 10;
  return r;
}

inline Topology cpus(int ranks, int nodes = 1) {
  Topology topology;
  topology.devices_per_node = ranks;
  topology.num_nodes = nodes;
  topology.cores = 8;
  topology.device_reason = "asked for";
  return topology;
}

/// The mistakes of a recipe that make_plan() finds.
inline std::vector<Diagnostic> mistakes(const Recipe& r, const Topology& topology, std::optional<int64_t> vocab = 256) {
  try {
    make_plan(r, topology, vocab);
  } catch (const RecipeError& error) {
    return error.diagnostics();
  }
  return {};
}

/// The first of them; "" if there are none.
inline std::string refusal(const Recipe& r, const Topology& topology, std::optional<int64_t> vocab = 256) {
  auto list = mistakes(r, topology, vocab);
  return list.empty() ? "" : list[0].message;
}

}  // namespace runner
