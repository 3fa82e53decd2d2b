#include "strategies/reducers/bagua_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// Adds the traffic inside a node: a sum to its first rank, and a broadcast from it.
void add_node(std::vector<Traffic>& list, const NodeGroups& groups, int64_t calls, int64_t bytes) {
  if (groups.node == 1) return;
  for (const auto kind : {Collective::reduce, Collective::broadcast})
    list.push_back(make_traffic(kind, static_cast<int>(groups.node), calls, bytes));
}

BaguaOptions bagua_options_of(const ParallelPlan& plan) { return bagua_options().read(plan.reducer.options); }

std::vector<Traffic> traffic_of_bytegrad(const Job& job, const ParallelPlan& plan) {
  const auto groups = groups_of(bagua_options_of(plan), job);
  const auto buckets = buckets_of(job, plan);
  const int64_t calls = std::ssize(buckets);
  std::vector<Traffic> list;
  add_node(list, groups, calls, elements_of(buckets) * std::max(bytes_of(plan.gradient), bytes_of(DType::float32)));
  if (groups.nodes == 1) return list;
  int64_t bytes = 0;
  for (const auto& bucket : buckets) bytes += groups.nodes * min_max_bytes(chunk_of(bucket.total, groups.nodes));
  for (const auto kind : {Collective::all_to_all, Collective::all_gather})
    list.push_back(make_traffic(kind, static_cast<int>(groups.nodes), calls, bytes, static_cast<int>(groups.node)));
  return list;
}

/// The exchanges of parameters in a step, averaged over steps without one.
struct Exchanges {
  NodeGroups groups;
  std::vector<FlatLayout> buckets;
  int64_t every = 1, calls = 1;
  std::vector<Traffic> within_nodes = {};

  Exchanges(const Job& job, const ParallelPlan& plan)
      : groups(groups_of(bagua_options_of(plan), job)),
        buckets(buckets_of(job, plan)),
        every(bagua_options_of(plan).communication_interval),
        calls(std::max<int64_t>(1, std::ssize(buckets) / every)) {
    add_node(within_nodes, groups, calls, elements_of(buckets) * wide_bytes(plan) / every);
  }
};

std::vector<Traffic> traffic_of_decentralized(const Job& job, const ParallelPlan& plan) {
  const Exchanges step(job, plan);
  auto list = step.within_nodes;
  if (step.groups.nodes == 1) return list;
  const int64_t bytes = elements_of(step.buckets) * wide_bytes(plan) / step.every;
  if (bagua_options_of(plan).peer_selection_mode == "all")
    list.push_back(make_traffic(Collective::all_reduce, static_cast<int>(step.groups.nodes), step.calls, bytes,
                                static_cast<int>(step.groups.node)));
  else
    list.push_back(exchange_traffic(step.groups.nodes, step.calls, bytes, step.groups.node));
  return list;
}

std::vector<Traffic> traffic_of_low_precision(const Job& job, const ParallelPlan& plan) {
  const Exchanges step(job, plan);
  auto list = step.within_nodes;
  if (step.groups.nodes == 1) return list;
  int64_t bytes = 0;
  for (const auto& bucket : step.buckets) bytes += min_max_bytes(bucket.total);
  list.push_back(exchange_traffic(step.groups.nodes, 2 * step.calls, 2 * bytes / step.every, step.groups.node));
  return list;
}

std::optional<std::string> refuse_shift(const Job& job, const nlohmann::json& given) {
  const auto options = bagua_options().read(given);
  const auto groups = groups_of(options, job);
  if (options.peer_selection_mode != "shift_one" || groups.nodes == 1 || groups.nodes % 2 == 0) return std::nullopt;
  return fmt::format(
      "peer_selection_mode = \"shift_one\" makes pairs, but {} exchange{}: take an even number, or \"all\"",
      counted(groups.nodes, is_hierarchical(options) ? "node" : "rank"),
      is_hierarchical(options) ? " (hierarchical = true counts nodes)" : "");
}

std::optional<std::string> refuse_qadam(const Job& job, const nlohmann::json& given) {
  const auto options = bagua_options().read(given);
  if (job.optimizer->kind != OptimizerKind::adam)
    return "algorithm = \"qadam\" is a form of Adam: QAdamOptimizer is optimizer.name = \"adam\" with this algorithm";
  if (!options.average) return "algorithm = \"qadam\" averages moments: remove average = false";
  if (warmup_steps(options) < 2)
    return fmt::format(
        "warmup_steps = {}: qadam needs at least 2, because the second moment is computed in the steps before the last "
        "one of the warm-up",
        warmup_steps(options));
  if (job.precision.loss_scaling)
    return "algorithm = \"qadam\" adds gradients to moments, which have no loss scale: use bf16-mixed instead of "
           "16-mixed";
  return std::nullopt;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names{"gradient_allreduce"};
  for (const auto& algorithm : bagua_algorithms()) names.push_back(algorithm.name);
  return names;
}

}  // namespace

