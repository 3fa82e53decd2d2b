// Built-in ways to communicate gradients or parameters that differ from a sum: their options, what each keeps, and what it sends. This
// header is torch-free; base_reducer.hpp makes them.
#pragma once
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strategies/program/parallel_plan.hpp"

namespace runner {

struct BuiltInReducer {
  std::string name;
  std::vector<std::string> other_names = {};  ///< in lower case
  std::string about = "";
  std::vector<Option> options = {};
  /// The reducer only casts gradients: the plan sums them in this dtype, and the functions below are empty.
  std::optional<DType> casts_to = {};
  bool replicas_differ =
      false;  ///< each rank has parameters or optimizer state of its own; checkpoints have all of them
  bool reduces_in_backward = true;  ///< ParallelPlan::reduces_in_backward
  /// Set if the first steps only sum gradients, as `ddp` does.
  struct LateStart {
    std::string option;  ///< sets the number of these steps
    std::string does;    ///< what the reducer does later, as in "`powerSGD_hook` compresses from step 1001 on"
    std::function<int64_t(const nlohmann::json& options)> first_step;  ///< the first other step, counted from 1
  };
  std::optional<LateStart> late_start = {};
  /// ReducerPlan::qadam_warmup, from the options.
  std::function<std::optional<int64_t>(const nlohmann::json& options)> qadam_warmup = {};
  /// The bytes of a bucket with this layout. `plan` has the options.
  std::function<ReducerPlan::Bytes(const Job& job, const ParallelPlan& plan, const FlatLayout& bucket)> bytes = {};
  /// The traffic of a rank in a step, averaged over steps if they differ.
  std::function<std::vector<Traffic>(const Job& job, const ParallelPlan& plan)> traffic = {};
  /// Why the job cannot run with these options.
  std::function<std::optional<std::string>(const Job& job, const nlohmann::json& options)> refuse = {};
};

/// The comm hooks of ddp, under the names of PyTorch's functions. Options are the fields of a hook's state.
///
/// Source: torch/distributed/algorithms/ddp_comm_hooks and model_averaging (PyTorch 2.11). There a hook averages over ranks; here
/// gradients are already those of the mean over the global batch, and hooks sum them. So ranks with fewer tokens count as they should.
const std::vector<BuiltInReducer>& comm_hooks();
/// By name; nullptr if there is none.
const BuiltInReducer* find_comm_hook(const std::string& name);

/// The algorithms of Bagua that do not sum gradients as ddp does, under Bagua's names.
///
/// Source: bagua/torch_api/algorithms and bagua-core (BaguaSys/bagua, 3e480d29).
const std::vector<BuiltInReducer>& bagua_algorithms();

/// The reducer with which hivemind collects and averages (strategies/hivemind/reducer.hpp). It is not an option of another strategy.
const BuiltInReducer& hivemind_averages();

/// The ways to communicate that an option of a strategy chooses among, under a heading for their list. Empty for most strategies.
struct ReducerList {
  std::string heading = "";
  std::vector<BuiltInReducer> reducers = {};
};
ReducerList reducers_of(const std::string& strategy);

/// A reducer of any strategy, by name; nullptr if there is none.
const BuiltInReducer* find_reducer(const std::string& name);

/// The layouts of the buckets of a plan, in the order of their reduction.
std::vector<FlatLayout> buckets_of(const Job& job, const ParallelPlan& plan);
/// All-to-all collectives in which each rank sends all of its payload to one other rank. stride: as of make_traffic().
inline Traffic exchange_traffic(int64_t ranks, int64_t calls, int64_t payload_bytes, int64_t stride = 1) {
  auto traffic =
      make_traffic(Collective::all_to_all, static_cast<int>(ranks), calls, payload_bytes, static_cast<int>(stride));
  traffic.wire_bytes = payload_bytes;
  return traffic;
}
/// Elements of all buckets.
int64_t elements_of(const std::vector<FlatLayout>& buckets);
/// Bytes of a parameter in a sum of parameters, which is computed in float32 at least.
inline int64_t wide_bytes(const ParallelPlan& plan) {
  return std::max(bytes_of(plan.master), bytes_of(DType::float32));
}
/// Bytes of a bucket's gradients in ReducerPlan::wire, if they are stored in another dtype.
int64_t cast_bytes(const FlatLayout& bucket, const ParallelPlan& plan);

/// Makes `kind` the reducer of a plan. `given`: options, which are completed with defaults. `wire`: ReducerPlan::wire.
void use_reducer(ParallelPlan& plan, const BuiltInReducer& kind, const nlohmann::json& given, DType wire);
/// Sets ReducerPlan::bytes and traffic of a plan whose units are made, if it has a built-in reducer.
void predict_reducer(const Job& job, ParallelPlan& plan);

}  // namespace runner
