#include "runner/train/compiled_memory.hpp"

#include <algorithm>

#include "runner/base/files.hpp"
#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/models.hpp"
#include "runner/models/module.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/script_optimizer.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/train/optimizer_settings.hpp"
#include "strategies/catalog.hpp"
#include "strategies/xla/account.hpp"

namespace runner {

using nlohmann::json;

json describe_compiled_memory(const json& request) {
  Recipe recipe = parse_recipe(request.at("recipe").get<std::string>(), "resolved.toml");
  Topology topology;
  topology.devices_per_node = request.at("devices");
  topology.sizes = recipe.devices.mesh.value_or(MeshSizes());
  const ModelSpec spec = make_spec(recipe, outputs_of(recipe.model).value(), recipe.data.seq_len.value_or(1));
  const auto model = build_model(recipe.model, spec);
  Job job = make_job(recipe, spec, topology);
  const Entry* const script = script_entry(recipe);
  const Entry& entry = script ? *script : *find_strategy(recipe.strategy.name)->entry;
  set_program_cache(job, entry, request.at("cache_dir"));
  recipe = with_script_optimizer(recipe, entry, job.options, spec);
  set_optimizers(recipe.optimizer, job);
  const bool by_norm = recipe.train.gradient_clip_algorithm == "norm";
  const auto& clip = recipe.train.gradient_clip_val;
  const auto found = account_of_step(*model, job, entry.plan(job), optimizer_config(recipe),
                                     by_norm ? clip : std::nullopt, by_norm ? std::nullopt : clip);
  return {{"bytes", found.bytes}};
}

void set_program_cache(Job& job, const Entry& entry, const std::string& cache_dir) {
  constexpr const char* name = "compilation_cache";
  const auto is_it = [&](const StrategyOption& option) { return option.name == name; };
  if (!std::ranges::any_of(entry.options, is_it) || !job.options.value(name, nlohmann::json()).is_null()) return;
  job.options[name] = (fs::path(cache_dir) / "programs").string();
}

}  // namespace runner
