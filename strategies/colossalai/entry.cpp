#include "strategies/colossalai/entry.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "strategies/colossalai/chunk_search.hpp"
#include "strategies/colossalai/options.hpp"
#include "strategies/contract/with_options.hpp"

namespace runner {

namespace {

std::vector<int64_t> sizes_of(const ModelSpec& model) {
  std::vector<int64_t> sizes;
  for (const auto* parameter : model.parameters()) sizes.push_back(parameter->numel());
  return sizes;
}

int64_t chunk_size(const std::vector<int64_t>& sizes, const ColossalOptions& options) {
  if (options.chunk_size) return *options.chunk_size;
  const auto apart = outliers(sizes);
  std::vector<int64_t> searched;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!apart[i]) searched.push_back(sizes[i]);
  return search_chunk_size(searched, {.smallest = options.min_chunk_size,
                                      .range = options.chunk_search_range,
                                      .grids = options.chunk_search_n_grids})
      .elements;
}

/// Chunks, as units of the plan. Those of a small model, and those that are not sharded, stay gathered.
std::vector<Unit> chunks(const Job& job, const ColossalOptions& options) {
  const auto sizes = sizes_of(*job.model);
  auto units = units_of_keys(*job.model, chunks_of(sizes, chunk_size(sizes, options)));
  const bool small =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) < options.min_chunk_size && !options.chunk_size;
  const double sharded = small ? 0 : options.placement_policy == "static" ? options.shard_param_frac : 1;
  const auto first_gathered = static_cast<size_t>(std::ceil(sharded * static_cast<double>(units.size())));
  for (size_t u = first_gathered; u < units.size(); ++u)
    units[u] = {.slots = std::move(units[u].slots), .resident = true, .frozen = units[u].frozen};
  return units;
}

/// The parts of optimizer state and of chunks that are in host memory.
struct Offload {
  double optimizer = 0, parameters = 0;
};
Offload offload_of(const ColossalOptions& options) {
  if (options.placement_policy == "cpu") return {.optimizer = 1, .parameters = 1};
  if (options.placement_policy != "static") return {};
  return {.optimizer = options.offload_optim_frac, .parameters = options.offload_param_frac};
}

ParallelPlan colossal_plan(const Job& job, const ColossalOptions& options) {
  ParallelPlan plan;
  plan.mesh = mesh_with_shards(job, job.sharing_ranks());
  plan.alignment = alignment_of(job);
  plan.master = job.precision.parameter;
  plan.parameter = plan.reduce = plan.accumulate = job.precision.compute;
  plan.reduce_every_micro_batch = job.pipeline.ranks == 1;
  plan.gradient = job.most_micro_batches() > 1 ? wider(plan.reduce, plan.master) : plan.reduce;
  plan.overlap = plan.prefetches = plan.forward_prefetch = job.accelerator.streams;
  plan.backward_prefetch = ParallelPlan::Prefetch::before;
  plan.separate_host = job.accelerator.own_memory;
  plan.pin_memory = job.accelerator.pinned;
  plan.units = chunks(job, options);
  if (job.accelerator.own_memory) {
    const auto offload = offload_of(options);
    if (offload.optimizer > 0) plan.optimizer = Tier::host;
    // At the end of forward, where memory peaks, the next use of the first chunks is the farthest.
    const auto on_host = static_cast<size_t>(std::ceil(offload.parameters * static_cast<double>(plan.units.size())));
    for (size_t u = 0; u < on_host; ++u)
      if (!plan.units[u].resident) plan.units[u].tier = Tier::host;
  }
  plan.loss_scale = loss_scale_of(options);
  return plan;
}

bool gives_fractions(const ColossalOptions& options) {
  const ColossalOptions by_default;
  return options.shard_param_frac != by_default.shard_param_frac ||
         options.offload_optim_frac != by_default.offload_optim_frac ||
         options.offload_param_frac != by_default.offload_param_frac;
}

/// From all on the device to all in host memory.
std::vector<nlohmann::json> placements(const nlohmann::json& given) {
  const auto options = colossal_options().read(given);
  if (options.placement_policy != "auto" || gives_fractions(options)) return {};
  std::vector<nlohmann::json> list;
  const auto add = [&](double optimizer, double parameters) {
    list.push_back({{"placement_policy", "static"},
                    {"shard_param_frac", 1.0},
                    {"offload_optim_frac", optimizer},
                    {"offload_param_frac", parameters}});
  };
  add(0, 0);
  constexpr int steps = 8;
  for (int step = 0; step <= steps; ++step) add(1, static_cast<double>(step) / steps);
  return list;
}

