// The hooks of a recipe in a training: calls them, and makes their requests equal on all ranks.
//
// Every call of a hook ends with an exchange over the control group (exchange.hpp). It carries the requests (stop,
// checkpoint, skip_step, set_lr, restore) and whether the call failed. Reasons, failures and values that were logged with
// a sync need a further exchange. So a request of one rank takes effect on all ranks at the same point, and
// on_error = "disable" disables a hook on all ranks. With one rank, nothing is exchanged. A hook's `loss` is an exception:
// it can request nothing, and its calls do not end with an exchange, because it is called for each chunk of tokens, whose
// number differs between ranks. Its script can exchange values only if each rank calls it once per micro-batch.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runner/train/hooks/hook_context.hpp"
#include "runner/train/hooks/hooks.hpp"

namespace runner {

class TrainingHooks : public Hooks, private StepObserver {
 public:
  using Moment = lua::Moment;

  /// Loads the hook files. Throws RecipeError with their mistakes. Every rank makes one and makes the same calls.
  explicit TrainingHooks(TrainingHooksSetup setup);
  ~TrainingHooks() override;
  TrainingHooks(const TrainingHooks&) = delete;

  void call(Moment moment, const TrainingProgress& progress) override;
  void call_exception(const std::string& what) noexcept override;
  void set_metric(const std::string& name, double value) override { metrics_->at(name).second.value = value; }
  void end_validation() override;
  std::string stop_reason() const override { return stop_reason_; }
  bool take_checkpoint() override { return std::exchange(checkpoint_, false); }
  void save(TrainerState& state, Checkpointer::More& more) override;
  void restore_history(const TrainerState& state) override;
  void restore_stop(const std::string& reason) override { stop_reason_ = reason; }
  void load(const Checkpoint& checkpoint, const TrainingProgress& progress) override;

  /// Wall time of this rank in calls of hooks, with the exchanges after them, without calls of `loss`.
  /// scripts/bench/lua measures it.
  double seconds() const { return seconds_; }

 private:
  // ---- StepObserver
  bool sees_gradients() const override;
  void before_backward() override { call(Moment::on_before_backward); }
  void after_backward() override { call(Moment::on_after_backward); }
  Decision before_optimizer_step(const Gradients& gradients, double scale, double lr_factor) override;

  lua::HookSet make_hooks();
  void call(Moment moment);
  /// Ends a call of a hook on all ranks: see lua::HookSet::Talk::agree.
  lua::HookSet::Talk::Failure agree(const std::string& hook, const std::string& failure);
  void grant(const std::string& hook, HookRequests requests, const std::vector<CallEnd>& ends);
  void publish(const std::string& hook, std::vector<HookRequests::Logged> all);
  torch::Tensor token_loss(const torch::Tensor& logits, const torch::Tensor& targets);
  /// Saves a parameter's values before a hook writes to it during a validation.
  void keep_for_training(const StateTensor& place);

  TrainingHooksSetup setup_;
  HookExchange exchange_;
  TensorHost tensors_;
  HookCall call_;
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  lua::HookSet hooks_;
  HookContext context_;
  std::string stop_reason_;
  bool checkpoint_ = false, skip_ = false;  ///< requested on a rank; equal on all ranks
  double seconds_ = 0;
  struct Kept {
    StateTensor place;
    torch::Tensor values;
  };
  std::map<std::string, Kept> kept_;  ///< original values of parameters that hooks changed in this validation
  bool lent_ = false;                 ///< a rank has changed one; equal on all ranks
  std::string tensors_of_states_;     ///< names of the tensors in states, since the last exchange
};

/// The hooks of the recipe; Hooks, which does nothing, if it has none.
std::unique_ptr<Hooks> make_training_hooks(const TrainingHooksSetup& setup);

}  // namespace runner
