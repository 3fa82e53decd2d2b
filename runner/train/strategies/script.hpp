// One rank's running Lua strategy or comm hook: its Lua state, functions, buckets and tensors.
//
// Each rank has its own Lua state, so ranks may be threads of one process. The thread that called Strategy::step()
// calls the functions. An error in a script ends the run, because there is no training without it.
//
//   setup(ctx, state, options)                 once, before the first step and before a checkpoint is loaded
//   setup_module(model, ctx, state, options)   once, after setup. It may change parameters: model:parameter(NAME)
//   reduce(bucket, ctx, state, options)        when a bucket of gradients is full. Returns nothing if the bucket is
//                                              reduced, or a work to wait for, or a function that completes it after
//                                              backward. These functions are called in the order of buckets
//   after_update(ctx, state, options)          after each update of the optimizer; not after a skipped step
//   shard(parameter, options)                  returns whether to shard the optimizer state of {name, shape, numel}; the
//                                              plan calls it (selection/script_strategy.hpp)
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/lua/draws.hpp"
#include "runner/lua/state.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/train/hooks/exchange.hpp"
#include "runner/train/strategies/collectives.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// The classes of the objects that the functions get. Tests compare their names with lua::strategy_arguments().
std::vector<const lua::Class*> strategy_classes();

/// The functions of a strategy with a `base` that does not replace the reduction are called as those of an Extension only.
class StrategyScript : public Reducer {
 public:
  enum class Kind { strategy, comm_hook };

  /// Loads the file that the recipe names. Throws RecipeError with its mistakes.
  StrategyScript(Kind kind, const Recipe& recipe, World& world, nlohmann::json options);
  StrategyScript(const StrategyScript&) = delete;

  bool replicas_differ() const override { return file_.replicas_differ; }
  /// Whether it is the strategy's Reducer.
  bool reduces() const { return kind_ == Kind::comm_hook || file_.reduces(); }
  /// Whether a rank has something to call.
  bool acts() const { return reduces() || has("setup") || has("setup_module") || has("after_update"); }

  /// Passes the buckets to the script and calls `setup` and `setup_module`. `kept`: options of tensors that checkpoints contain.
  void prepare(std::vector<Bucket> buckets, const torch::TensorOptions& kept, Host host) override;
  const std::vector<Bucket>& buckets() const { return buckets_; }

  /// Calls `reduce`. finish() waits for the work that it returns, or calls the function.
  void begin(size_t bucket) override;
  void finish(size_t bucket) override;
  void after_update() override;
  void teardown() override { wait_for_works(); }

  /// Tensors for checkpoints, with different values on each rank, and rank 0's table `state`.
  std::vector<StateTensor> state() override;
  nlohmann::json scalars() const override;
  void load_scalars(const nlohmann::json& scalars) override;
  std::string name() const override { return name_; }

  // ---- for the handles in Lua
  int64_t steps() const { return host_.steps(); }
  double loss_scale() const { return host_.loss_scale(); }
  ScriptHost& shared() { return shared_; }
  lua::Value world() const { return world_; }
  lua::Value bucket_list() const { return lua::Value(bucket_list_); }
  /// The tensor of that name that checkpoints contain. The first call in `setup` creates it, filled with zeros.
  lua::Value kept(const std::string& name, std::optional<int64_t> numel);
  torch::TensorOptions options() const { return kept_options_; }
  lua::Value model() const { return model_; }
  /// The names of the parameters of the training, sorted.
  std::vector<std::string> parameter_names() const;
  /// A global tensor, valid during the current call. Throws lua::ScriptMistake inside of a step.
  lua::Value parameter(const std::string& name);

 private:
  bool has(const std::string& function) const { return file_.functions.contains(function); }
  void wait_for_works();
  /// Calls a function that may change parameters.
  void call_between_steps(const std::string& function, std::vector<lua::Value> arguments);
  lua::Value call(const std::string& function, std::vector<lua::Value> arguments);
  lua::Value call_function(const std::string& doing, const lua::Reference& function,
                           const std::vector<lua::Value>& arguments);

  HookExchange exchange_;
  ScriptHost shared_;
  Kind kind_;
  std::string noun_, name_;
  mutable lua::State state_;
  lua::Draws draws_;
  lua::StrategyFile file_;
  nlohmann::json option_values_;
  lua::Reference options_, own_state_;
  lua::Value context_, world_, model_;
  std::vector<Bucket> buckets_;
  std::vector<lua::Value> bucket_handles_;
  lua::Reference bucket_list_;
  std::vector<lua::Value> pending_;  ///< by bucket: result of `reduce`
  torch::TensorOptions kept_options_;
  Host host_;
  bool in_setup_ = false, between_steps_ = false;
  std::optional<std::vector<StateTensor>> stored_;                    ///< the parameters, during a call
  std::vector<std::shared_ptr<lua::Object>> parameter_handles_ = {};  ///< of the current call
  std::map<std::string, torch::Tensor> kept_;
};

/// Makes the strategy of the file in the recipe's [strategy], which learn_script_strategy() has made known; setup.job.options are
/// its options. Throws RecipeError.
std::unique_ptr<Strategy> make_script_strategy(const Recipe& recipe, StrategySetup setup);

/// Makes the comm hook of the recipe's strategy.ddp_comm_hook; null if that is not a Lua file. Throws RecipeError.
std::shared_ptr<Reducer> make_script_comm_hook(const Recipe& recipe, World& world);

}  // namespace runner
