// Estimates the memory and the time of meshes from sums over the blocks of the model, without the programs of their ranks. The search for
// meshes (mesh_search.hpp) plans exactly only those that seem best.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "runner/selection/choice.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// A mesh with a batch and recomputation.
struct MeshTrial {
  int tensor = 1, context = 1, pipeline = 1, data = 1;
  int virtual_stages = 1;
  BatchChoice batch = {};
  int64_t every = 0;   ///< as Candidate::every
  int64_t bytes = 0;   ///< estimate for the rank that needs most, with the context of the device
  double seconds = 0;  ///< estimate for a sequence; if times are not known, an order of preference

  MeshSizes sizes() const;
  int sharing() const { return data * context; }  ///< ranks that share state, as Job::sharing_ranks()
};

/// Estimates for meshes whose tensor and context axes have so many ranks.
class MeshEstimate {
 public:
  /// `form`: of the strategy on the data axis, which keeps parameters gathered in a pipeline and shards them otherwise. `request` must
  /// outlive this object.
  MeshEstimate(const SelectionRequest& request, const Form& form, int tensor, int context);

  /// The part of the matrices and of the rows that a rank has, of all blocks.
  const std::shared_ptr<const ModelSpec>& part() const { return part_; }
  /// A job of this kind, for StepClock::rates.
  const Job& job() const { return job_; }
  int64_t memory(const MeshTrial& trial);
  /// Seconds of a step; nullopt: a bandwidth is not known.
  std::optional<double> seconds(const MeshTrial& trial, const Rates& rates);

 private:
  /// A micro-batch that goes through all blocks of one rank.
  struct Pass {
    StepLoad load;
    int64_t layers = 0, first = 0, last = 0;  ///< bytes kept for backward: by the layers, the embedding, and the head
    int64_t working = 0;                      ///< and those that exist in addition while a block runs, at most
  };
  /// A micro-batch that goes through a model without layers, or with one layer.
  struct ShortPass {
    StepLoad load = {};
    int64_t layer = 0, first = 0, last = 0, working = 0;
  };
  /// The states of the parameters of the layers, of the embedding, or of the head.
  struct States {
    StateBytes bytes = {};
    int64_t elements = 0, largest_each = 0;  ///< largest_each: of a layer
  };
  const Pass& pass(int64_t micro_batch_size, int64_t every);
  ShortPass short_pass(int64_t layers, int64_t micro_batch_size, bool recompute) const;
  void add_states();
  /// The share of a micro-batch that the slowest rank computes.
  double slowest_share(const MeshTrial& trial) const;
  /// Elements of the rank with most.
  int64_t elements(const MeshTrial& trial) const;
  std::vector<Traffic> traffic_of_data(const MeshTrial& trial) const;

  const SelectionRequest& request_;
  std::shared_ptr<const ModelSpec> part_;
  Job job_;
  ParallelPlan plan_;  ///< of a pipeline with several data ranks, without units: only its dtypes are used
  States layers_, first_, last_;
  States copied_;     ///< of the embedding that the head shares: the last rank of a pipeline has a copy
  double units_ = 0;  ///< FLOPs of all blocks relative to those of half a layer
  int64_t message_bytes_per_sequence_ = 0;  ///< between stages
  MemoryLimit limit_;
  std::map<std::pair<int64_t, int64_t>, Pass> passes_;  ///< by micro-batch and `every`
  /// By micro-batch: without layers, with one layer, and with one that is recomputed.
  std::map<int64_t, std::array<ShortPass, 3>> short_passes_;
};

}  // namespace runner
