#include "runner/config/mesh_sizes.hpp"

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"

namespace runner {

namespace {

/// Whether the size is given, and not as "auto".
bool is_number(const std::optional<int64_t>& size) { return size && *size != Recipe::automatic; }

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
  const auto check = [&](const char* axis, const std::optional<int64_t>& size, const std::optional<int64_t>& in_mesh) {
    if (is_number(size) && in_mesh && *size != *in_mesh)
      report_difference(recipe, fmt::format("{}_parallel_size", axis), *size, fmt::format("{} = {}", axis, *in_mesh),
                        diagnostics);
  };
  check("tensor", recipe.strategy.tensor_parallel_size, mesh->tensor);
  check("pipeline", recipe.strategy.pipeline_parallel_size, mesh->pipeline);
  check("context", recipe.strategy.context_parallel_size, mesh->context);
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

MeshSizes given_mesh(const Recipe& recipe) {
  MeshSizes sizes = recipe.devices.mesh.value_or(MeshSizes());
  if (!sizes.tensor) sizes.tensor = recipe.strategy.tensor_parallel_size;
  if (!sizes.pipeline) sizes.pipeline = recipe.strategy.pipeline_parallel_size;
  if (!sizes.context) sizes.context = recipe.strategy.context_parallel_size;
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

std::string key_of_mesh(const Recipe& recipe) {
  const auto& mesh = recipe.devices.mesh;
  if (recipe.strategy.tensor_parallel_size && !(mesh && mesh->tensor)) return "strategy.tensor_parallel_size";
  return key_of_pipeline(recipe);
}

std::string key_of_pipeline(const Recipe& recipe) {
  const auto& mesh = recipe.devices.mesh;
  if (recipe.strategy.pipeline_parallel_size && !(mesh && mesh->pipeline)) return "strategy.pipeline_parallel_size";
  return key_of_context(recipe);
}

std::string key_of_context(const Recipe& recipe) {
  const auto& mesh = recipe.devices.mesh;
  if (recipe.strategy.context_parallel_size && !(mesh && mesh->context)) return "strategy.context_parallel_size";
  if (mesh) return "devices.mesh";
  return recipe.strategy.data_parallel_size ? "strategy.data_parallel_size" : "strategy.name";
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
