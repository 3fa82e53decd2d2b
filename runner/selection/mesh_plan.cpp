#include "runner/selection/mesh_plan.hpp"

#include <fmt/format.h>

#include <utility>

#include "runner/base/text.hpp"
#include "runner/config/divisors.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/models/models.hpp"
#include "runner/selection/batch.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

namespace {

/// Whether the recipe sets the number of CPU ranks. In a file, 1 is the default, which printed recipes contain.
bool asks_for_processes(const Recipe& recipe) {
  const auto kind = recipe.origin("devices.cpu_processes").kind;
  return kind != Origin::Kind::default_value && (kind == Origin::Kind::set || recipe.devices.cpu_processes != 1);
}

/// The sizes of the recipe, and of what its strategy does without them.
MeshSizes asked_sizes(const Recipe& recipe) {
  MeshSizes sizes = given_mesh(recipe);
  const auto named = find_strategy(recipe.strategy.name);
  const Axis axis = named ? named->entry->own_axis : Axis::none;
  // A pipeline takes the ranks that a mesh leaves over. A tensor axis takes those of a node, which a mesh without it excludes.
  if (axis == Axis::none || (axis == Axis::tensor && recipe.devices.mesh)) return sizes;
  auto& own = size_along(sizes, axis);
  if (!own) own = Recipe::automatic;
  return sizes;
}

/// The sizes of one axis with which the mesh has so many ranks, if the others stay as they are: "data = 1", "tensor = 2".
std::vector<std::string> sizes_that_work(const Recipe& recipe, const MeshSizes& sizes, int64_t ranks) {
  std::vector<std::string> list;
  const int64_t pipeline = sizes.pipeline.value_or(1), context = sizes.context.value_or(1),
                tensor = sizes.tensor.value_or(1), of_data = sizes.ranks_of_data();
  const bool only_tensor = pipeline == 1 && context == 1;
  const auto add_size = [&](const std::string& name, int64_t size) {
    if (name == "tensor" && size > 1 && refuse_division(recipe, static_cast<int>(size))) return;
    list.push_back(fmt::format("{} = {}", name, size));
  };
  // Adds all sizes that are possible where the data axis takes the rest.
  const auto add_divisors = [&](const char* name, int64_t rest) {
    if (ranks % rest == 0)
      for (const int64_t size : divisors(ranks / rest, ranks)) add_size(name, size);
  };
  const auto add = [&](const char* name, int64_t rest) {
    if (ranks % rest == 0) add_size(name, ranks / rest);
  };
  if (!sizes.complete()) {
    if (pipeline > 1) add_divisors("pipeline", of_data / pipeline);
    if (context > 1) add_divisors("context", of_data / context);
    if (only_tensor || tensor > 1) add_divisors("tensor", of_data / tensor);
    return list;
  }
  if (sizes.data) add("data", of_data);
  if (sizes.shard) add("shard", of_data * sizes.replicate.value_or(1));
  if (sizes.replicate && !sizes.shard) add("replicate", of_data);
  if (pipeline > 1) add("pipeline", of_data / pipeline * sizes.data_ranks());
  if (context > 1) add("context", of_data / context * sizes.data_ranks());
  if (only_tensor || tensor > 1) add("tensor", of_data / tensor * sizes.data_ranks());
  return list;
}

std::optional<Diagnostic> find_problem(const Recipe& recipe, const MeshSizes& sizes, const Topology& topology) {
  const int64_t ranks = topology.world_size(), of_data = sizes.ranks_of_data();
  const int64_t needed = sizes.complete() ? of_data * sizes.data_ranks() : of_data;
  if (sizes.complete() ? ranks == needed : ranks % needed == 0) return std::nullopt;
  Recipe shown = recipe;
  const bool of_node = sizes.tensor && given_mesh(recipe).tensor != sizes.tensor;
  if (of_node) shown.strategy.tensor_parallel_size = sizes.tensor;
  const auto others = sizes_that_work(recipe, sizes, ranks);
  Diagnostic diagnostic{
      .place = recipe.origin(key_of_mesh(recipe)),
      .code = "mesh",
      .message = fmt::format("the run has {}, {} the {} of {}{}{}", counted(ranks, "rank"),
                             sizes.complete() ? "not" : "which is no multiple of", needed, text_of_mesh(shown),
                             of_node ? " (the devices of a node)" : "",
                             others.empty() ? "" : "; sizes that work, one at a time: " + join_or(others))};
  for (const char* key : {"devices.devices", "devices.cpu_processes"})
    if (const auto place = recipe.origin(key); place.kind == Origin::Kind::file || place.kind == Origin::Kind::set) {
      diagnostic.other = place;
      diagnostic.other_message = fmt::format("{} is set here", key);
    }
  return diagnostic;
}

}  // namespace

