#include "strategies/executor/bound_mesh.hpp"

#include <ranges>

#include "runner/base/error.hpp"

namespace runner {

BoundMesh bind(const Mesh& mesh, World& world) {
  RUNNER_CHECK(mesh.ranks() == world.size, "the mesh {} on {} ranks", to_text(mesh), world.size);
  BoundMesh bound{.mesh = mesh, .rank = world.rank, .groups = {}};
  for (const auto& [axis, size] : mesh.axes() | std::views::reverse) {
    if (size == world.size) {
      bound.groups[axis] = world.group;
      continue;
    }
    // Messages about diverged ranks contain these names.
    const char* kind = axis == Axis::replicate ? "replica" : name_of(axis);
    int index = 0;
    for (const auto& ranks : mesh.groups(axis)) {
      auto group = world.make_subgroup(ranks.ranks(), fmt::format("{}_{}", kind, index++));
      if (group) bound.groups[axis] = std::move(group);
    }
  }
  return bound;
}

}  // namespace runner
