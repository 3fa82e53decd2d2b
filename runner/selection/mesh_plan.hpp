// The mesh of a run: the sizes that its recipe gives, on the devices that it uses.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "runner/selection/topology.hpp"
#include "strategies/catalog.hpp"

namespace runner {

/// [devices] of the recipe. If it sets no number of devices, the mesh does: on CPU the ranks that it needs, on accelerators the same if
/// its sizes are complete and there are so many. Otherwise the data axis takes all devices. `accelerators`: of the machine; nullopt: as
/// many as needed.
Recipe::Devices devices_of(const Recipe& recipe, std::optional<size_t> accelerators = {});

/// Sets the mesh of `topology` to that of the recipe, and devices.mesh to its sizes, without "auto". Reports sizes that do not multiply
/// to the number of ranks, with sizes that do; the topology then has no mesh that can be used, and the result is false.
bool resolve_mesh(Recipe& recipe, Topology& topology, std::vector<Diagnostic>& diagnostics);

/// The part of a model that a rank of the mesh has, and its part of the tokens of each row.
TensorDivision division_of(const Recipe& resolved, const Mesh& mesh, int rank);
ContextDivision context_of(const Recipe& resolved, const Mesh& mesh, int rank);

/// Reports a tensor axis whose ranks cannot share the matrices of the recipe's model, a pipeline of a model that has no stages, and a
/// context axis whose ranks cannot share the rows.
void check_division(const Recipe& recipe, const MeshSizes& sizes, std::vector<Diagnostic>& diagnostics);

/// The part of the matrices and of the rows that a rank has, of all blocks. No rank has more than the first one, whose part jobs are
/// planned with. `model`: all of it, as make_spec() makes it.
std::shared_ptr<const ModelSpec> part_of_rank(const Recipe& resolved, std::shared_ptr<const ModelSpec> model,
                                              const Mesh& mesh, int rank = 0);

/// Notes about a tensor axis that spans nodes, and about keys of axes that the mesh does not have. `recipe`: as given.
std::vector<std::string> mesh_notes(const Recipe& recipe, const Mesh& mesh, int devices_per_node);

/// {"data": 2, "tensor": 2}: the axes with several ranks.
nlohmann::json mesh_json(const Mesh& mesh);

/// The options of the strategy that the sizes replicate and shard of the mesh ask for.
nlohmann::json options_of_groups(const Recipe& recipe, const Entry& entry);
/// Why the strategy does not divide the data axis as the sizes replicate and shard say; nullopt if it does.
std::optional<std::string> refuse_data_axis(const MeshSizes& sizes, const Entry& entry, const Job& job);

}  // namespace runner
