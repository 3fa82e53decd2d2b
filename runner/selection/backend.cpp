#include "runner/selection/backend.hpp"

#include <fmt/format.h>

namespace runner {

namespace {

constexpr const char* in_devices = "devices.process_group_backend";
constexpr const char* in_strategy = "strategy.process_group_backend";

void move_option(Recipe& recipe, nlohmann::json& options, std::vector<Diagnostic>& diagnostics) {
  auto found = options.find("process_group_backend");
  if (found == options.end()) return;
  auto wanted = found->get<std::string>();
  options.erase(found);
  auto& backend = recipe.devices.process_group_backend;
  if (backend && *backend != wanted)
    diagnostics.push_back(
        {.place = recipe.origin(in_strategy),
         .code = "contradiction",
         .message =
             fmt::format("process_group_backend is \"{}\" for the strategy and \"{}\" in [devices]", wanted, *backend),
         .other = recipe.origin(in_devices),
         .other_message = "the other is set here"});
  backend = wanted;
  recipe.origins[in_devices] = recipe.origin(in_strategy);
}

}  // namespace

void resolve_backend(Recipe& recipe, nlohmann::json& options, const Topology& topology,
                     std::vector<Diagnostic>& diagnostics) {
  move_option(recipe, options, diagnostics);
  auto& backend = recipe.devices.process_group_backend;
  if (topology.simulated && backend == "nccl") backend.reset();
  bool several_supervisors = (topology.num_nodes > 1 && !topology.simulated) || topology.supervisor_each_rank;
  auto refuse = [&](const std::string& message, const std::vector<std::string>& allowed) {
    diagnostics.push_back(
        {.place = recipe.origin(in_devices), .code = "refused", .message = message, .allowed = allowed});
  };
  const auto& accelerator = topology.accelerator;
  const bool cuda = accelerator.is_cuda();
  if (backend == "nccl" && !cuda)
    refuse(fmt::format("process_group_backend \"nccl\" needs CUDA devices, and these are {}s", accelerator.noun()),
           {"shm", "gloo"});
  if (backend == "shm" && cuda)
    refuse("process_group_backend \"shm\" is for CPU ranks, and these are CUDA devices", {"nccl", "gloo"});
  else if (backend == "shm" && several_supervisors)
    refuse(fmt::format("process_group_backend \"shm\" connects the ranks of one supervisor, and this run has one {}",
                       topology.supervisor_each_rank ? "for each rank, which its launcher starts" : "on each node"),
           {"gloo"});
}

}  // namespace runner
