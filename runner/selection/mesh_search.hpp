// The search for meshes of "auto": tensor axes within a node, pipelines, and the data axis for the ranks that are left. A context axis
// would be one more size of MeshTrial.
#pragma once
#include <string>
#include <vector>

#include "runner/selection/choice.hpp"

namespace runner {

/// Whether the model could be divided otherwise than along the data axis: there are several ranks, the recipe says nothing about a mesh,
/// and the model has matrices and stages that can be divided.
bool mesh_is_open(const Recipe& recipe, const Topology& topology);

/// The best meshes that fit, the fastest first, at most `most`. Each has its best division into stages, batch and recomputation. `forms`:
/// of the strategy on the data axis, the preferred one first; for each mesh the first that can run. Meshes are sorted by an estimate, and
/// the first ones are planned exactly.
std::vector<Candidate> search_meshes(const SelectionRequest& request, const StepClock& clock,
                                     const std::vector<Form>& forms, size_t most);

/// What a mesh costs: "; ranks of the pipeline wait for each other in 9 % of a step; exposed traffic takes 11.0 % (tensor 8.0 %, data
/// 3.0 %)".
std::string costs_of_mesh(const Candidate& candidate);

}  // namespace runner
