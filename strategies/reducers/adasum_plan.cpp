#include "strategies/reducers/adasum_plan.hpp"

#include <fmt/format.h>

#include <bit>

#include "runner/base/round_up.hpp"
#include "runner/base/text.hpp"

namespace runner {

const OptionTable<HorovodOptions>& horovod_options() {
  using Type = Option::Type;
  using Options = HorovodOptions;
  static const auto table =
      OptionTable<Options>()
          .add({.name = "op",
                .type = Type::choice,
                .help =
                    "average: of gradients. sum: gradients are multiplied by the number of ranks. adasum: combines the "
                    "updates of ranks, each made from its own rows.",
                .choices = {"average", "sum", "adasum"},
                .spellings = {{"hvd.average", "average"}, {"hvd.sum", "sum"}, {"hvd.adasum", "adasum"}}},
               &Options::op)
          .add({.name = "compression",
                .type = Type::choice,
                .help = "What is sent in float16: gradients, or the updates of adasum.",
                .choices = {"none", "fp16"},
                .spellings = {{"compression.none", "none"},
                              {"compression.fp16", "fp16"},
                              {"hvd.compression.none", "none"},
                              {"hvd.compression.fp16", "fp16"}}},
               &Options::compression)
          .add({.name = "gradient_predivide_factor",
                .help = "Gradients are divided by it before their sum, and multiplied after it.",
                .minimum = 0,
                .above_minimum = true},
               &Options::gradient_predivide_factor)
          .add({.name = "hierarchical",
                .help = "Gradients are summed inside each node, and then over the nodes. With adasum: updates are "
                        "averaged in each node, and nodes are combined."},
               &Options::hierarchical)
          .add(
              {.name = "scale_learning_rate",
               .help =
                   "Multiplies learning rates by the number of ranks, as Lightning does. With adasum: by the ranks of "
                   "a node if it is hierarchical, and otherwise not. With sum: not, because gradients are multiplied."},
              &Options::scale_learning_rate);
  return table;
}

namespace {

HorovodOptions horovod_options_of(const ParallelPlan& plan) { return horovod_options().read(plan.reducer.options); }

/// Level by level, halves travel to the partner and back, and the norms of the parts are summed over the ranks that share a vector.
std::vector<Traffic> traffic_of_adasum(const Job& job, const ParallelPlan& plan) {
  const auto groups = adasum_groups(horovod_options_of(plan), job);
  const auto buckets = buckets_of(job, plan);
  const int64_t calls = std::ssize(buckets), each = bytes_of(plan.reducer.wire);
  int64_t elements = 0, norms = 0;
  for (const auto& bucket : buckets) {
    elements += adasum_elements(bucket.total, groups);
    norms += 3 * std::ssize(bucket.items);
  }
  std::vector<Traffic> list;
  if (groups.node > 1)
    for (const auto kind : {Collective::reduce_scatter, Collective::all_gather})
      list.push_back(make_traffic(kind, static_cast<int>(groups.node), calls, elements * each));
  int64_t halves = 0, levels = 0;
  for (int64_t nodes = 2; nodes <= groups.nodes; nodes *= 2, ++levels) {
    halves += 2 * (elements / groups.node / nodes);
    list.push_back(make_traffic(Collective::all_reduce, static_cast<int>(nodes * groups.node), calls,
                                norms * bytes_of(DType::float64)));
  }
  if (levels > 0) list.push_back(exchange_traffic(job.world_size(), 2 * levels * calls, halves * each));
  return list;
}

/// Between steps, the parameters before the update. After it, the update, with zeros at its end, and the halves that are received.
ReducerPlan::Bytes bytes_of_adasum(const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
  if (job.world_size() == 1) return {};
  const int64_t wide = wide_bytes(plan), wire = bytes_of(plan.reducer.wire);
  const auto groups = adasum_groups(horovod_options_of(plan), job);
  const int64_t padded = adasum_elements(bucket.total, groups), part = padded / groups.node;
  const int64_t received = part - part / groups.nodes;
  const int64_t update = bucket.total * wire, whole = padded * wire + (groups.node > 1 ? part * wire : 0);
  const int64_t combined = whole + received * wire + std::min(adasum_piece, part) * 2 * bytes_of(DType::float64);
  return {.unsaved = bucket.total * wide,
          .after_update = update + std::max(combined, wire < wide ? bucket.total * wide : int64_t{0})};
}

std::optional<std::string> refuse_adasum(const Job& job, const nlohmann::json& given) {
  const auto options = horovod_options().read(given);
  const auto groups = adasum_groups(options, job);
  const auto is_power = [](int64_t count) { return std::has_single_bit(static_cast<uint64_t>(count)); };
  if (is_power(groups.nodes)) return std::nullopt;
  const auto unit = options.hierarchical ? "node" : "rank";
  const bool by_nodes = !options.hierarchical && is_power(node_groups(job, true).nodes);
  return fmt::format("op = \"adasum\" needs a power of two: {} are not; use {} or {}{}", counted(groups.nodes, unit),
                     std::bit_floor(static_cast<uint64_t>(groups.nodes)),
                     std::bit_ceil(static_cast<uint64_t>(groups.nodes)),
                     by_nodes ? ", or hierarchical = true, which averages the ranks of each node" : "");
}

}  // namespace

NodeGroups adasum_groups(const HorovodOptions& options, const Job& job) {
  return node_groups(job, options.hierarchical);
}

int64_t adasum_elements(int64_t elements, const NodeGroups& groups) {
  return round_up(elements, groups.node * groups.nodes);
}

BuiltInReducer adasum() {
  BuiltInReducer reducer{.name = "adasum", .replicas_differ = true, .reduces_in_backward = false};
  reducer.about =
      "Each rank updates with its own gradients. Updates in different directions are added, equal ones averaged.";
  reducer.bytes = bytes_of_adasum;
  reducer.traffic = traffic_of_adasum;
  reducer.refuse = refuse_adasum;
  return reducer;
}

}  // namespace runner
