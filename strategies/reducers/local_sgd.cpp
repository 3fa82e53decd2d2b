// post_localSGD_hook: ranks or subgroups train replicas of their own, and average them from time to time.
//
// Steps before start_localSGD_iter sum gradients over all ranks. Later ones sum them over a subgroup, or not at all, and parameters are
// averaged after some of the updates. The state of the optimizer is never averaged. Source: Lin et al., Don't Use Large Mini-Batches,
// Use Local SGD (ICLR 2020); post_localSGD_hook.py, averagers.py and hierarchical_model_averager.py.
#include <fmt/format.h>

#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/base_reducer.hpp"
#include "strategies/reducers/local_sgd_plan.hpp"

namespace runner {

namespace {

class LocalSgd : public BaseReducer {
 public:
  LocalSgd(World& world, const ReducerPlan& plan, const Job& job)
      : BaseReducer(world, plan),
        options_(local_sgd_options().read(plan.options)),
        group_size_(world.size == 1 ? 1 : gradient_group(options_, job)),
        periods_(averagings(options_, world.size)) {}

  nlohmann::json scalars() const override { return {{"updates", updates_}}; }
  void load_scalars(const nlohmann::json& scalars) override {
    if (scalars.is_object()) updates_ = scalars.value("updates", int64_t{0});
  }

  /// PyTorch counts updates from 0 and tests before it counts, so the first average is right after the first local update.
  void after_update() override {
    const int64_t update = updates_++;
    if (update < options_.start_localSGD_iter || world_.size == 1) return;
    const int64_t since = options_.period_group_size_dict.is_object() ? update : update - options_.start_localSGD_iter;
    for (size_t i = periods_.size(); i-- > 0;)
      if (since % periods_[i].period == 0) return average(averaging_[i], periods_[i].group_size);
  }

 protected:
  void prepared() override {
    works_.resize(buckets_.size());
    if (world_.size == 1) return;
    if (group_size_ > 1) subgroup_ = neighbours(world_, group_size_, "local_sgd");
    for (const auto& [period, size] : periods_)
      averaging_.push_back(size > 1 ? neighbours(world_, size, fmt::format("average_{}", period)) : nullptr);
  }

  void start(size_t bucket, torch::Tensor& values) override {
    if (is_global()) {
      works_[bucket] = start_sum(values);
      return;
    }
    if (bucket == 0) {
      share_ = torch::full({1}, host_.share(), torch::dtype(torch::kFloat64).device(world_.device));
      if (subgroup_) share_work_ = start_sum(share_, subgroup_);
    }
    if (subgroup_) works_[bucket] = start_sum(values, subgroup_);
  }

  /// Gradients are those of the mean over the global batch. Divided by the subgroup's part of it, they are those of the mean over the
  /// subgroup's rows.
  void complete(size_t bucket, torch::Tensor& values) override {
    wait(works_[bucket]);
    if (!is_global()) {
      if (bucket == 0) {
        wait(share_work_);
        share_of_group_ = std::exchange(share_, {}).item<double>();
      }
      if (share_of_group_ > 0) values.div_(share_of_group_);
    }
  }

 private:
  bool is_global() const { return updates_ < options_.start_localSGD_iter || world_.size == 1; }

  /// Sums in float32 at least, one bucket after the other, so that only one copy exists.
  void average(const ProcessGroup& group, int64_t size) {
    if (!group) return;
    torch::NoGradGuard no_grad;
    for (const auto& bucket : buckets_) {
      auto sum = bucket.parameters.to(wide_dtype(bucket.parameters));
      auto work = start_sum(sum, group);
      wait(work);
      bucket.parameters.copy_(sum.div_(static_cast<double>(size)));
    }
  }

  LocalSgdOptions options_;
  int64_t group_size_;
  std::vector<Averaging> periods_;
  ProcessGroup subgroup_;
  std::vector<ProcessGroup> averaging_;  ///< for each period
  std::vector<Work> works_;
  torch::Tensor share_;  ///< during a step: this rank's part of the batch, and then the subgroup's
  double share_of_group_ = 1;
  Work share_work_;
  int64_t updates_ = 0;  ///< of the optimizer
};

}  // namespace

std::shared_ptr<Reducer> make_local_sgd(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<LocalSgd>(world, plan, job);
}

}  // namespace runner
