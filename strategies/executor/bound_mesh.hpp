// A mesh as one rank sees it: its coordinates, and a process group for each axis.
#pragma once
#include <map>

#include "strategies/collective/world.hpp"
#include "strategies/contract/context_axis.hpp"
#include "strategies/mesh/mesh.hpp"

namespace runner {

struct BoundMesh {
  Mesh mesh;
  int rank = 0;
  std::map<Axis, ProcessGroup> groups;  ///< of this rank, along each axis of the mesh
  ProcessGroup tied = {};               ///< the first and the last rank of this rank's pipeline; null on other ranks

  int coordinate(Axis axis) const { return mesh.coordinate(rank, axis); }
  /// The axis must have several ranks.
  c10d::ProcessGroup& group(Axis axis) const { return *groups.at(axis); }
};

/// Makes the process groups along all axes. Collective: every rank makes the groups of all ranks, in the same order. The mesh
/// must have as many ranks as the world.
BoundMesh bind(const Mesh& mesh, World& world);

/// The context axis as one rank sees it. `ring` is for ContextForm::ring.
struct BoundContext {
  ProcessGroup group;
  ContextRing ring = {};
};
/// Makes groups of their own along the context axis, because a plan's mesh has that axis as a part of the data axis, and channels around
/// it if the form needs them. Collective, as bind().
BoundContext bind_context(const Mesh& mesh, ContextForm form, World& world);

}  // namespace runner
