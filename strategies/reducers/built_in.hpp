// Built-in ways to communicate gradients or parameters that differ from a sum: their options, what each keeps, and what it sends. This
// header is torch-free; base_reducer.hpp makes them.
#pragma once
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
  bool replicas_differ = false;  ///< each rank trains a replica of its own
  /// Of a bucket with this layout. `plan` has the options.
  std::function<ReducerPlan::Bytes(const Job& job, const ParallelPlan& plan, const FlatLayout& bucket)> bytes = {};
  /// What a rank sends in a step, averaged over steps if they differ.
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

/// The layouts of the buckets of a plan, in the order of their reduction.
std::vector<FlatLayout> buckets_of(const Job& job, const ParallelPlan& plan);
/// Bytes of a bucket's gradients in ReducerPlan::wire, if they are stored in another dtype.
int64_t cast_bytes(const FlatLayout& bucket, const ParallelPlan& plan);

/// Makes `kind` the reducer of a plan. `given`: options, which are completed with defaults. `wire`: ReducerPlan::wire.
void use_reducer(ParallelPlan& plan, const BuiltInReducer& kind, const nlohmann::json& given, DType wire);
/// Sets ReducerPlan::bytes and traffic of a plan whose units are made, if it has a built-in reducer.
void predict_reducer(const Job& job, ParallelPlan& plan);

}  // namespace runner
