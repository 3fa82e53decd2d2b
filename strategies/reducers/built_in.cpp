#include "strategies/reducers/built_in.hpp"

#include <algorithm>
#include <ranges>

#include "strategies/reducers/adasum_plan.hpp"
#include "strategies/reducers/bagua_plan.hpp"
#include "strategies/reducers/hierarchical_sum_plan.hpp"
#include "strategies/reducers/local_sgd_plan.hpp"
#include "strategies/reducers/power_sgd_plan.hpp"
#include "strategies/reducers/quantization_plan.hpp"

namespace runner {

namespace {

BuiltInReducer cast(std::string name, std::string other_name, DType dtype, std::string about) {
  return {
      .name = std::move(name), .other_names = {std::move(other_name)}, .about = std::move(about), .casts_to = dtype};
}

BuiltInReducer noop() {
  BuiltInReducer hook{.name = "noop_hook", .other_names = {"noop"}, .replicas_differ = true};
  hook.about =
      "Does not communicate gradients, so each rank trains a replica of its own: measures what communication costs.";
  hook.bytes = [](const Job&, const ParallelPlan& plan, const FlatLayout& bucket) {
    return ReducerPlan::Bytes{.held = cast_bytes(bucket, plan)};
  };
  hook.traffic = [](const Job&, const ParallelPlan&) { return std::vector<Traffic>(); };
  return hook;
}

}  // namespace

const std::vector<BuiltInReducer>& comm_hooks() {
  static const std::vector<BuiltInReducer> hooks = {
      cast("fp16_compress", "fp16_compress_hook", DType::float16, "All-reduces gradients in float16."),
      cast("bf16_compress", "bf16_compress_hook", DType::bfloat16, "All-reduces gradients in bfloat16."),
      quantization_per_tensor(),
      quantization_per_channel(),
      power_sgd(),
      batched_power_sgd(),
      post_local_sgd(),
      noop()};
  return hooks;
}

const BuiltInReducer* find_comm_hook(const std::string& name) {
  const auto found = std::ranges::find(comm_hooks(), name, &BuiltInReducer::name);
  return found == comm_hooks().end() ? nullptr : &*found;
}

const std::vector<BuiltInReducer>& bagua_algorithms() {
  static const std::vector<BuiltInReducer> algorithms = {bytegrad(), qadam(), decentralized(),
                                                         low_precision_decentralized(), async_average()};
  return algorithms;
}

/// All of it is in host memory: the sum and the mean of gradients, a copy of those of the step, parameters while they are averaged, and a
/// copy of parameters and optimizer state while a late joiner loads it.
const BuiltInReducer& hivemind_averages() {
  static const BuiltInReducer averages = {
      .name = "hivemind",
      .about = "Collects gradients, and averages them with other peers.",
      .reduces_in_backward = false,
      .bytes =
          [](const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
            if (job.accelerator.own_memory) return ReducerPlan::Bytes();
            const int64_t bytes = bucket.total * bytes_of(DType::float32);
            const int64_t state = bucket.total * bytes_of(plan.master) * (1 + job.optimizer_states);
            return ReducerPlan::Bytes{.kept = bytes, .unsaved = 2 * bytes + state, .after_update = bytes};
          },
      .traffic = [](const Job&, const ParallelPlan&) { return std::vector<Traffic>(); }};
  return averages;
}

ReducerList reducers_of(const std::string& strategy) {
  if (strategy == "ddp") return {"comm hooks, with their options in `ddp_comm_hook_options`", comm_hooks()};
  if (strategy == "bagua") return {"algorithms", bagua_algorithms()};
  if (strategy == "horovod") return {"values of `op` that do not sum gradients", {adasum()}};
  return {};
}

const BuiltInReducer* find_reducer(const std::string& name) {
  if (name == hivemind_averages().name) return &hivemind_averages();
  static const std::vector<BuiltInReducer> of_horovod = reducers_of("horovod").reducers;
  static const std::vector<BuiltInReducer> sums = {hierarchical_sum()};
  for (const auto* list : {&comm_hooks(), &bagua_algorithms(), &of_horovod, &sums})
    for (const auto& one : *list)
      if (one.name == name) return &one;
  return nullptr;
}

std::vector<FlatLayout> buckets_of(const Job& job, const ParallelPlan& plan) {
  const auto parameters = job.model->parameters();
  std::vector<FlatLayout> buckets;
  for (const size_t u : trained_units(plan) | std::views::reverse)
    buckets.push_back(layout_of(parameters, plan, plan.units[u]));
  return buckets;
}

int64_t elements_of(const std::vector<FlatLayout>& buckets) {
  int64_t elements = 0;
  for (const auto& bucket : buckets) elements += bucket.total;
  return elements;
}

int64_t cast_bytes(const FlatLayout& bucket, const ParallelPlan& plan) {
  return plan.reducer.wire == plan.gradient ? 0 : bucket.total * bytes_of(plan.reducer.wire);
}

void use_reducer(ParallelPlan& plan, const BuiltInReducer& kind, const nlohmann::json& given, DType wire) {
  plan.own_reducer = true;
  plan.reduces_in_backward = kind.reduces_in_backward;
  plan.reducer = {.name = kind.name,
                  .options = with_defaults(kind.options, given),
                  .wire = wire,
                  .replicas_differ = kind.replicas_differ};
  if (kind.qadam_warmup) plan.reducer.qadam_warmup = kind.qadam_warmup(plan.reducer.options);
}

void predict_reducer(const Job& job, ParallelPlan& plan) {
  const auto* kind = find_reducer(plan.reducer.name);
  if (!kind) return;
  const auto parameters = job.model->parameters();
  for (const auto& unit : plan.units)
    plan.reducer.bytes.push_back(unit.frozen ? ReducerPlan::Bytes()
                                             : kind->bytes(job, plan, layout_of(parameters, plan, unit)));
  if (job.world_size() > 1) plan.reducer.traffic = kind->traffic(job, plan);
}

}  // namespace runner
