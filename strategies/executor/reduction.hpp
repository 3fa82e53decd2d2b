// The gradients of a plan's units on one rank: flat buffers to which gradients are added, and their sums over ranks.
//
// With an offloaded optimizer the sums are copied to host memory on a side stream, overlapped with backward. The host waits for a
// copy before it adds to the sum, and for all copies in finish().
#pragma once

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/adascale.hpp"
#include "strategies/contract/reducer.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/executor/bound_mesh.hpp"
#include "strategies/program/program.hpp"

namespace runner {

class GradientReduction {
 public:
  /// `layouts`: one for each unit of the model's plan. Gradients arrive on `device`. Their sums stay there until the update, or in host
  /// memory if the plan offloads the optimizer. `reducer` is set if the plan has its own.
  GradientReduction(const ModelSpec& model, const ParallelPlan& plan, BoundMesh mesh, std::vector<FlatLayout> layouts,
                    torch::Device device, std::shared_ptr<Reducer> reducer = {});

  /// Adds the gradient of the parameter in `slot` to its unit's buffer. Calls no collective.
  void add(size_t slot, torch::Tensor gradient);
  /// Adds rows[i] [width] to row ids[i] of the gradient [n, width] of the parameter in `slot`.
  void add_rows(size_t slot, const torch::Tensor& ids, const torch::Tensor& rows);
  /// Start and end of the sum of a unit over the ranks of an axis (Op::start_reduce, Op::wait_reduce). Parameters without a
  /// gradient count as zeros. The unit's buffer is freed at the end of the last sum.
  void start_reduce(size_t unit, Axis axis);
  void wait_reduce(size_t unit, Axis axis);
  /// Waits for the copies to the host.
  void finish();
  /// Elements [begin, begin + count) of the unit's shard of the sums, in the plan's gradient dtype. They belong to one parameter.
  /// Valid after finish().
  torch::Tensor sum(size_t unit, int64_t begin, int64_t count) const;
  /// From here on, adds up the squares of this rank's gradients before they are reduced.
  void measure_own() { measures_ = true; }
  /// Since the last call. Waits for the device.
  OwnSquares take_own_squares();
  /// Frees all gradients, except those of a Reducer.
  void drop();
  /// The buffers of a Reducer's unit: this rank's gradients, and its shard of the sums (undefined if it has all of them).
  const torch::Tensor& gradients(size_t unit) const { return units_[unit].full; }
  const torch::Tensor& shard(size_t unit) const { return units_[unit].sum; }

 private:
  struct Unit {
    FlatLayout layout;
    torch::Tensor full;         ///< [layout.total], from the first gradient until the reduction has ended
    size_t bucket = 0;          ///< of the Reducer, if there is one
    std::vector<bool> arrived;  ///< for each layout item, since the last reduction
    bool reducing = false;      ///< `full` is complete, in the reduce dtype
    TensorSum tensor_sum;
    std::optional<size_t> tied = {};  ///< item of the layout that another stage has, too
    torch::Tensor message;            ///< of the sum over the tensor axis in flight
    torch::Tensor reduced;            ///< [layout.shard], reduce dtype: result of a reduction in flight
    c10::intrusive_ptr<c10d::Work> work;
    torch::Tensor sum;
    StreamMark sum_there;              ///< end of the copy of `sum` to host memory
    std::vector<torch::Tensor> taken;  ///< for each layout item, if gradients are kept as they are: 1-d
  };
  /// The sum of one micro-batch that is being copied to host memory. It is then added to Unit::sum.
  struct Addend {
    size_t unit;
    torch::Tensor values;
    StreamMark there;
  };

  torch::Tensor buffer_of(Unit& unit, size_t item);
  void keep(Unit& unit, size_t item, torch::Tensor gradient);
  void begin_reduction(Unit& unit);
  void measure(const Unit& unit);
  torch::Tensor summed_part(Unit& unit, size_t item);
  void start_tensor_sum(Unit& unit);
  void wait_tensor_sum(Unit& unit);
  void start_tied_sum(Unit& unit);
  void wait_tied_sum(Unit& unit);
  void make_standing_buffers();
  void make_buffer(Unit& unit);
  void zero_gaps(Unit& unit);
  void complete(Unit& unit);
  void take_sums(Unit& unit);
  void move_to_host(size_t u, const torch::Tensor& sum);
  void add_on_host();

  ParallelPlan plan_;
  BoundMesh mesh_;
  torch::Device device_;
  std::shared_ptr<Reducer> reducer_;
  bool takes_;  ///< ParallelPlan::takes_gradients()
  bool measures_ = false;
  torch::Tensor own_squares_;         ///< their sum, a scalar on the device; undefined: 0
  int64_t own_gradients_ = 0;         ///< of each parameter
  std::vector<size_t> trained_;       ///< trained_units()
  std::optional<Transfers> to_host_;  ///< set if sums are kept in host memory
  std::vector<Unit> units_;
  struct Place {
    size_t unit = 0, item = 0;
  };
  std::vector<Place> places_;         ///< of each parameter
  std::optional<Addend> addend_;      ///< only one at a time, to bound memory
  std::optional<size_t> last_moved_;  ///< the unit whose sum was copied to the host last
};

}  // namespace runner
