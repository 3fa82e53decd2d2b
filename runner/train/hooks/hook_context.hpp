// A hook's `ctx` in the worker: what hooks read and request, and the handles of parameters and gradients that they get.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"
#include "runner/launch/events.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/training.hpp"
#include "runner/train/hooks/exchange.hpp"
#include "runner/train/hooks/hook_requests.hpp"
#include "runner/train/hooks/hooks.hpp"
#include "runner/train/hooks/metrics.hpp"
#include "runner/train/scripts/tensor.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

// A copy of this rank's training state in host memory, which a hook takes and restores.

struct SnapshotHost {
  Strategy& strategy;
  std::function<int64_t()> step;
  std::function<void(const char* what)> require_allowed;  ///< throws lua::ScriptMistake inside a step
  /// Requests that the snapshot of step `taken` is restored. When all ranks have requested it, the host calls `apply`
  /// and then state_loaded().
  std::function<void(int64_t taken, std::function<void()> apply)> restore;
};

/// Takes a snapshot of the current state. `host` must outlive it.
std::shared_ptr<lua::Snapshot> take_snapshot(const SnapshotHost& host);

/// The files that hooks write in the run's folder. Rank 0 writes them; a resumed run continues them where its checkpoint
/// was.
class Artifacts {
 public:
  Artifacts(fs::path folder, int rank) : folder_(std::move(folder)), rank_(rank) {}

  fs::path path(const std::string& name) const { return folder_ / name; }
  /// Creates the empty file. Returns false if it is known, and on ranks above 0. Throws lua::ScriptMistake.
  bool create(const std::string& name);
  /// Throws lua::ScriptMistake if not all of the text could be written.
  void append(const std::string& name, const std::string& text);
  /// Files that were written to since the last call. They must be durable before a checkpoint with their sizes.
  std::vector<fs::path> take_written();
  /// {name: bytes}, for a checkpoint.
  nlohmann::json sizes() const { return bytes_; }
  /// Truncates the files to these sizes. null is from an older checkpoint without sizes: all files keep theirs.
  void restore(const nlohmann::json& sizes);

 private:
  fs::path folder_;
  int rank_;
  std::map<std::string, int64_t> bytes_;  ///< of each artifact, by name
  std::set<std::string> written_;         ///< since take_written()
};

struct TrainingHooksSetup {
  const Recipe& recipe;  ///< resolved
  World& world;
  Strategy& strategy;
  const ModelSpec& model;
  EventSink& events;
  fs::path run_dir;
  std::string cache_dir = {};  ///< folder of the tokenizer, for ctx:generate
};

/// The current call of a hook. The caller of hooks sets it; `ctx` reads it and adds requests.
struct HookCall {
  TrainingProgress progress;
  std::optional<lua::Moment> moment;                   ///< none outside calls
  bool in_loss = false;                                ///< inside a hook's `loss`
  std::string exception;                               ///< the error text in on_exception
  const StepObserver::Gradients* gradients = nullptr;  ///< set during on_before_optimizer_step
  double gradient_scale = 1;
  HookRequests requests;
};

/// Whether the moment is inside a step, where parameters must not change.
bool inside_step(lua::Moment moment);

class HookContext : private lua::Training {
 public:
  /// The arguments must outlive it. `state` is that of the hooks' scripts.
  HookContext(const TrainingHooksSetup& setup, HookCall& call, HookExchange& exchange, TensorHost& tensors,
              Metrics& metrics, lua::State& state);
  ~HookContext() override;
  HookContext(const HookContext&) = delete;

  lua::Value value() const { return lua::Value(object_); }
  Artifacts& artifacts() { return artifacts_; }
  /// Invalidates the handles of parameters and gradients. Call it at the end of a hook's call.
  void end_handles();
  std::vector<std::string> parameter_names() override;
  const ParameterSpec& spec_of(const std::string& parameter) const;

 private:
  using Moment = lua::Moment;

  // ---- lua::Training
  int64_t step() override { return call_.progress.step; }
  int64_t epoch() override { return call_.progress.epoch; }
  std::optional<int64_t> max_steps() override { return call_.progress.max_steps; }
  bool is_last_step() override { return call_.progress.last_step; }
  double loss() override;
  double lr() override;
  nlohmann::json metrics() override { return metrics_.to_json(); }
  lua::Reference recipe() override;
  std::string exception() override { return call_.exception; }
  lua::HookWorld& world() override { return exchange_; }
  void log(const std::string& name, double value, const std::string& sync) override;
  std::string artifact(const std::string& name) override;
  void append_artifact(const std::string& name, const std::string& text) override;
  void stop(const std::string& reason) override;
  void checkpoint() override;
  void set_lr(double lr) override;
  void skip_step() override;
  lua::Value parameter(const std::string& name) override;
  lua::Value gradient(const std::string& name) override;
  std::shared_ptr<lua::Snapshot> snapshot() override;
  nlohmann::json generate(const lua::Generation& wanted) override;

  /// Throws lua::ScriptMistake inside `loss`, and if `allowed` is false for the current moment.
  void require_moment(const char* what, bool (*allowed)(Moment), const char* when) const;
  const Tokenizer& tokenizer();
  std::vector<int64_t> prompt_of(const lua::Generation& wanted, int64_t vocab);
  lua::Value handle(ScriptTensor::Kind kind, const std::string& name, const std::vector<StateTensor>& pieces,
                    double divisor);

  const TrainingHooksSetup& setup_;
  HookCall& call_;
  HookExchange& exchange_;
  TensorHost& tensors_;
  Metrics& metrics_;
  lua::State& state_;
  std::shared_ptr<lua::Object> object_;
  std::optional<lua::Reference> recipe_;
  Artifacts artifacts_;
  SnapshotHost snapshots_;
  std::unique_ptr<Tokenizer> tokenizer_;
  // ---- during one call of a hook
  std::vector<std::weak_ptr<lua::Object>> handles_;
  std::optional<std::vector<StateTensor>> parameter_pieces_, gradient_pieces_;
};

}  // namespace runner
