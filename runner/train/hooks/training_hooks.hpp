// The hooks of a recipe in a training: the worker's `ctx`, and how ranks agree on what hooks request.
//
// Every call of a hook ends with one exchange over the control group (exchange.hpp). It carries the requests (stop,
// checkpoint, skip_step, set_lr, restore), whether the call failed, and values that were logged with a sync. So a
// request of one rank takes effect on all ranks at the same point, and on_error = "disable" disables a hook on all
// ranks. With one rank, nothing is exchanged. A hook's `loss` is an exception: the number of its calls differs between
// ranks, because it is called for each chunk of tokens. So it cannot exchange or request anything.
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
#include "runner/train/hooks/hooks.hpp"
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
  std::string cache_dir = {};  ///< folder of the tokenizer, for ctx:generate
};

class TrainingHooks : public Hooks, private lua::Training, private lua::HookWorld, private StepObserver {
 public:
  using Moment = lua::Moment;

  /// Loads the hook files. Throws RecipeError with their mistakes. Every rank makes one and makes the same calls.
  explicit TrainingHooks(TrainingHooksSetup setup);
  ~TrainingHooks() override;
  TrainingHooks(const TrainingHooks&) = delete;

  void set_metric(const std::string& name, double value) override { metrics_->at(name).second.value = value; }
  void call(Moment moment, const Progress& progress) override {
    progress_ = progress;
    call(moment);
  }
  void call_exception(const std::string& what) noexcept override;
  void end_validation() override;
  std::string stop_reason() const override { return stop_reason_; }
  bool take_checkpoint() override { return std::exchange(checkpoint_, false); }
  void save(TrainerState& state, Checkpointer::More& more) override;
  void restore_history(const TrainerState& state) override;
  void restore_stop(const std::string& reason) override { stop_reason_ = reason; }
  void load(const Checkpoint& checkpoint, const Progress& progress) override;

  /// Wall time of this rank in calls of hooks, with the exchanges after them, without calls of `loss`.
  /// scripts/bench/lua measures it.
  double seconds() const { return seconds_; }

 private:
  // ---- lua::Training
  int64_t step() override { return progress_.step; }
  int64_t epoch() override { return progress_.epoch; }
  std::optional<int64_t> max_steps() override { return progress_.max_steps; }
  bool is_last_step() override { return progress_.last_step; }
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

  /// Requests of one call of a hook on this rank.
  struct Requests {
    bool checkpoint = false, skip = false;
    std::optional<std::string> stop;
    std::optional<double> lr;
    std::optional<int64_t> restored;  ///< step of the snapshot to restore
    std::function<void()> restore;
    struct Logged {
      Metrics::Named* metric;
      double value;
    };
    struct Synced : Logged {
      std::string sync;
    };
    std::vector<Logged> logged;
    std::vector<Synced> synced;  ///< exchanged between ranks before they are logged
  };

  lua::HookSet make_hooks();
  void call(Moment moment);
  lua::HookSet::Talk::Failure agree(const std::string& hook, const std::string& failure);
  /// Describes how the requests of ranks contradict each other; empty if they do not.
  std::string contradiction(const HookExchange::Rows& rows) const;
  void grant(const std::string& hook, Requests requests, const HookExchange::Rows& rows);
  void publish(const std::string& hook, std::vector<Requests::Logged> all);
  /// Throws lua::ScriptMistake inside `loss`, and if `allowed` is false for the current moment.
  void require_moment(const char* what, bool (*allowed)(Moment), const char* when) const;
  torch::Tensor token_loss(const torch::Tensor& logits, const torch::Tensor& targets);
  const Tokenizer& tokenizer();
  std::vector<int64_t> prompt_of(const lua::Generation& wanted, int64_t vocab);
  fs::path artifact_path(const std::string& name) const { return setup_.run_dir / "artifacts" / name; }
  void restore_artifacts(const nlohmann::json& saved);
  /// Saves a parameter's values before a hook writes to it during a validation.
  void keep_for_training(const StateTensor& place);
  /// Invalidates the handles of parameters and gradients at the end of a hook's call.
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
  Progress progress_;
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::string exception_;
  std::optional<Moment> moment_;          ///< the moment of the current call of hooks
  const Gradients* gradients_ = nullptr;  ///< set during on_before_optimizer_step
  double gradient_scale_ = 1;
  Requests requests_;
  std::string stop_reason_;
  bool checkpoint_ = false, skip_ = false;
  bool in_loss_ = false;
  double seconds_ = 0;
  SnapshotHost snapshots_;
  std::map<std::string, int64_t> artifacts_;  ///< rank 0 only: bytes of each artifact, by name
  std::set<std::string> written_;             ///< artifacts written since take_written_files()
  std::unique_ptr<Tokenizer> tokenizer_;
  struct Kept {
    StateTensor place;
    torch::Tensor values;
  };
  std::map<std::string, Kept> kept_;  ///< original values of parameters that hooks changed in this validation
  bool lent_ = false;                 ///< a rank has changed one; equal on all ranks
  std::string tensors_of_states_;     ///< names of the tensors in states, since the last exchange
  TensorGarbage garbage_;
  // ---- during one call of a hook
  std::vector<std::weak_ptr<lua::Object>> handles_;
  std::optional<std::vector<StateTensor>> parameter_pieces_, gradient_pieces_;
};

/// Whether the moment is inside a step, where parameters must not change.
bool inside_step(lua::Moment moment);

/// The hooks of the recipe; Hooks, which does nothing, if it has none.
std::unique_ptr<Hooks> make_training_hooks(const TrainingHooksSetup& setup);

}  // namespace runner
