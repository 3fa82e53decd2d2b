// The hooks of a recipe in a real training: what `ctx` is in the worker, and how ranks agree on what hooks ask for.
//
// Every call of a hook ends with one exchange over the control group (exchange.hpp), which carries what it asked for
// (stop, checkpoint, skip_step, set_lr), whether it failed, and what it logged with a sync: so whatever a hook of one
// rank decides holds on all ranks from that moment on, and so does the end of a hook under on_error = "disable". One
// rank alone exchanges nothing.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"
#include "runner/launch/events.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/training.hpp"
#include "runner/train/hooks/exchange.hpp"
#include "runner/train/hooks/tensor.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

struct TrainingHooksSetup {
  const Recipe& recipe;  ///< resolved
  World& world;
  Strategy& strategy;
  const ModelSpec& model;
  EventSink& events;
  fs::path run_dir;
};

class TrainingHooks : private lua::Training, private lua::HookWorld, private StepObserver {
 public:
  using Moment = lua::Moment;

  /// Loads the hook files. Throws RecipeError with what is wrong with them. Every rank makes one, and calls alike.
  explicit TrainingHooks(TrainingHooksSetup setup);
  ~TrainingHooks() override;
  TrainingHooks(const TrainingHooks&) = delete;

  // ---- what hooks see, told by the trainer
  void set_progress(int64_t step, int64_t epoch) {
    step_ = step;
    epoch_ = epoch;
  }
  /// The schedule's factor on optimizer.lr for the step that comes.
  void set_lr_factor(double factor) { lr_factor_ = factor; }
  void set_metric(const std::string& name, double value) { metrics_[name] = value; }

  /// Collective. Throws lua::HookError on all ranks where a hook failed on one and on_error is "stop".
  /// The three moments inside a step are called through the strategy.
  void call(Moment moment);
  /// on_exception, on this rank alone. What goes wrong in it is only reported.
  void call_exception(const std::string& what) noexcept;

  /// {hook: its state} of rank 0 for a checkpoint, after on_save_checkpoint. Collective.
  nlohmann::json save();
  /// Collective. Every rank gets the same states.
  void load(const nlohmann::json& saved);

  // ---- what hooks asked for; equal on all ranks
  double lr_factor() const { return lr_factor_; }
  /// The reason, once a hook has asked for the end; else empty.
  const std::string& stop_reason() const { return stop_reason_; }
  /// Whether a checkpoint was asked for since the last call.
  bool take_checkpoint() { return std::exchange(checkpoint_, false); }

 private:
  // ---- lua::Training
  int64_t step() override { return step_; }
  int64_t epoch() override { return epoch_; }
  double loss() override;
  double lr() override;
  nlohmann::json metrics() override { return metrics_; }
  lua::Reference recipe() override;
  std::string exception() override { return exception_; }
  lua::HookWorld& world() override { return *this; }
  void log(const std::string& name, double value, const std::string& sync) override;
  std::string artifact(const std::string& name) override;
  void stop(const std::string& reason) override;
  void checkpoint() override;
  void set_lr(double lr) override;
  void skip_step() override;
  std::vector<std::string> parameter_names() override;
  lua::Value parameter(const std::string& name) override;
  lua::Value gradient(const std::string& name) override;

  // ---- lua::HookWorld
  int rank() override { return exchange_.rank(); }
  int size() override { return exchange_.size(); }
  double all_reduce(double value, const std::string& operation) override;
  std::vector<double> all_gather(double value) override;
  double broadcast(double value, int root) override;
  void barrier() override { exchange_.meet("barrier"); }

  // ---- StepObserver
  void before_backward() override;
  void after_backward() override;
  Decision before_optimizer_step(const Gradients& gradients, double scale, double lr_factor) override;

  /// What one call of a hook asks for on this rank.
  struct Wishes {
    bool checkpoint = false, skip = false;
    std::optional<std::string> stop;
    std::optional<double> lr;
    struct Logged {
      std::string name, sync;
      double value;
    };
    std::vector<Logged> logged, synced;  ///< without and with an exchange
  };

  lua::HookSet make_hooks();
  std::string agree(const std::string& hook, const std::string& failure);
  /// What the ranks' wishes have wrong together; empty: nothing.
  std::string contradiction(const HookExchange::Rows& rows) const;
  void grant(const std::string& hook, const Wishes& wishes, const HookExchange::Rows& rows);
  void publish(const Wishes& wishes);
  void require_moment(const char* what, bool allowed, const char* when) const;
  /// Handles of parameters and gradients end with the call that got them.
  void end_handles();
  const std::vector<int64_t>& shape_of(const std::string& parameter) const;
  lua::Value handle(HookTensor::Kind kind, const std::string& name, const std::vector<StateTensor>& pieces,
                    double divisor);

  TrainingHooksSetup setup_;
  HookExchange exchange_;
  HookTensorHost tensors_;
  lua::HookSet hooks_;
  std::shared_ptr<lua::Object> context_;
  std::optional<lua::Reference> recipe_;
  int64_t step_ = 0, epoch_ = 0;
  double lr_factor_ = 1;
  nlohmann::json metrics_ = nlohmann::json::object();
  std::string exception_;
  std::optional<Moment> moment_;          ///< the one that hooks are called for now
  const Gradients* gradients_ = nullptr;  ///< in on_before_optimizer_step
  double gradient_scale_ = 1;
  Wishes wishes_;
  std::string stop_reason_;
  bool checkpoint_ = false, skip_ = false;
  // ---- of one call of a hook
  std::vector<std::weak_ptr<lua::Object>> handles_;
  std::optional<std::vector<StateTensor>> parameter_pieces_, gradient_pieces_;
};

/// Null where the recipe asks for no hooks.
std::unique_ptr<TrainingHooks> make_training_hooks(const TrainingHooksSetup& setup);

}  // namespace runner
