// One rank's running Lua strategy or comm hook: its state, its functions, the buckets and tensors that it works on.
//
// A script has one Lua state a rank, so ranks may be threads of one process. Its functions are called in the thread
// that called Strategy::step(), and `reduce` by whichever thread of autograd's has delivered a bucket's last gradient,
// while the former waits for backward: never two at once. A script that fails ends the run: without it there is no
// training.
//
//   setup(ctx, state, options)                 once, before the first step and before a checkpoint is loaded
//   reduce(bucket, ctx, state, options)        a bucket of gradients is full. Returns nothing when it is reduced, a
//                                              work that ends it, or a function that does so once backward is over;
//                                              those are called bucket by bucket
//   after_update(ctx, state, options)          after each update of the optimizer; not after a skipped step
//   shard(parameter, options)                  whether ranks share the optimizer state of {name, shape, numel}
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/lua/state.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/train/hooks/garbage.hpp"
#include "runner/train/strategies/collectives.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// The tensors of a bucket, all 1-d.
struct BucketTensors {
  int64_t numel = 0;
  torch::Tensor gradients;   ///< this rank's, then their sums
  torch::Tensor parameters;  ///< undefined for comm hooks
  torch::Tensor shard;       ///< of sharded ones: this rank's part of the sums, which the optimizer reads
};

class StrategyScript {
 public:
  using Work = CommHook::Work;
  enum class Kind { strategy, comm_hook };

  /// Loads the file that the recipe names. Throws RecipeError with what is wrong with it.
  StrategyScript(Kind kind, const Recipe& recipe, World& world, nlohmann::json options);
  StrategyScript(const StrategyScript&) = delete;

  bool has(const std::string& function) const { return file_.functions.contains(function); }
  bool replicas_differ() const { return file_.replicas_differ; }
  bool shards(const ParameterSpec& parameter);

  /// Hands it what it works on, and calls `setup`.
  void begin(std::vector<BucketTensors> buckets, const torch::TensorOptions& kept, CommHook::Host host);
  std::vector<BucketTensors>& buckets() { return buckets_; }

  /// Calls `reduce`. What it returns is waited for, or called, in finish().
  Work reduce(size_t bucket);
  void finish(size_t bucket);
  void after_update();
  /// Until all collectives that it has started have ended.
  void wait_for_works();

  /// Tensors that it keeps, each rank's its own; and rank 0's table `state`.
  std::vector<StateTensor> state() const;
  nlohmann::json scalars() const;
  void load_scalars(const nlohmann::json& scalars);

  // ---- for its handles
  int64_t steps() const { return host_.steps(); }
  double loss_scale() const { return host_.loss_scale(); }
  ScriptHost& shared() { return shared_; }
  lua::Value world() const { return world_; }
  lua::Value bucket_list() const { return lua::Value(bucket_list_); }
  /// The tensor of that name that checkpoints keep; made, and zero, when `setup` first asks for it.
  lua::Value kept(const std::string& name, std::optional<int64_t> numel);
  torch::TensorOptions options() const { return kept_options_; }

 private:
  lua::Value call(const std::string& function, std::vector<lua::Value> arguments);
  lua::Value call_function(const std::string& doing, const lua::Reference& function,
                           const std::vector<lua::Value>& arguments);

  ScriptHost shared_;
  std::string noun_, name_;
  mutable lua::State state_;
  TensorGarbage garbage_;
  lua::StrategyFile file_;
  nlohmann::json option_values_;
  lua::Reference options_, own_state_;
  lua::Value context_, world_;
  std::vector<BucketTensors> buckets_;
  std::vector<lua::Value> bucket_handles_;
  lua::Reference bucket_list_;
  std::vector<lua::Value> pending_;  ///< by bucket: what `reduce` returned
  torch::TensorOptions kept_options_;
  CommHook::Host host_;
  bool in_setup_ = false;
  std::map<std::string, torch::Tensor> kept_;
};

}  // namespace runner
