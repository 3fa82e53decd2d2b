// `ddp` on c10d's own Reducer: the class that torch.nn.parallel.DistributedDataParallel drives from Python.
// Source: Li et al., PyTorch Distributed (VLDB 2020); order of calls in mechanisms of the Reducer, torch 2.11.
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "runner/base/error.hpp"
#include "strategies/contract/strategy.hpp"
#include "strategies/ddp/strategy.hpp"

namespace runner {

namespace {

/// Sums a bucket over ranks, in its own dtype or compressed to 16 bits on the way. No division: the loss is already a share of
/// the global mean.
class SumHook : public c10d::CppCommHookInterface<c10d::ProcessGroup*> {
 public:
  SumHook(c10d::ProcessGroup* group, std::optional<torch::ScalarType> wire) : CppCommHookInterface(group), wire_(wire) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    torch::NoGradGuard no_grad;
    auto& gradients = bucket.getBufferRef();
    std::vector<at::Tensor> tensors{wire_ ? gradients.to(*wire_) : gradients};
    auto future = state_->allreduce(tensors, {c10d::ReduceOp::SUM})->getFuture();
    if (!wire_) return future;
    return future->then(
        [gradients](c10::ivalue::Future& done) {
          gradients.copy_(c10d::detail::parseCppCommHookResult(done.value()));
          return c10::IValue(gradients);
        },
        future->elementType());
  }

 private:
  std::optional<torch::ScalarType> wire_;
};

class Ddp : public Strategy {
 public:
  using Strategy::Strategy;

  void module_to_device() override {
    place_whole_copy();
    if (world_.size > 1) make_reducer();
  }

  void teardown() override { reducer_.reset(); }

 protected:
  /// Micro-batches before the last only accumulate: the Reducer stays unprepared and its hooks do nothing (no_sync).
  void begin_micro_batch(bool last) override {
    last_ = last;
    if (!reducer_ || !last) return;
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();  // throws during backward, so here
  }

  void before_backward(const torch::Tensor& loss) override {
    if (!reducer_ || !last_) return;
    if (find_unused_)
      reducer_->prepare_for_backward({loss});
    else
      reducer_->prepare_for_backward({});
  }

  std::vector<torch::Tensor> finish_gradients() override {
    std::vector<torch::Tensor> gradients;
    for (auto& slot : model_.slots) {
      if (!slot.grad().defined()) slot.mutable_grad() = torch::zeros_like(slot);  // unused on every rank
      gradients.push_back(slot.grad().view({-1}));
    }
    return gradients;
  }

  /// Replicas are equal: rank 0's gradients count.
  bool counts_in_norm() const override { return world_.rank == 0; }

  /// Gradients are dropped: the Reducer then copies what autograd hands over into its buckets, which costs less than zeroing and
  /// adding. Views into buckets that several micro-batches add to must stay, so those are zeroed.
  void after_update() override {
    torch::NoGradGuard no_grad;
    bool keep = reducer_ && job_.accumulation > 1 && job_.options.value("gradient_as_bucket_view", true);
    for (auto& slot : model_.slots) {
      if (keep)
        slot.mutable_grad().zero_();
      else
        slot.mutable_grad().reset();
    }
  }

  /// Each rank writes an equal part of every parameter.
  std::pair<int64_t, int64_t> write_range(const LocalParameter& parameter) const override {
    int64_t n = parameter.value.numel();
    return {n * world_.rank / world_.size, n * (world_.rank + 1) / world_.size};
  }

 private:
  void make_reducer() {
    find_unused_ = job_.options.value("find_unused_parameters", false);
    auto cap = static_cast<size_t>(job_.options.value("bucket_cap_mb", 25.0) * 1024 * 1024);
    size_t first = std::min<size_t>(c10d::kDefaultFirstBucketBytes, cap);
    std::vector<torch::Tensor> parameters = model_.slots;
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {first, cap});
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters, std::move(buckets), world_.group, std::vector<bool>(parameters.size(), false), static_cast<int64_t>(cap),
        find_unused_, job_.options.value("gradient_as_bucket_view", true), std::unordered_map<size_t, std::string>{},
        static_cast<int64_t>(first), /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
        std::vector<int64_t>{});
    auto hook = job_.options.value("ddp_comm_hook", std::string("none"));
    std::optional<torch::ScalarType> wire;
    if (hook == "fp16_compress") wire = torch::kHalf;
    if (hook == "bf16_compress") wire = torch::kBFloat16;
    reducer_->register_comm_hook(std::make_unique<SumHook>(world_.group.get(), wire));
    if (job_.options.value("static_graph", false)) reducer_->set_static_graph();
  }

  std::shared_ptr<c10d::Reducer> reducer_;
  bool find_unused_ = false;
  bool last_ = true;
};

}  // namespace

std::unique_ptr<Strategy> make_ddp(StrategySetup setup) { return std::make_unique<Ddp>(std::move(setup)); }

}  // namespace runner
