#include "strategies/executor/bound_mesh.hpp"

#include <ranges>

#include "runner/base/error.hpp"

namespace runner {

namespace {

void bind_ends(BoundMesh& bound, World& world) {
  if (bound.mesh.size(Axis::pipeline) == 2) {
    bound.tied = bound.groups.at(Axis::pipeline);
    return;
  }
  int index = 0;
  for (const auto& pipeline : bound.mesh.groups(Axis::pipeline)) {
    const auto ranks = pipeline.ranks();
    auto group = world.make_subgroup({ranks.front(), ranks.back()}, fmt::format("ends_{}", index++));
    if (group) bound.tied = std::move(group);
  }
}

}  // namespace

BoundMesh bind(const Mesh& mesh, World& world) {
  RUNNER_CHECK(mesh.ranks() == world.size, "the mesh {} on {} ranks", to_text(mesh), world.size);
  BoundMesh bound{.mesh = mesh, .rank = world.rank, .groups = {}, .tied = {}};
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
  if (mesh.size(Axis::pipeline) > 1) bind_ends(bound, world);
  return bound;
}

BoundContext bind_context(const Mesh& mesh, ContextForm form, World& world) {
  BoundContext bound;
  int index = 0;
  for (const auto& along : mesh.groups(Axis::context)) {
    const auto ranks = along.ranks();
    auto group = world.make_subgroup(ranks, fmt::format("context_{}", index++));
    if (group) bound.group = std::move(group);
    if (form != ContextForm::ring) continue;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int from = ranks[i], to = ranks[(i + 1) % ranks.size()];
      auto channel = make_channel(world, "keys and values", from, to);
      if (world.rank == from) bound.ring.to_next = channel;
      if (world.rank == to) bound.ring.from_previous = std::move(channel);
    }
  }
  return bound;
}

}  // namespace runner