Recipe::Devices devices_of(const Recipe& recipe, std::optional<size_t> accelerators) {
  auto devices = recipe.devices;
  auto sizes = asked_sizes(recipe);
  const bool open_pipeline = sizes.pipeline == Recipe::automatic;
  if (open_pipeline) sizes.pipeline = 1;  // at least
  const int64_t ranks = sizes.ranks_of_data() * (sizes.complete() ? sizes.data_ranks() : 1);
  const int64_t of_node = ranks / devices.num_nodes;
  constexpr int64_t most_processes = 1024;
  const bool open = devices.devices.kind == DeviceRequest::Kind::automatic;
  if (!open || ranks <= 1 || ranks % devices.num_nodes != 0 || of_node > most_processes) return devices;
  const bool own_processes = asks_for_processes(recipe);
  if (!own_processes) devices.cpu_processes = of_node;
  const bool there = !accelerators || std::cmp_less_equal(of_node, *accelerators);
  if (sizes.complete() && !open_pipeline && there && !(own_processes && devices.accelerator == "cpu"))
    devices.devices = {DeviceRequest::Kind::count, static_cast<int>(of_node), {}};
  return devices;
}

bool resolve_mesh(Recipe& recipe, Topology& topology, std::vector<Diagnostic>& diagnostics) {
  auto sizes = asked_sizes(recipe);
  if (sizes.tensor == Recipe::automatic) sizes.tensor = topology.devices_per_node;
  if (sizes.pipeline == Recipe::automatic) {
    sizes.pipeline = 1;
    sizes.pipeline = std::max<int64_t>(1, topology.world_size() / (sizes.ranks_of_data() * sizes.data_ranks()));
  }
  topology.sizes = {};
  if (auto problem = find_problem(recipe, sizes, topology)) {
    diagnostics.push_back(std::move(*problem));
    return false;
  }
  topology.sizes = sizes;
  const auto place = recipe.origin(key_of_mesh(recipe));
  forget_size_keys(recipe);
  if (sizes == MeshSizes()) return true;
  recipe.devices.mesh = sizes;
  recipe.origins["devices.mesh"] = place;
  return true;
}

TensorDivision division_of(const Recipe& resolved, const Mesh& mesh, int rank) {
  return {.ranks = mesh.size(Axis::tensor),
          .rank = mesh.coordinate(rank, Axis::tensor),
          .sequence_parallel = resolved.strategy.sequence_parallel.value_or(true)};
}

ContextDivision context_of(const Recipe& resolved, const Mesh& mesh, int rank) {
  return {.ranks = mesh.size(Axis::context),
          .rank = mesh.coordinate(rank, Axis::context),
          .form = form_of_context(resolved)};
}

void check_division(const Recipe& recipe, const MeshSizes& sizes, std::vector<Diagnostic>& diagnostics) {
  // "auto" is checked when it has been replaced by a size.
  const auto ranks_of = [](const std::optional<int64_t>& size) {
    return size == Recipe::automatic ? 1 : static_cast<int>(size.value_or(1));
  };
  const int tensor = ranks_of(sizes.tensor), pipeline = ranks_of(sizes.pipeline), context = ranks_of(sizes.context);
  const auto report = [&](Axis axis, int ranks, const std::optional<std::string>& why) {
    if (!why) return;
    diagnostics.push_back({.place = recipe.origin(key_of_size(recipe, axis)),
                           .code = "mesh",
                           .message = fmt::format("a {} axis of {}: {}", name_of(axis), counted(ranks, "rank"), *why)});
  };
  report(Axis::tensor, tensor, refuse_division(recipe, tensor));
  report(Axis::pipeline, pipeline, pipeline > 1 ? refuse_stages(recipe) : std::nullopt);
  report(Axis::context, context, refuse_context(recipe, context, form_of_context(recipe), tensor));
}

