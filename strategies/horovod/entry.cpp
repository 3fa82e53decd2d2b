// `horovod`: data parallelism with Horovod's options. Ranks average gradients, sum them, or combine updates by Adasum.
//
// Source: Sergeev and Del Balso, Horovod (arXiv:1802.05799), and horovod/horovod 2626dc87; Lightning 1.9's HorovodStrategy.
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/contract/with_options.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "strategies/reducers/adasum_plan.hpp"
#include "strategies/reducers/hierarchical_sum_plan.hpp"

namespace runner {

namespace {

// Variables of the environment with which Horovod is set up, as notes: a recipe is the whole description of a run, so none of them is read.

/// Says what takes the place of Horovod's process sets.
constexpr const char* process_sets_here =
    "process sets are named groups of ranks, which the function `setup` of a strategy in Lua makes: "
    "ctx.world:group(\"NAME\", {{0, 1}, {2, 3}}) has the collectives of ctx.world (recipes/strategies_lua/README.md)";

struct Variable {
  const char* name;
  const char* meaning;     ///< what a recipe sets instead, or why there is nothing to set
  bool is_switch = false;  ///< off unless it is a number above 0; there is no note on one that is off
};

constexpr const char* own_thread = "nothing to do: gradients are reduced during backward, without a background thread";
constexpr const char* by_levels =
    "set strategy.hierarchical = true, which sums gradients inside each node, and then over the nodes";
constexpr const char* by_timeout = "set train.timeout, after which ranks that wait end the run and name the late ones";

constexpr Variable variables[] = {
    {.name = "HOROVOD_TIMELINE", .meaning = "set run.profiler = \"trace\", which writes a trace for Chrome"},
    {.name = "HOROVOD_TIMELINE_MARK_CYCLES", .meaning = own_thread, .is_switch = true},
    {.name = "HOROVOD_CYCLE_TIME", .meaning = own_thread},
    {.name = "HOROVOD_CACHE_CAPACITY", .meaning = own_thread},
    {.name = "HOROVOD_AUTOTUNE", .meaning = own_thread, .is_switch = true},
    {.name = "HOROVOD_AUTOTUNE_LOG", .meaning = own_thread},
    {.name = "HOROVOD_HIERARCHICAL_ALLREDUCE", .meaning = by_levels, .is_switch = true},
    {.name = "HOROVOD_HIERARCHICAL_ALLGATHER",
     .meaning = "nothing to do: the backend chooses the algorithm of an all-gather",
     .is_switch = true},
    {.name = "HOROVOD_TORUS_ALLREDUCE", .meaning = by_levels, .is_switch = true},
    {.name = "HOROVOD_STALL_CHECK_TIME_SECONDS", .meaning = by_timeout},
    {.name = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", .meaning = by_timeout},
    {.name = "HOROVOD_STALL_CHECK_DISABLE", .meaning = by_timeout, .is_switch = true},
    {.name = "HOROVOD_ADASUM_MPI_CHUNK_SIZE", .meaning = "nothing to do: vectors are sent as a whole"},
    {.name = "HOROVOD_DYNAMIC_PROCESS_SETS", .meaning = process_sets_here, .is_switch = true},
    {.name = "HOROVOD_ELASTIC",
     .meaning = "set devices.min_nodes and devices.max_nodes, and start `runner run` once on each node",
     .is_switch = true},
    {.name = "HOROVOD_LOG_LEVEL",
     .meaning = "set the variable RUNNER_LOG, the lowest level of messages: info, warning or error"},
};

/// Horovod's buffer is in bytes, and 0 sends each gradient by itself.
std::string fusion_note(std::string_view bytes) {
  const auto value = parse_number<int64_t>(bytes);
  if (!value || *value <= 0) return "set strategy.bucket_cap_mb, the size of the buckets of gradients";
  return fmt::format("set strategy.bucket_cap_mb = {:.4g}", static_cast<double>(*value) / (1 << 20));
}

/// Whether a variable is on, as Horovod reads it.
bool is_on(const char* value) { return std::strtol(value, nullptr, 10) > 0; }

std::string note(const char* name, std::string_view meaning) {
  return fmt::format("the variable {} is not read: {}", name, meaning);
}

/// A note for each HOROVOD_ variable that is set and has a key in recipes, or nothing to set here. Those of a launcher
/// (HOROVOD_RANK, ...) are read by runner/launch.
std::vector<std::string> notes_of_horovod_variables() {
  std::vector<std::string> notes;
  constexpr const char* fusion = "HOROVOD_FUSION_THRESHOLD";
  if (const char* bytes = std::getenv(fusion)) notes.push_back(note(fusion, fusion_note(bytes)));
  for (const auto& variable : variables)
    if (const char* value = std::getenv(variable.name); value && (!variable.is_switch || is_on(value)))
      notes.push_back(note(variable.name, variable.meaning));
  return notes;
}

/// Whether gradients are summed inside each node first. One node, or one rank in each, has the sum of `ddp`.
bool sums_in_nodes(const Job& job, const HorovodOptions& options) {
  const auto groups = node_groups(job, options.hierarchical);
  return options.op != "adasum" && groups.node > 1 && groups.nodes > 1;
}

ParallelPlan horovod_plan(const Job& job, const HorovodOptions& options) {
  ParallelPlan plan = bucketed_plan(job);
  const DType wire = options.compression == "fp16" ? DType::float16 : plan.reduce;
  if (options.op == "adasum") {
    use_reducer(plan, adasum(), job.options, wire);
    return plan;
  }
  if (options.op == "sum") plan.gradient_factor = job.data_ranks();
  if (sums_in_nodes(job, options)) {
    use_reducer(plan, hierarchical_sum(),
                hierarchical_sum_options().print({.predivide = options.gradient_predivide_factor}), wire);
    return plan;
  }
  plan.predivide = options.gradient_predivide_factor;
  if (job.sharing_ranks() > 1) plan.reduce = wire;  // one rank sends nothing
  return plan;
}

std::optional<std::string> refuse_horovod(const Job& job, const HorovodOptions& options) {
  if (options.gradient_predivide_factor != 1 && options.op != "average")
    return fmt::format("`gradient_predivide_factor` is for op = \"average\", in Horovod too; op is \"{}\"", options.op);
  if (sums_in_nodes(job, options) && job.data_ranks() != job.world_size())
    return "`hierarchical` sums the gradients of complete models and rows, so it cannot be combined with the axes "
           "tensor, context and pipeline: remove it";
  return options.op == "adasum" ? adasum().refuse(job, job.options) : std::nullopt;
}

/// Lightning multiplies by the number of ranks. The examples of Horovod do not with Adasum, except by the ranks of a node that sum.
double rate_factor(const Job& job, const HorovodOptions& options) {
  if (!options.scale_learning_rate || options.op == "sum") return 1;
  if (options.op == "adasum") return static_cast<double>(adasum_groups(options, job).node);
  return job.data_ranks();
}

std::vector<std::string> notes_of_horovod(const Job& job, const HorovodOptions& options) {
  std::vector<std::string> notes = notes_of_horovod_variables();
  if (const double factor = rate_factor(job, options); factor != 1)
    notes.push_back(
        fmt::format("learning rates are multiplied by {}, {}; if those of the recipe are multiplied already, set "
                    "scale_learning_rate = false",
                    factor,
                    options.op == "adasum" ? "the ranks of a node, as in Horovod's examples"
                                           : "the number of ranks, as Lightning does with Horovod"));
  if (options.op != "adasum" || job.world_size() == 1) return notes;
  notes.push_back(
      "op = \"adasum\": parameters are equal on all ranks, but each rank has optimizer state of its own; a checkpoint "
      "has that of all ranks, and resumes with the same number of ranks only");
  if (options.hierarchical && adasum_groups(options, job).nodes == 1)
    notes.push_back("op = \"adasum\", hierarchical = true and one node: updates are averaged, not combined");
  return notes;
}

std::vector<StrategyOption> horovod_strategy_options() {
  auto options = strategy_options(horovod_options().options());
  options.push_back({bucket_cap_option()});
  const auto acts = [](const Job& job, const HorovodOptions& given) {
    return given.op == "adasum" || sums_in_nodes(job, given);
  };
  need(options, {"hierarchical"},
       {"several nodes with several ranks each, or op = \"adasum\"", with_options(horovod_options, acts)});
  return options;
}

std::string label_of_horovod(const Job&, const HorovodOptions& options) {
  return options.op == "average" ? "horovod" : "horovod " + options.op;
}

}  // namespace

Entry horovod_entry() {
  return {.name = "horovod",
          .summary = "Horovod's data parallelism: gradients are averaged or summed, or updates are combined by Adasum.",
          .aliases = {{"HorovodStrategy"}},
          .options = horovod_strategy_options(),
          .refuse = with_options(horovod_options, refuse_horovod),
          .notes = with_options(horovod_options, notes_of_horovod),
          .label = with_options(horovod_options, label_of_horovod),
          .rate_factor = with_options(horovod_options, rate_factor),
          .plan = with_options(horovod_options, horovod_plan)};
}

}  // namespace runner
