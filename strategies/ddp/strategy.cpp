// `ddp` on c10d::Reducer, the class that torch.nn.parallel.DistributedDataParallel uses from Python.
// Source: Li et al., PyTorch Distributed (VLDB 2020). The order of calls is that of DistributedDataParallel in torch 2.11.
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <utility>

#include "strategies/contract/dtype.hpp"
#include "strategies/contract/strategy.hpp"
#include "strategies/ddp/entry.hpp"
#include "strategies/ddp/strategy.hpp"

namespace runner {

namespace {

/// Sums a bucket over ranks, in its dtype or, if `wire` is set, in that dtype. It does not divide, because the loss is already
/// scaled to the mean over the global batch.
class SumHook : public c10d::CppCommHookInterface<c10d::ProcessGroup*> {
 public:
  SumHook(c10d::ProcessGroup* group, std::optional<torch::ScalarType> wire)
      : CppCommHookInterface(group), wire_(wire) {}

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

/// Reduces buckets by a CommHook. It calls finish() for all buckets after begin() of the last one, when no more gradients are to
/// be computed. It counts the buckets itself, because GradBucket's index is always the same in the first step with a static
/// graph, where the Reducer reduces all buckets after backward.
class ForeignHook : public c10d::CppCommHookInterface<std::shared_ptr<CommHook>> {
 public:
  ForeignHook(std::shared_ptr<CommHook> hook, size_t buckets)
      : CppCommHookInterface(std::move(hook)), buckets_(buckets) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    torch::NoGradGuard no_grad;
    auto& gradients = bucket.getBufferRef();
    auto work = state_->begin(pending_.size(), gradients);
    auto future = work ? work->getFuture()
                       : c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    pending_.push_back({gradients, future, work != nullptr});
    if (pending_.size() == buckets_) finish();
    return future;
  }

 private:
  struct Pending {
    at::Tensor gradients;
    c10::intrusive_ptr<c10::ivalue::Future> future;
    bool ends_itself;
  };
  void finish() {
    auto pending = std::exchange(pending_, {});
    for (size_t i = 0; i < pending.size(); ++i) {
      state_->finish(i);
      if (!pending[i].ends_itself)
        pending[i].future->markCompleted(c10::IValue(std::vector<at::Tensor>{pending[i].gradients}));
    }
  }

  size_t buckets_;
  std::vector<Pending> pending_;
};

/// A Reducer that keeps the given buckets. They already have the order in which gradients arrive, so the Reducer need not measure
/// that order, broadcast it and rebuild the buckets in the second step.
class Reducer : public c10d::Reducer {
 public:
  Reducer(const std::vector<torch::Tensor>& parameters, const DdpPlan& plan, const ProcessGroup& group)
      : c10d::Reducer(
            parameters, plan.buckets, group, std::vector<bool>(parameters.size(), false), plan.bucket_bytes,
            plan.find_unused_parameters, plan.gradient_as_bucket_view, /*param_names=*/{}, plan.first_bucket_bytes,
            /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/{}) {
    has_rebuilt_bucket_ = true;
  }
};

class Ddp : public Strategy {
 public:
  Ddp(StrategySetup setup, std::shared_ptr<CommHook> comm_hook)
      : Strategy(std::move(setup)), plan_(ddp_plan(job_)), comm_hook_(std::move(comm_hook)) {}

  void module_to_device() override {
    place_whole_copy();
    if (world_.size > 1 || comm_hook_) make_reducer();
  }

  void teardown() override { reducer_.reset(); }

 protected:
  /// Micro-batches before the last one only accumulate: the Reducer is not prepared, so its hooks do nothing (no_sync).
  void begin_micro_batch(bool last) override {
    last_ = last;
    if (!reducer_ || !last) return;
    // Must not be called earlier: the Reducer would count the gradients of micro-batches that only accumulate, and would then
    // expect the same count in every step.
    if (learning_graph_) reducer_->set_static_graph();
    reducer_->prepare_for_forward();
  }

  void before_backward(const torch::Tensor& loss) override {
    if (!reducer_ || !last_) return;
    if (plan_.find_unused_parameters)
      reducer_->prepare_for_backward({loss});
    else
      reducer_->prepare_for_backward({});
  }

  /// In the first backward with a static graph the Reducer's hooks only count gradients, and delay_all_reduce() reduces them.
  void end_micro_batch(bool last) override {
    if (!reducer_ || !last || !learning_graph_) return;
    reducer_->delay_all_reduce();
    learning_graph_ = false;
  }

  std::vector<torch::Tensor> finish_gradients() override {
    std::vector<torch::Tensor> gradients;
    for (auto& slot : model_.slots) {
      if (!slot.grad().defined()) slot.mutable_grad() = torch::zeros_like(slot);  // unused on every rank
      gradients.push_back(slot.grad().view({-1}));
    }
    return gradients;
  }

  /// All ranks have equal gradients, so only those of rank 0 are counted.
  bool counts_in_norm() const override { return world_.rank == 0; }

  /// Frees the gradients. The Reducer then copies new gradients into its buckets, which is faster than adding them to zeros. If
  /// several micro-batches add to views of the buckets, the views must be kept, so they are set to zero instead.
  void after_update(bool) override {
    torch::NoGradGuard no_grad;
    bool keep = reducer_ && job_.most_micro_batches() > 1 && plan_.gradient_as_bucket_view;
    for (auto& slot : model_.slots) {
      if (keep)
        slot.mutable_grad().zero_();
      else
        slot.mutable_grad().reset();
    }
  }

  std::vector<StateTensor> own_state() override {
    return comm_hook_ ? comm_hook_->state() : std::vector<StateTensor>();
  }
  nlohmann::json own_scalars() const override { return comm_hook_ ? comm_hook_->scalars() : nlohmann::json(); }
  void load_own_scalars(const nlohmann::json& scalars) override {
    if (comm_hook_ && !scalars.is_null()) comm_hook_->load_scalars(scalars);
  }

  /// Each rank writes an equal part of every parameter.
  std::pair<int64_t, int64_t> write_range(const LocalParameter& parameter) const override {
    int64_t n = parameter.value.numel();
    return {n * world_.rank / world_.size, n * (world_.rank + 1) / world_.size};
  }

 private:
  void make_reducer() {
    reducer_ = std::make_shared<Reducer>(model_.slots, plan_, world_.group);
    std::optional<torch::ScalarType> wire;
    if (plan_.wire != job_.precision.parameter) wire = scalar_type(plan_.wire);
    if (comm_hook_) {
      prepare_comm_hook();
      reducer_->register_comm_hook(std::make_unique<ForeignHook>(comm_hook_, plan_.buckets.size()));
    } else {
      reducer_->register_comm_hook(std::make_unique<SumHook>(world_.group.get(), wire));
    }
    learning_graph_ = plan_.static_graph;
  }

  void prepare_comm_hook() {
    std::vector<int64_t> elements;
    for (const auto& bucket : plan_.buckets) {
      elements.push_back(0);
      for (size_t slot : bucket) elements.back() += model_.spec.numel(slot);
    }
    comm_hook_->prepare(elements, model_.slots.front().options().requires_grad(false),
                        {[this] { return optimizer_steps(); }, [this] { return loss_scale(); }});
  }

  DdpPlan plan_;
  std::shared_ptr<CommHook> comm_hook_;
  std::shared_ptr<Reducer> reducer_;
  bool last_ = true;
  bool learning_graph_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_ddp(StrategySetup setup) {
  auto comm_hook = setup.comm_hook;
  return std::make_unique<Ddp>(std::move(setup), std::move(comm_hook));
}

}  // namespace runner
