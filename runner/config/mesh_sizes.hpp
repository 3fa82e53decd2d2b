// The mesh that a recipe gives: [devices] mesh, and the keys of [strategy] that set its sizes one by one.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/base/option_table.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "strategies/mesh/mesh.hpp"
#include "strategies/pipeline/schedule.hpp"

namespace runner {

/// The fields of devices.mesh, outermost first.
const OptionTable<MeshSizes>& mesh_table();

/// The axis that has this name in another tool: "tp" is tensor.
std::optional<std::string> axis_called(const std::string& name);

/// The sizes that both give together. `tensor` may be Recipe::automatic: the devices of a node.
MeshSizes given_mesh(const Recipe& recipe);

/// The schedule of the recipe's pipeline: pipeline_schedule, or interleaved_1f1b with several virtual stages, or 1f1b.
PipelineSchedule schedule_of(const Recipe& recipe);

/// How the ranks of its context axis compute attention.
ContextForm form_of_context(const Recipe& recipe);

/// The size of the tensor, pipeline or context axis. Throws std::logic_error for other axes.
std::optional<int64_t>& size_along(MeshSizes& sizes, Axis axis);

/// For messages: the key that sets the size of the tensor, pipeline or context axis; if none does, key_of_mesh().
std::string key_of_size(const Recipe& recipe, Axis axis);
/// For messages: a key that sets a size, or else "strategy.name", if the strategy takes an axis by itself.
std::string key_of_mesh(const Recipe& recipe);
/// Removes the sizes that [strategy] gives, after devices.mesh has all of them.
void forget_size_keys(Recipe& recipe);
/// The sizes that the recipe sets: "mesh = { shard = 2, tensor = 2 }", "tensor_parallel_size = 2".
std::string text_of_mesh(const Recipe& recipe);

/// Reports sizes that contradict each other.
void find_mesh_mistakes(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