std::shared_ptr<const ModelSpec> part_of_rank(const Recipe& resolved, std::shared_ptr<const ModelSpec> model,
                                              const Mesh& mesh, int rank) {
  const auto division = division_of(resolved, mesh, rank);
  const auto context = context_of(resolved, mesh, rank);
  if (!division.divides() && !context.divides()) return model;
  return std::make_shared<ModelSpec>(make_spec(resolved, model->vocab_size, model->seq_len, division, context));
}

std::vector<std::string> mesh_notes(const Recipe& recipe, const Mesh& mesh, int devices_per_node) {
  std::vector<std::string> notes;
  const auto named = find_strategy(recipe.strategy.name);
  if (const Axis own = named ? named->entry->own_axis : Axis::none; own != Axis::none && mesh.size(own) == 1)
    notes.push_back(
        fmt::format("`{}` divides nothing here, because its {} axis has one rank; devices.cpu_processes, "
                    "devices.devices and devices.mesh give it more",
                    recipe.strategy.name, name_of(own)));
  if (recipe.strategy.sequence_parallel && mesh.size(Axis::tensor) == 1)
    notes.push_back("`sequence_parallel`: nothing to do here: it needs a tensor axis with several ranks");
  if (recipe.strategy.context_parallel && mesh.size(Axis::context) == 1)
    notes.push_back("`context_parallel`: nothing to do here: it needs a context axis with several ranks");
  if (mesh.size(Axis::pipeline) == 1)
    for (const char* key : {"virtual_stages", "pipeline_schedule", "stages"})
      if (recipe.origins.contains(fmt::format("strategy.{}", key)))
        notes.push_back(fmt::format("`{}`: nothing to do here: it needs a pipeline axis with several ranks", key));
  if (mesh.spans_nodes(Axis::tensor, devices_per_node))
    notes.push_back(
        fmt::format("the tensor axis of {} ranks spans nodes of {}: its ranks communicate several times in each layer, "
                    "over the network; it is fast within a node",
                    mesh.size(Axis::tensor), counted(devices_per_node, "device")));
  return notes;
}

nlohmann::json mesh_json(const Mesh& mesh) {
  auto sizes = nlohmann::json::object();
  for (const auto& [axis, size] : mesh.axes()) sizes[name_of(axis)] = size;
  return sizes;
}

nlohmann::json options_of_groups(const Recipe& recipe, const Entry& entry) {
  const auto sizes = given_mesh(recipe);
  const int64_t replicate = sizes.replicate.value_or(1), shard = sizes.shard.value_or(1);
  return entry.groups && replicate > 1 && shard > 1 ? entry.groups(replicate, shard) : nlohmann::json::object();
}

std::optional<std::string> refuse_data_axis(const MeshSizes& sizes, const Entry& entry, const Job& job) {
  if (!sizes.replicate && !sizes.shard) return std::nullopt;
  const Mesh mesh = entry.plan(job).mesh;
  const int64_t replicate = sizes.replicate.value_or(1), shard = sizes.shard.value_or(1);
  const int64_t copies = mesh.size(Axis::replicate), shards = mesh.size(Axis::shard),
                context = job.mesh.size(Axis::context);
  // The ranks of a context axis share the parameters, too: as more shards, or as more copies.
  if ((copies == replicate && shards == shard * context) || (copies == replicate * context && shards == shard))
    return std::nullopt;
  auto text = fmt::format("the mesh has replicate = {} and shard = {}, but {} has replicate = {} and shard = {}",
                          replicate, shard, entry.label ? entry.label(job) : entry.name, mesh.size(Axis::replicate),
                          mesh.size(Axis::shard));
  if (replicate == 1 || shard == 1)
    return text + fmt::format("; data = {} takes what the strategy has", replicate * shard);
  if (entry.groups) return text;
  std::vector<std::string> others;
  for (const auto& other : catalog())
    if (other.groups) others.push_back("`" + other.name + "`");
  return text + fmt::format("; {} can have both", join_or(others));
}

}  // namespace runner
