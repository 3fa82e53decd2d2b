// What a hook's `ctx` is: the training as hooks see it. The worker implements Training over tensors and process groups,
// fake_training.hpp without either.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/value.hpp"

namespace runner::lua {

/// Numbers that ranks share. Collectives: every rank calls them, in the same order.
class HookWorld {
 public:
  virtual ~HookWorld() = default;
  virtual int rank() = 0;
  virtual int size() = 0;
  virtual double all_reduce(double value, const std::string& operation) = 0;  ///< sum | mean | min | max
  virtual std::vector<double> all_gather(double value) = 0;                   ///< by rank
  virtual double broadcast(double value, int root) = 0;
  virtual void barrier() = 0;
};

/// A copy of everything that steps change: parameters, the optimizer's state and count, the loss scale. Not the place
/// in the data, nor the number of steps.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual int64_t step() = 0;  ///< when it was taken
  virtual void take() = 0;     ///< anew, in the same memory
  virtual void restore() = 0;  ///< on all ranks, between steps, once the call of the hook ends
};

/// What ctx:generate{...} asks for, equal on all ranks.
struct Generation {
  std::optional<std::string> text;  ///< the prompt; or
  std::vector<int64_t> tokens;      ///< its tokens
  int64_t max_new_tokens = 64;
  double temperature = 1;       ///< 0: always the likeliest
  int64_t top_k = 0;            ///< among so many likeliest; 0: among all
  std::optional<int64_t> seed;  ///< of the draws; default run.seed
};

/// One training. Handles of tensors are objects of a class of the implementer's, which invalidates them when they end.
class Training {
 public:
  virtual ~Training() = default;
  virtual int64_t step() = 0;                      ///< optimizer steps done
  virtual int64_t epoch() = 0;                     ///< from 0
  virtual std::optional<int64_t> max_steps() = 0;  ///< where only time ends the training: none
  virtual bool is_last_step() = 0;                 ///< after it: no step follows, unless a hook has its way
  virtual double loss() = 0;  ///< of the last global batch; NaN before the first. May wait for the device
  virtual double lr() = 0;
  virtual nlohmann::json metrics() = 0;  ///< {name: the last value}, validation's too
  virtual Reference recipe() = 0;        ///< the recipe as a read-only table of its State
  virtual std::string exception() = 0;   ///< in on_exception: what happened; else empty
  virtual HookWorld& world() = 0;

  virtual void log(const std::string& name, double value,
                   const std::string& sync) = 0;              ///< sync: none | sum | mean | min | max
  virtual std::string artifact(const std::string& name) = 0;  ///< the path of a file in the run folder, made on rank 0
  virtual void append_artifact(const std::string& name, const std::string& text) = 0;  ///< on rank 0
  virtual void stop(const std::string& reason) = 0;  ///< after this step, on all ranks
  virtual void checkpoint() = 0;                     ///< at the end of this step
  virtual void set_lr(double lr) = 0;                ///< until the schedule says otherwise at the next step
  virtual void skip_step() = 0;                      ///< before the optimizer's step: leave it out

  virtual std::vector<std::string> parameter_names() = 0;
  virtual Value parameter(const std::string& name) = 0;
  virtual Value gradient(const std::string& name) = 0;  ///< in on_before_optimizer_step only
  virtual std::shared_ptr<Snapshot> snapshot() = 0;
  /// The prompt and what follows it, as text or as tokens, as the prompt is. Collective.
  virtual nlohmann::json generate(const Generation& wanted) = 0;
};

/// The `ctx` of a training, for HookSet::call(). The training outlives it; invalidate it when the training ends.
std::shared_ptr<Object> make_context(Training& training);

}  // namespace runner::lua
