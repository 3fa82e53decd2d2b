// `colossalai`: parameters, gradients and optimizer state are sharded in chunks, which can be in host memory.
//
// A chunk is a unit of the plan: parameters in the order of their use fill it up to a size that wastes little. It is gathered when a block
// uses one of them. ColossalAI finds out in the first step when chunks are used and how much memory the rest needs. Here both are known
// before the first step, from the program.
// Source: Fang et al., Parallel Training of Pre-Trained Models via Chunk-Based Dynamic Memory Management (PatrickStar, TPDS 2023);
// colossalai/zero/gemini of ColossalAI v0.2.5; Lightning 1.9's ColossalAIStrategy.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "strategies/colossalai/chunk_search.hpp"
#include "strategies/contract/with_options.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

namespace {

// The options of colossalai, under the names of Lightning's ColossalAIStrategy and of ColossalAI's GeminiDDP. Torch-free.

struct ColossalOptions {
  bool use_chunk = true;
  std::optional<int64_t> chunk_size = {};
  int64_t min_chunk_size = 32 << 20, chunk_search_range = 64 << 20,
          chunk_search_n_grids = 4096;  ///< elements, and a number
  std::string placement_policy = "auto";
  double shard_param_frac = 1, offload_optim_frac = 0, offload_param_frac = 0;
  double initial_scale = 65536, min_scale = 1, max_scale = 4294967296, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 1000, hysteresis = 2;
};

using Type = Option::Type;
using Options = ColossalOptions;

void add_chunks(OptionTable<Options>& table) {
  table
      .add({.name = "use_chunk", .help = "Parameters are sharded in chunks; false is refused, as in Lightning."},
           &Options::use_chunk)
      .add({.name = "chunk_size",
            .help = "Elements of a chunk; unset: the size that wastes least is searched.",
            .minimum = 1},
           &Options::chunk_size)
      .add({.name = "min_chunk_size",
            .help = "Elements that a chunk has at least. A model with fewer is one chunk, which stays gathered.",
            .minimum = 1},
           &Options::min_chunk_size)
      .add({.name = "chunk_search_range",
            .help = "Chunks of up to so many more elements than the smallest one are tried.",
            .minimum = 1},
           &Options::chunk_search_range)
      .add({.name = "chunk_search_n_grids", .help = "The number of sizes that are tried.", .minimum = 1},
           &Options::chunk_search_n_grids);
}

void add_placement(OptionTable<Options>& table) {
  table
      .add({.name = "placement_policy",
            .type = Type::choice,
            .help = "cuda: chunks and optimizer state are on the device. cpu: in host memory. static: as the three "
                    "fractions say. auto: on the device as far as they fit.",
            .choices = {"auto", "cpu", "cuda", "static"}},
           &Options::placement_policy)
      .add({.name = "shard_param_frac",
            .help = "The part of the chunks that are sharded; the others stay gathered.",
            .minimum = 0,
            .maximum = 1},
           &Options::shard_param_frac)
      .add({.name = "offload_optim_frac",
            .help = "1: optimizer state is in host memory; 0: on the device.",
            .minimum = 0,
            .maximum = 1},
           &Options::offload_optim_frac)
      .add({.name = "offload_param_frac",
            .help = "The part of the chunks whose shards are in host memory; it needs offload_optim_frac = 1.",
            .minimum = 0,
            .maximum = 1},
           &Options::offload_param_frac);
}

void add_loss_scale(OptionTable<Options>& table) {
  const auto scale = [&](const char* name, const char* help, double Options::*value) {
    table.add({.name = name, .help = help, .minimum = 0, .above_minimum = true}, value);
  };
  scale("initial_scale", "The first loss scale.", &Options::initial_scale);
  scale("min_scale", "The least loss scale.", &Options::min_scale);
  scale("max_scale", "The largest loss scale.", &Options::max_scale);
  table
      .add({.name = "growth_factor",
            .help = "The loss scale is multiplied by it after `growth_interval` steps without overflow.",
            .minimum = 1,
            .above_minimum = true},
           &Options::growth_factor)
      .add({.name = "backoff_factor",
            .help = "The loss scale is multiplied by it after an overflow.",
            .minimum = 0,
            .maximum = 0.999,
            .above_minimum = true},
           &Options::backoff_factor);
  table
      .add({.name = "growth_interval", .help = "Steps without overflow before the loss scale grows.", .minimum = 1},
           &Options::growth_interval)
      .add({.name = "hysteresis",
            .help = "Overflows since the last growth before the loss scale is lowered.",
            .minimum = 1},
           &Options::hysteresis);
}

const OptionTable<ColossalOptions>& colossal_options() {
  static const auto table = [] {
    OptionTable<Options> made;
    add_chunks(made);
    add_placement(made);
    add_loss_scale(made);
    return made;
  }();
  return table;
}

LossScalePolicy loss_scale_of(const ColossalOptions& options) {
  return {.initial = options.initial_scale,
          .window = options.growth_interval,
          .hysteresis = options.hysteresis,
          .minimum = options.min_scale,
          .maximum = options.max_scale,
          .growth = options.growth_factor,
          .backoff = options.backoff_factor};
}

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
           "= \"zero\" with stage = 3, which has no chunks";
  if (options.placement_policy == "auto" && gives_fractions(options))
    return "placement_policy = \"auto\" chooses shard_param_frac, offload_optim_frac and offload_param_frac: remove "
           "them, or use \"static\"";
  const double optimizer = options.offload_optim_frac;
  if (options.placement_policy == "static" && optimizer != 0 && optimizer != 1)
    return fmt::format("offload_optim_frac = {}: all optimizer state is in one place, so it is 0 or 1", optimizer);
  if (options.placement_policy == "static" && options.offload_param_frac > 0 &&
      (optimizer != 1 || options.shard_param_frac != 1))
    return "offload_param_frac above 0 needs offload_optim_frac = 1 and shard_param_frac = 1, as in ColossalAI";
  return std::nullopt;
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
  return {
      .name = "colossalai",
      .summary = "ZeRO-3 over chunks of parameters, whose shards can be in host memory.",
      .aliases = {{"ColossalAIStrategy"}},
      .options = colossalai_strategy_options(),
      .refuse = with_options(colossal_options, refuse_colossal),
      .notes = with_options(colossal_options, notes_of_colossalai),
      .label = with_options(colossal_options, label_of_colossalai),
      .variants = placements,
      .plan = with_options(colossal_options, colossal_plan),
      .own_units = true  // chunks
  };
}

}  // namespace runner
