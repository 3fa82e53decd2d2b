#include "runner/config/mesh_sizes.hpp"

#include <algorithm>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"

namespace runner {

namespace {

/// A size that devices.mesh and a key of [strategy] can both give.
struct Size {
  Axis axis;
  std::optional<int64_t> MeshSizes::*in_mesh;
  std::optional<int64_t> Recipe::Strategy::*in_strategy;
  std::string key() const { return fmt::format("{}_parallel_size", name_of(axis)); }
};
using Keys = Recipe::Strategy;
/// The sizes of the axes whose ranks read the same data.
constexpr Size model_sizes[] = {
    {.axis = Axis::tensor, .in_mesh = &MeshSizes::tensor, .in_strategy = &Keys::tensor_parallel_size},
    {.axis = Axis::pipeline, .in_mesh = &MeshSizes::pipeline, .in_strategy = &Keys::pipeline_parallel_size},
    {.axis = Axis::context, .in_mesh = &MeshSizes::context, .in_strategy = &Keys::context_parallel_size},
};

const Size& size_named(Axis axis) {
  const auto found = std::ranges::find(model_sizes, axis, &Size::axis);
  RUNNER_CHECK(found != std::end(model_sizes), "no key sets the size of the axis {}", name_of(axis));
  return *found;
}

/// Whether the size is given, and not as "auto".
bool is_number(const std::optional<int64_t>& size) { return size && *size != Recipe::automatic; }

bool is_in_mesh(const Recipe& recipe, const Size& size) {
  return recipe.devices.mesh && (*recipe.devices.mesh).*size.in_mesh;
}

/// Whether the key of [strategy] sets the size, and devices.mesh does not.
bool only_in_strategy(const Recipe& recipe, const Size& size) {
  return recipe.strategy.*size.in_strategy && !is_in_mesh(recipe, size);
}

/// Reports that devices.mesh and a key of [strategy] differ.
void report_difference(const Recipe& recipe, const std::string& key, int64_t size, const std::string& in_mesh,
                       std::vector<Diagnostic>& diagnostics) {
  diagnostics.push_back({.place = recipe.origin("strategy." + key),
                         .code = "contradiction",
                         .message = fmt::format("{} = {}, but devices.mesh has {}", key, size, in_mesh),
                         .other = recipe.origin("devices.mesh"),
                         .other_message = "the mesh is set here",
                         .section = "strategy"});
}

void find_differences(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  const auto& mesh = recipe.devices.mesh;
  if (!mesh) return;
  for (const auto& size : model_sizes) {
    const auto &given = recipe.strategy.*size.in_strategy, &in_mesh = (*mesh).*size.in_mesh;
    if (is_number(given) && in_mesh && *given != *in_mesh)
      report_difference(recipe, size.key(), *given, fmt::format("{} = {}", name_of(size.axis), *in_mesh), diagnostics);
  }
  const auto& data = recipe.strategy.data_parallel_size;
  if (!is_number(data) || !mesh->complete() || *data == mesh->data_ranks()) return;
  report_difference(
      recipe, "data_parallel_size", *data,
      mesh->data ? fmt::format("data = {}", *mesh->data) : fmt::format("replicate x shard = {}", mesh->data_ranks()),
      diagnostics);
}

}  // namespace

const OptionTable<MeshSizes>& mesh_table() {
  static const auto table = [] {
    OptionTable<MeshSizes> fields;
    // The limits keep the product within 64 bits.
    const auto add = [&](const char* name, std::optional<int64_t> MeshSizes::*member, double most) {
      fields.add({.name = name, .type = Option::Type::integer, .minimum = 1, .maximum = most}, member);
    };
    constexpr double most_of_data = 65536, most_of_others = 512;
    add("pipeline", &MeshSizes::pipeline, most_of_others);
    add("data", &MeshSizes::data, most_of_data);
    add("replicate", &MeshSizes::replicate, most_of_data);
    add("shard", &MeshSizes::shard, most_of_data);
    add("context", &MeshSizes::context, most_of_others);
    add("tensor", &MeshSizes::tensor, most_of_others);
    return fields;
  }();
  return table;
}

std::optional<std::string> axis_called(const std::string& name) {
  // torchtitan, Lightning's device mesh, DeepSpeed's topology, and keys of [strategy].
  static const std::map<std::string, std::string> axes = {{"tp", "tensor"},
                                                          {"model", "tensor"},
                                                          {"tensor_parallel", "tensor"},
                                                          {"tensor_parallel_size", "tensor"},
                                                          {"pp", "pipeline"},
                                                          {"pipe", "pipeline"},
                                                          {"pipeline_parallel", "pipeline"},
                                                          {"pipeline_parallel_size", "pipeline"},
                                                          {"cp", "context"},
                                                          {"context_parallel", "context"},
                                                          {"context_parallel_size", "context"},
                                                          {"dp", "data"},
                                                          {"data_parallel", "data"},
                                                          {"data_parallel_size", "data"},
                                                          {"dp_replicate", "replicate"},
                                                          {"dp_shard", "shard"}};
  const auto found = axes.find(lower(name));
  return found == axes.end() ? std::nullopt : std::optional(found->second);
}

MeshSizes given_mesh(const Recipe& recipe) {
  MeshSizes sizes = recipe.devices.mesh.value_or(MeshSizes());
  for (const auto& size : model_sizes)
    if (!(sizes.*size.in_mesh)) sizes.*size.in_mesh = recipe.strategy.*size.in_strategy;
  if (!sizes.complete() && is_number(recipe.strategy.data_parallel_size))
    sizes.data = recipe.strategy.data_parallel_size;
  return sizes;
}

PipelineSchedule schedule_of(const Recipe& recipe) {
  if (recipe.strategy.pipeline_schedule) return pipeline_schedule(*recipe.strategy.pipeline_schedule);
  return recipe.strategy.virtual_stages.value_or(1) > 1 ? PipelineSchedule::interleaved_1f1b
                                                        : PipelineSchedule::one_f_one_b;
}

ContextForm form_of_context(const Recipe& recipe) {
  return recipe.strategy.context_parallel ? context_form(*recipe.strategy.context_parallel) : ContextForm::gather;
}

std::optional<int64_t>& size_along(MeshSizes& sizes, Axis axis) { return sizes.*size_named(axis).in_mesh; }

std::string key_of_size(const Recipe& recipe, Axis axis) {
  const auto& size = size_named(axis);
  if (only_in_strategy(recipe, size)) return "strategy." + size.key();
  return is_in_mesh(recipe, size) ? "devices.mesh" : key_of_mesh(recipe);
}

std::string key_of_mesh(const Recipe& recipe) {
  for (const auto& size : model_sizes)
    if (only_in_strategy(recipe, size)) return "strategy." + size.key();
  if (recipe.devices.mesh) return "devices.mesh";
  return recipe.strategy.data_parallel_size ? "strategy.data_parallel_size" : "strategy.name";
}

void forget_size_keys(Recipe& recipe) {
  for (const auto& size : model_sizes) {
    (recipe.strategy.*size.in_strategy).reset();
    recipe.origins.erase("strategy." + size.key());
  }
  recipe.strategy.data_parallel_size.reset();
  recipe.origins.erase("strategy.data_parallel_size");
}

std::string text_of_mesh(const Recipe& recipe) {
  std::vector<std::string> parts;
  if (recipe.devices.mesh) parts.push_back("mesh = " + toml_value(mesh_table().print(*recipe.devices.mesh)));
  const auto add = [&](const char* name, const std::optional<int64_t>& size) {
    if (size) parts.push_back(fmt::format("{} = {}", name, is_number(size) ? std::to_string(*size) : "\"auto\""));
  };
  add("data_parallel_size", recipe.strategy.data_parallel_size);
  add("pipeline_parallel_size", recipe.strategy.pipeline_parallel_size);
  add("context_parallel_size", recipe.strategy.context_parallel_size);
  add("tensor_parallel_size", recipe.strategy.tensor_parallel_size);
  return join(parts, " and ");
}

void find_mesh_mistakes(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  const auto& mesh = recipe.devices.mesh;
  if (mesh && mesh->data && (mesh->replicate || mesh->shard))
    diagnostics.push_back(
        {.place = recipe.origin("devices.mesh"),
         .code = "contradiction",
         .message = fmt::format("mesh has data and {}: data is replicate x shard, so give data, or the "
                                "other two",
                                mesh->shard ? "shard" : "replicate"),
         .section = "devices"});
  else
    find_differences(recipe, diagnostics);
}

}  // namespace runner
