// The base class of the built-in reducers: the buckets of one rank, casts of gradients, and sums over ranks.
#pragma once
#include "strategies/collective/world.hpp"
#include "strategies/contract/reducer.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

using Work = c10::intrusive_ptr<c10d::Work>;

class BaseReducer : public Reducer {
 public:
  BaseReducer(World& world, ReducerPlan plan) : world_(world), plan_(std::move(plan)) {}

  void prepare(std::vector<Bucket> buckets, const torch::TensorOptions& options, Host host) final;
  void begin(size_t bucket) final;
  void finish(size_t bucket) final;
  bool replicas_differ() const final { return plan_.replicas_differ && world_.size > 1; }
  std::string name() const final { return plan_.name; }
  std::vector<StateTensor> state() override { return {}; }
  nlohmann::json scalars() const override { return nullptr; }
  void load_scalars(const nlohmann::json&) override {}

 protected:
  virtual void prepared() {}
  /// The dtype in which the derived class gets gradients: that of the wire, unless it casts its messages.
  virtual torch::ScalarType dtype_of_values() const;
  /// Starts the exchange of a bucket's gradients.
  virtual void start(size_t bucket, torch::Tensor& values) = 0;
  /// Completes it: `values` are then the sums.
  virtual void complete(size_t bucket, torch::Tensor& values) = 0;

  /// Starts the sum of a tensor over a group; null if the group has one rank.
  static Work start_sum(const torch::Tensor& tensor, const ProcessGroup& group);
  Work start_sum(const torch::Tensor& tensor) const { return start_sum(tensor, world_.group); }
  /// Sends elements of `sent` to one rank of a group, and receives from another one, or the same. All ranks of the group call it, with as
  /// many elements.
  static Work start_exchange(const ProcessGroup& group, int64_t to, const torch::Tensor& sent, int64_t from,
                             const torch::Tensor& received);
  /// Gradients of the mean over the global batch become those of the mean over this rank's rows.
  void to_own_mean(torch::Tensor& gradients) const {
    if (const double share = host_.share(); share > 0) gradients.div_(share);
  }
  static void wait(Work& work) {
    if (work) std::exchange(work, {})->wait();
  }
  torch::Tensor& values(size_t bucket) { return values_[bucket]; }
  /// A tensor that each rank has, with other values: "reducer/NAME".
  StateTensor own_piece(const std::string& name, const torch::Tensor& tensor) const;
  /// A tensor that is equal on all ranks.
  StateTensor shared_piece(const std::string& name, const torch::Tensor& tensor) const;

  World& world_;
  ReducerPlan plan_;
  std::vector<Bucket> buckets_;
  Host host_;

 private:
  std::vector<torch::Tensor> values_;  ///< of each bucket, during its exchange
};

/// Divides the ranks into groups of `size` neighbours, and returns the group of this rank. All ranks call it. `size` divides the world.
ProcessGroup neighbours(World& world, int64_t size, const std::string& name);

/// Makes the Reducer of a plan with ParallelPlan::reducer.
std::shared_ptr<Reducer> make_reducer(World& world, const ReducerPlan& plan, const Job& job);

// Each is in a file of its own.
std::shared_ptr<Reducer> make_quantization(World& world, const ReducerPlan& plan, int64_t row);
std::shared_ptr<Reducer> make_power_sgd(World& world, const ReducerPlan& plan, bool batched);
std::shared_ptr<Reducer> make_local_sgd(World& world, const ReducerPlan& plan, const Job& job);
std::shared_ptr<Reducer> make_adasum(World& world, const ReducerPlan& plan, const Job& job);
std::shared_ptr<Reducer> make_hierarchical_sum(World& world, const ReducerPlan& plan, const Job& job);
std::shared_ptr<Reducer> make_bytegrad(World& world, const ReducerPlan& plan, const Job& job);
std::shared_ptr<Reducer> make_qadam(World& world, const ReducerPlan& plan, const Job& job);
std::shared_ptr<Reducer> make_async_average(World& world, const ReducerPlan& plan);
std::shared_ptr<Reducer> make_decentralized(World& world, const ReducerPlan& plan, const Job& job);
std::shared_ptr<Reducer> make_low_precision_decentralized(World& world, const ReducerPlan& plan, const Job& job);

}  // namespace runner
