// The hooks of a recipe in a real training: what `ctx` is in the worker, and how ranks agree on what hooks ask for.
//
// Every call of a hook ends with one exchange over the control group (exchange.hpp), which carries what it asked for
// (stop, checkpoint, skip_step, set_lr, restore), whether it failed, and what it logged with a sync: so whatever a hook
// of one rank decides holds on all ranks from that moment on, and so does the end of a hook under on_error = "disable".
// One rank alone exchanges nothing. A hook's `loss` is the exception: ranks call it as often as they have chunks of
// tokens, so it meets nobody and asks for nothing.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"
#include "runner/launch/events.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/training.hpp"
#include "runner/train/hooks/exchange.hpp"
#include "runner/train/hooks/garbage.hpp"
#include "runner/train/hooks/metrics.hpp"
#include "runner/train/hooks/snapshot.hpp"
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
  std::string cache_dir = {};  ///< where the tokenizer is, for ctx:generate
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
    last_step_ = false;
  }
  void set_max_steps(int64_t steps) { max_steps_ = steps; }
  void set_last_step(bool last) { last_step_ = last; }
  /// The schedule's factor on optimizer.lr for the step that comes.
  void set_lr_factor(double factor) { lr_factor_ = factor; }
  void set_metric(const std::string& name, double value) { metrics_->at(name).second.value = value; }

  /// Collective. Throws lua::HookError on all ranks where a hook failed on one and on_error is "stop".
  /// The three moments inside a step are called through the strategy.
  void call(Moment moment);
  /// on_exception, on this rank alone. What goes wrong in it is only reported.
  void call_exception(const std::string& what) noexcept;

  /// After a validation, also one that a stop has ended: puts back what hooks have done to parameters since
  /// on_validation_start. Collective.
  void end_validation();

  /// {hook: its state} of rank 0 for a checkpoint, after on_save_checkpoint; appends this rank's pieces of the tensors
  /// in states, "hook/HOOK/PLACE". Collective.
  nlohmann::json save(std::vector<StateTensor>& tensors);
  /// What a checkpoint keeps of hooks beside their states: the metrics' last values, which hooks have failed and are
  /// left out, and the sizes of artifacts: what was added since is cut off, because it will be made again. Given back
  /// before anything else that hooks see.
  nlohmann::json history() const;
  void restore_history(const nlohmann::json& saved);
  /// Files that hooks have written to since the last call: a checkpoint that knows their sizes needs their bytes.
  std::vector<fs::path> take_written_files();
  /// Collective. Every rank gets the same states; tensors from `checkpoint`, what it holds of them. Throws
  /// Error(environment) where one is missing or has another shape.
  void load(const nlohmann::json& saved, const Checkpoint& checkpoint);

  // ---- what hooks asked for; equal on all ranks
  double lr_factor() const { return lr_factor_; }
  /// The reason, once a hook has asked for the end; else empty.
  const std::string& stop_reason() const { return stop_reason_; }
  /// Whether a checkpoint was asked for since the last call.
  bool take_checkpoint() { return std::exchange(checkpoint_, false); }
  /// Wall time that calls of hooks have taken on this rank, with what ranks agree on after them; without `loss`.
  double seconds() const { return seconds_; }

 private:
  // ---- lua::Training
  int64_t step() override { return step_; }
  int64_t epoch() override { return epoch_; }
  std::optional<int64_t> max_steps() override { return max_steps_; }
  bool is_last_step() override { return last_step_; }
  double loss() override;
  double lr() override;
  nlohmann::json metrics() override { return metrics_->to_json(); }
  lua::Reference recipe() override;
  std::string exception() override { return exception_; }
  lua::HookWorld& world() override { return *this; }
  void log(const std::string& name, double value, const std::string& sync) override;
  std::string artifact(const std::string& name) override;
  void append_artifact(const std::string& name, const std::string& text) override;
  void stop(const std::string& reason) override;
  void checkpoint() override;
  void set_lr(double lr) override;
  void skip_step() override;
  std::vector<std::string> parameter_names() override;
  lua::Value parameter(const std::string& name) override;
  lua::Value gradient(const std::string& name) override;
  std::shared_ptr<lua::Snapshot> snapshot() override;
  nlohmann::json generate(const lua::Generation& wanted) override;

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
    std::optional<int64_t> restored;  ///< the step of the snapshot
    std::function<void()> restore;
    struct Logged {
      Metrics::Named* metric;
      double value;
    };
    struct Synced : Logged {
      std::string sync;
    };
    std::vector<Logged> logged;
    std::vector<Synced> synced;  ///< ranks exchange these first
  };

  lua::HookSet make_hooks();
  lua::HookSet::Talk::Failure agree(const std::string& hook, const std::string& failure);
  /// What the ranks' wishes have wrong together; empty: nothing.
  std::string contradiction(const HookExchange::Rows& rows) const;
  void grant(const std::string& hook, Wishes wishes, const HookExchange::Rows& rows);
  void publish(const std::string& hook, std::vector<Wishes::Logged> all);
  /// Throws lua::ScriptMistake unless `allowed` holds for the moment that hooks are called for; never in `loss`.
  void require_moment(const char* what, bool (*allowed)(Moment), const char* when) const;
  torch::Tensor token_loss(const torch::Tensor& logits, const torch::Tensor& targets);
  const Tokenizer& tokenizer();
  std::vector<int64_t> prompt_of(const lua::Generation& wanted, int64_t vocab);
  fs::path artifact_path(const std::string& name) const { return setup_.run_dir / "artifacts" / name; }
  void restore_artifacts(const nlohmann::json& saved);
  /// Remembers what a parameter was before a hook of a validation wrote to it.
  void keep_for_training(const StateTensor& place);
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
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::string exception_;
  std::optional<Moment> moment_;          ///< the one that hooks are called for now
  const Gradients* gradients_ = nullptr;  ///< in on_before_optimizer_step
  double gradient_scale_ = 1;
  Wishes wishes_;
  std::string stop_reason_;
  bool checkpoint_ = false, skip_ = false;
  std::optional<int64_t> max_steps_;
  bool last_step_ = false, in_loss_ = false;
  double seconds_ = 0;
  SnapshotHost snapshots_;
  std::map<std::string, int64_t> artifacts_;  ///< rank 0's, by name: their bytes
  std::set<std::string> written_;             ///< artifacts, since take_written_files()
  std::unique_ptr<Tokenizer> tokenizer_;
  struct Kept {
    StateTensor place;
    torch::Tensor values;
  };
  std::map<std::string, Kept> kept_;  ///< parameters as training left them, in a validation
  bool lent_ = false;                 ///< some rank has written to one; equal on all ranks
  std::string tensors_of_states_;     ///< their names, since ranks last agreed
  TensorGarbage garbage_;
  // ---- of one call of a hook
  std::vector<std::weak_ptr<lua::Object>> handles_;
  std::optional<std::vector<StateTensor>> parameter_pieces_, gradient_pieces_;
};

/// A moment inside a step: parameters hold still.
bool inside_step(lua::Moment moment);

/// Null where the recipe asks for no hooks.
std::unique_ptr<TrainingHooks> make_training_hooks(const TrainingHooksSetup& setup);

}  // namespace runner
