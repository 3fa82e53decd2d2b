// Calls hooks without a training. It needs no LibTorch and takes milliseconds.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/lua/hook_set.hpp"
#include "runner/lua/training.hpp"

namespace runner::lua::testing {

/// Two epochs of five steps, with a loss that falls and a val_loss that falls and then rises. Parameters and gradients
/// are one object, which has any method and operator; the result is a constant. Requests have no effect, except stop().
class PretendedTraining : public Training, private HookWorld {
 public:
  PretendedTraining(State& state, const Recipe& recipe);
  ~PretendedTraining() override { context_->invalidate("the training is over"); }

  /// Calls every moment, also those of checkpoints and exceptions, but not `loss`. Ends early if a hook stops it. Throws
  /// what HookSet throws.
  void run(HookSet& hooks);
  const std::shared_ptr<Object>& context() const { return context_; }  ///< `ctx`
  const std::string& stopped() const { return stopped_; }              ///< the reason; empty without one

  int64_t step() override { return step_; }
  int64_t epoch() override { return epoch_; }
  std::optional<int64_t> max_steps() override;
  bool is_last_step() override { return step_ == *max_steps(); }
  double loss() override;
  double lr() override { return lr_; }
  nlohmann::json metrics() override { return metrics_; }
  Reference recipe() override { return recipe_; }
  std::string exception() override { return exception_; }
  HookWorld& world() override { return *this; }
  void log(const std::string& name, double value, const std::string& sync) override;
  std::string artifact(const std::string&) override { return "/dev/null"; }
  void append_artifact(const std::string&, const std::string&) override {}
  void stop(const std::string& reason) override { stopped_ = reason; }
  void checkpoint() override {}
  void set_lr(double) override {}
  void skip_step() override {}
  std::vector<std::string> parameter_names() override;
  Value parameter(const std::string&) override { return Value(tensor_); }
  Value gradient(const std::string&) override { return Value(tensor_); }
  std::shared_ptr<Snapshot> snapshot() override;
  nlohmann::json generate(const Generation& wanted) override;

 private:
  int rank() override { return 0; }
  int size() override { return 1; }
  double all_reduce(double value, const std::string&) override { return value; }
  std::vector<double> all_gather(double value) override { return {value}; }
  Value all_gather(const Value& rows, bool) override { return rows; }
  double broadcast(double value, int) override { return value; }
  void barrier() override {}

  void batch(HookSet& hooks);

  Reference recipe_, tensor_;
  std::shared_ptr<Object> context_;
  int64_t step_ = 0, epoch_ = 0;
  int validations_ = 0;
  double lr_;
  bool has_tokenizer_;
  nlohmann::json metrics_ = nlohmann::json::object();
  std::string exception_, stopped_;
};

}  // namespace runner::lua::testing
