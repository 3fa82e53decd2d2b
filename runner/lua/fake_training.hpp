// A training without LibTorch, for `runner lua check` and for tests. It has two epochs of five steps, three small
// parameters that each step changes, a loss of three tokens, and a val_loss that falls and then rises. It records all
// requests of hooks.
#pragma once
#include <functional>
#include <map>

#include "runner/lua/hook_set.hpp"
#include "runner/lua/training.hpp"

namespace runner::lua {

class FakeTraining : public Training, private HookWorld {
 public:
  /// `said` gets one line for each request of a hook ("log grad_norm 1.5 (mean)").
  FakeTraining(State& state, const Recipe& recipe, std::function<void(const std::string&)> said);
  ~FakeTraining() override;

  /// Calls all moments for which a hook has a function, in the order of a training, and reports each to `said`. Ends
  /// early if a hook stops the training. Throws what HookSet throws.
  void run(HookSet& hooks);

  int64_t step() override { return step_; }
  int64_t epoch() override { return epoch_; }
  std::optional<int64_t> max_steps() override;
  bool is_last_step() override { return step_ == *max_steps(); }
  double loss() override { return loss_; }
  double lr() override { return lr_; }
  nlohmann::json metrics() override { return metrics_; }
  Reference recipe() override { return recipe_; }
  std::string exception() override { return exception_; }
  HookWorld& world() override { return *this; }
  void log(const std::string& name, double value, const std::string& sync) override;
  std::string artifact(const std::string& name) override;
  void append_artifact(const std::string& name, const std::string& text) override;
  void stop(const std::string& reason) override;
  void checkpoint() override;
  void set_lr(double lr) override;
  void skip_step() override;
  std::vector<std::string> parameter_names() override;
  Value parameter(const std::string& name) override;
  Value gradient(const std::string& name) override;
  std::shared_ptr<Snapshot> snapshot() override;
  nlohmann::json generate(const Generation& wanted) override;

  const std::string& stopped() const { return stopped_; }

 private:
  int rank() override { return 0; }
  int size() override { return 1; }
  double all_reduce(double value, const std::string&) override { return value; }
  std::vector<double> all_gather(double value) override { return {value}; }
  double broadcast(double value, int) override { return value; }
  void barrier() override {}

  void moment(HookSet& hooks, Moment moment);
  void make_loss(HookSet& hooks);
  void checkpoint(HookSet& hooks);
  void batch(HookSet& hooks);
  void make_gradients();
  void update();
  void validation(HookSet& hooks);

  std::function<void(const std::string&)> said_;
  Reference recipe_;
  std::shared_ptr<Object> context_;
  int64_t step_ = 0, epoch_ = 0;
  int validations_ = 0;
  bool skip_ = false;
  double loss_, schedule_lr_, lr_;
  bool has_tokenizer_;
  std::optional<double> next_lr_;  ///< applied at the end of the call
  nlohmann::json metrics_ = nlohmann::json::object();
  std::string exception_, stopped_;
  std::map<std::string, std::shared_ptr<Object>> parameters_, gradients_;
  std::map<std::string, std::vector<double>> first_gradients_;
};

}  // namespace runner::lua
