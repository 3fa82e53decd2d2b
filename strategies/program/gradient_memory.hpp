// Predicts the bytes of gradients in a step, as GradientReduction (executor/reduction.hpp) makes and frees them. Torch-free.
#pragma once
#include "strategies/program/memory_peak.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

class GradientMemory {
 public:
  /// All arguments must outlive this object. Adds the buffers of a Reducer to `peak`.
  GradientMemory(const Job& job, const ParallelPlan& plan, MemoryPeak& peak);

  /// A micro-batch begins: copies to the host of the one before have ended.
  void begin_micro_batch();
  /// The gradient of a parameter of `elements` elements has been computed, and then added to its unit's buffer.
  void computed(size_t slot, int64_t elements);
  void stored(size_t slot, int64_t elements);
  /// Op::start_reduce and Op::wait_reduce.
  void start_reduce(size_t unit, Axis axis);
  void wait_reduce(size_t unit, Axis axis);
  void end_backward();

  bool takes() const { return takes_; }

 private:
  struct Unit {
    int64_t unsharded = 0;  ///< bytes of its gradients in the dtype of accumulation
    int64_t sent = 0;       ///< in the dtype of reduction
    int64_t shard = 0;      ///< elements (not bytes) of this rank's shard
    int64_t message = 0;    ///< of the sum over the tensor axis, if it is a tensor of its own
    bool arriving = false;  ///< the buffer exists
    bool adds = false;      ///< the buffer has gradients of earlier micro-batches
    bool reducing = false;  ///< a reduction has started
    bool reduced = false;   ///< the sums exist
  };
  int64_t widened(const Unit& unit, int64_t elements) const;
  int64_t on_the_way(const Unit& unit) const { return plan_.shards() > 1 ? unit.sent / plan_.shards() : 0; }
  void begin_reduction(Unit& unit);
  void start_tensor_sum(Unit& unit);
  void start_hook(size_t u);
  void finish_hook(size_t u);
  void end_reduction(Unit& unit);

  const ParallelPlan& plan_;
  MemoryPeak& peak_;
  bool host_kernels_;
  bool on_device_;  ///< reduced gradients are in device memory
  bool takes_;      ///< ParallelPlan::takes_gradients()
  bool in_place_;   ///< the buffer of a unit's gradients becomes its sums
  std::vector<Unit> units_;
  std::vector<size_t> unit_of_slot_;
  std::vector<bool> added_;     ///< for each parameter: its gradient exists
  int64_t moving_to_host_ = 0;  ///< bytes of the reduced gradients that the last copy to host memory reads
};

}  // namespace runner
