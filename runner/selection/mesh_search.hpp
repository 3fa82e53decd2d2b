// The search for meshes of "auto": tensor axes within a node, context axes for long rows, pipelines, and the data axis for the ranks that
// are left.
#pragma once
#include <string>
#include <vector>

#include "runner/selection/choice.hpp"

namespace runner {

/// Whether the model could be divided otherwise than along the data axis: there are several ranks, the recipe says nothing about a mesh,
/// and the model has matrices and stages that can be divided.
bool mesh_is_open(const Recipe& recipe, const Topology& topology);

/// Whether the rows are so long that a context axis is considered. Its ranks keep at least 8,192 tokens of a row each. Source: Grattafiori
/// et al. 2024 (Llama 3, arXiv 2407.21783), table 4: 16 ranks for rows of 131,072 tokens.
bool has_long_rows(const Recipe& recipe, const ModelSpec& model);

/// The best meshes that fit, the fastest first, at most `most`. Each has its best division into stages, batch and recomputation. `forms`:
/// of the strategy on the data axis, the preferred one first; for each mesh the first that can run. Meshes are sorted by an estimate, and
/// the first ones are planned exactly.
std::vector<Candidate> search_meshes(const SelectionRequest& request, const StepClock& clock,
                                     const std::vector<Form>& forms, size_t most);

/// The costs of a mesh: "; ranks of the pipeline wait for each other in 9 % of a step; exposed traffic takes 11.0 % (tensor 8.0 %, data
/// 3.0 %)".
std::string costs_of_mesh(const Candidate& candidate);

}  // namespace runner