std::optional<std::string> refuse_colossal(const Job&, const ColossalOptions& options) {
  if (!options.use_chunk)
    return "use_chunk = false is ColossalAI's old form without chunks, which Lightning refuses too: use strategy.name "
           "= "
           "\"zero\" with stage = 3, which has no chunks";
  if (options.placement_policy == "auto" && gives_fractions(options))
    return "placement_policy = \"auto\" chooses shard_param_frac, offload_optim_frac and offload_param_frac: remove "
           "them, "
           "or use \"static\"";
  const double optimizer = options.offload_optim_frac;
  if (options.placement_policy == "static" && optimizer != 0 && optimizer != 1)
    return fmt::format("offload_optim_frac = {}: all optimizer state is in one place, so it is 0 or 1", optimizer);
  if (options.placement_policy == "static" && options.offload_param_frac > 0 &&
      (optimizer != 1 || options.shard_param_frac != 1))
    return "offload_param_frac above 0 needs offload_optim_frac = 1 and shard_param_frac = 1, as in ColossalAI";
  return std::nullopt;
}

std::vector<ForeignName> colossal_foreign_names() {
  std::vector<ForeignName> names = {
      {.name = "enable_distributed_storage",
       .meaning = ForeignName::one_of({true}),
       .note = "chunks are sharded",
       .refusal = "chunks that are not sharded are placement_policy = \"static\" with shard_param_frac = 0"},
      ForeignName::accepted("force_outputs_fp32", "nothing to do: losses are computed in float32"),
      {.name = "gpu_margin_mem_ratio",
       .meaning = ForeignName::one_of({0}),
       .note = "all optimizer state is in one place",
       .refusal =
           "all optimizer state is in one place: offload_optim_frac = 0 or 1 with placement_policy = \"static\""},
  };
  for (auto& name : names) name.sections = {"strategy"};
  return names;
}

/// "colossalai, optimizer state and 3/8 of the chunks in host memory".
std::string label_of_colossalai(const Job&, const ColossalOptions& options) {
  const auto offload = offload_of(options);
  if (options.placement_policy == "auto") return "colossalai";
  if (offload.optimizer == 0) return "colossalai, chunks on the device";
  if (offload.parameters == 0) return "colossalai, optimizer state in host memory";
  if (offload.parameters == 1) return "colossalai, chunks and optimizer state in host memory";
  return fmt::format("colossalai, optimizer state and {:.4g} of the chunks in host memory", offload.parameters);
}

std::vector<std::string> notes_of_colossalai(const Job& job, const ColossalOptions& options) {
  if (job.accelerator.own_memory || offload_of(options).optimizer == 0) return {};
  return {"`placement_policy`: no effect on CPU, where chunks are always in host memory"};
}

std::vector<StrategyOption> colossalai_strategy_options() {
  auto options = strategy_options(colossal_options().options());
  const auto only = [&](const std::vector<std::string>& names, const std::string& what,
                        bool (*holds)(const ColossalOptions&)) {
    need(options, names, {what, with_options(colossal_options, [holds](const Job&, const ColossalOptions& given) {
                            return holds(given);
                          })});
  };
  only({"shard_param_frac", "offload_optim_frac", "offload_param_frac"}, "placement_policy = \"static\"",
       [](const ColossalOptions& given) { return given.placement_policy == "static"; });
  only({"chunk_search_range", "chunk_search_n_grids", "min_chunk_size"}, "no chunk_size",
       [](const ColossalOptions& given) { return !given.chunk_size; });
  need(options,
       {"initial_scale", "min_scale", "max_scale", "growth_factor", "backoff_factor", "growth_interval", "hysteresis"},
       {"precision 16-mixed", [](const Job& job) { return job.precision.loss_scaling; }});
  return options;
}

}  // namespace

Entry colossalai_entry() {
  Entry entry;
  entry.name = "colossalai";
  entry.summary = "ZeRO-3 over chunks of parameters, whose shards can be in host memory.";
  entry.aliases = {{"ColossalAIStrategy"}};
  entry.options = colossalai_strategy_options();
  entry.refuse = with_options(colossal_options, refuse_colossal);
  entry.label = with_options(colossal_options, label_of_colossalai);
  entry.notes = with_options(colossal_options, notes_of_colossalai);
  entry.foreign_names = colossal_foreign_names();
  entry.variants = placements;
  entry.own_units = true;  // chunks
  entry.plan = with_options(colossal_options, colossal_plan);
  return entry;
}

}  // namespace runner