const OptionTable<BaguaOptions>& bagua_options() {
  using Type = Option::Type;
  using Options = BaguaOptions;
  static const auto table =
      OptionTable<Options>()
          .add({.name = "algorithm",
                .type = Type::choice,
                .help = "What ranks exchange; `runner strategies bagua` describes each algorithm.",
                .choices = algorithm_names()},
               &Options::algorithm)
          .add({.name = "hierarchical",
                .help = "Ranks of a node reduce first, and only one rank of each node exchanges with others. Default: "
                        "false for gradient_allreduce, otherwise true."},
               &Options::hierarchical)
          .add({.name = "average",
                .help = "Gradients are averaged. false: they are summed, so they are multiplied by the number of "
                        "ranks; clipping sees the larger gradients, and with Adam the update hardly changes."},
               &Options::average)
          .add({.name = "peer_selection_mode",
                .type = Type::choice,
                .help = "With decentralized: average with all ranks, or with one other, another in each exchange.",
                .choices = {"all", "shift_one"}},
               &Options::peer_selection_mode)
          .add({.name = "communication_interval",
                .help = "With the decentralized algorithms: steps from one exchange to the next.",
                .minimum = 1},
               &Options::communication_interval)
          .add({.name = "warmup_steps",
                .help = "With qadam and async: steps that sum gradients at first. With qadam the last of them changes "
                        "no moment, as in Bagua. Default: 100 for qadam, 0 for async.",
                .minimum = 0},
               &Options::warmup_steps)
          .add({.name = "sync_interval_ms",
                .help = "With async: milliseconds from the end of an average to the next one.",
                .minimum = 0,
                .maximum = 86'400'000},
               &Options::sync_interval_ms);
  return table;
}

bool is_hierarchical(const BaguaOptions& options) {
  return options.hierarchical.value_or(options.algorithm != "gradient_allreduce");
}

BuiltInReducer bytegrad() {
  BuiltInReducer reducer{.name = "bytegrad"};
  reducer.about = "Sends gradients as 8-bit integers, to the rank that sums a chunk, and the sums back.";
  // The padded values, what a rank sends and receives, and what it decodes.
  reducer.bytes = [](const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
    const auto groups = groups_of(bagua_options_of(plan), job);
    const int64_t chunk = chunk_of(bucket.total, groups.nodes), wide = groups.nodes * chunk * bytes_of(DType::float32);
    const int64_t cast = bytes_of(plan.gradient) < 4 ? bucket.total * bytes_of(DType::float32) : 0;
    return ReducerPlan::Bytes{.held = cast + 2 * groups.nodes * min_max_bytes(chunk), .start = wide, .finish = wide};
  };
  reducer.traffic = traffic_of_bytegrad;
  return reducer;
}

BuiltInReducer qadam() {
  BuiltInReducer reducer = bytegrad();
  reducer.name = "qadam";
  reducer.about =
      "Adam that sends its first moment as 8-bit integers after `warmup_steps`, and then keeps the second moment.";
  reducer.qadam_warmup = [](const nlohmann::json& given) { return warmup_steps(bagua_options().read(given)); };
  // The last step of the warm-up changes no moment.
  reducer.late_start = {.option = "warmup_steps", .does = "differs from Adam", .first_step = [](const auto& given) {
                          return warmup_steps(bagua_options().read(given));
                        }};
  reducer.refuse = refuse_qadam;
  return reducer;
}

BuiltInReducer decentralized() {
  BuiltInReducer reducer{.name = "decentralized", .replicas_differ = true};
  reducer.about =
      "Each rank trains a replica. New parameters are the average of those of several ranks before the step, plus the "
      "rank's own update.";
  reducer.bytes = [](const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
    const auto options = bagua_options_of(plan);
    const int64_t copies = job.world_size() == 1 ? 0 : options.peer_selection_mode == "all" ? 1 : 2;
    return ReducerPlan::Bytes{.held = cast_bytes(bucket, plan) + copies * bucket.total * wide_bytes(plan)};
  };
  reducer.traffic = traffic_of_decentralized;
  reducer.refuse = refuse_shift;
  return reducer;
}

BuiltInReducer low_precision_decentralized() {
  BuiltInReducer reducer{.name = "low_precision_decentralized", .replicas_differ = true, .reduces_in_backward = false};
  reducer.about =
      "Each rank trains a replica, and moves to the mean of itself and its two neighbours, sent as 8-bit differences.";
  reducer.bytes = [](const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
    ReducerPlan::Bytes bytes{.held = cast_bytes(bucket, plan)};
    if (job.world_size() == 1) return bytes;
    const int64_t wide = bucket.total * wide_bytes(plan);
    bytes.kept = 3 * wide;
    bytes.after_update = bytes_of(plan.master) < bytes_of(DType::float32) ? wide : 0;  // the parameters
    if (groups_of(bagua_options_of(plan), job).nodes > 1)  // the changes, their codes as float32, and the message
      bytes.after_update += wide + bucket.total * bytes_of(DType::float32) + min_max_bytes(bucket.total);
    return bytes;
  };
  reducer.traffic = traffic_of_low_precision;
  return reducer;
}

BuiltInReducer async_average() {
  BuiltInReducer reducer{.name = "async", .replicas_differ = true};
  reducer.late_start = {.option = "warmup_steps", .does = "trains replicas", .first_step = [](const auto& given) {
                          return warmup_steps(bagua_options().read(given)) + 1;
                        }};
  reducer.about = "Each rank trains a replica. Parameters are averaged from time to time, while training goes on.";
  // The copy and the sum of a round.
  reducer.bytes = [](const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
    return ReducerPlan::Bytes{.unsaved = job.world_size() == 1 ? 0 : 2 * bucket.total * wide_bytes(plan),
                              .held = cast_bytes(bucket, plan)};
  };
  // At most: a round in each step.
  reducer.traffic = [](const Job& job, const ParallelPlan& plan) -> std::vector<Traffic> {
    const auto buckets = buckets_of(job, plan);
    return {make_traffic(Collective::all_reduce, job.world_size(), std::ssize(buckets),
                         elements_of(buckets) * wide_bytes(plan))};
  };
  return reducer;
}

}  // namespace runner
