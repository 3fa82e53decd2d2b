// The interface behind a hook's `ctx`. The worker implements Training.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/value.hpp"

namespace runner::lua {

/// Exchange of numbers, and in `loss` of tensors, between ranks. All functions except rank() and size() are collective:
/// every rank calls them, in the same order.
class HookWorld {
 public:
  virtual ~HookWorld() = default;
  virtual int rank() = 0;
  virtual int size() = 0;
  virtual double all_reduce(double value, const std::string& operation) = 0;  ///< sum | mean | min | max
  virtual std::vector<double> all_gather(double value) = 0;                   ///< by rank
  /// The rows of a tensor of `loss` on all ranks, by rank. `sync_grads`: gradients reach the ranks that the rows are from.
  virtual Value all_gather(const Value& rows, bool sync_grads) = 0;
  virtual double broadcast(double value, int root) = 0;
  virtual void barrier() = 0;
};

/// A copy of everything that a step changes: parameters, optimizer state and its step count, loss scale. It does not
/// include the position in the data and the number of steps.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual int64_t step() = 0;  ///< the step at which it was taken
  virtual void take() = 0;     ///< takes it again, in the same memory
  virtual void restore() = 0;  ///< on all ranks, between steps, when the call of the hook ends
};

/// The message of ctx:generate{prompt = TEXT} if the data are tokens already.
inline constexpr const char* no_tokenizer =
    "generate: data.format = \"bin\" has no tokenizer; give the prompt as a list of tokens";

/// The arguments of ctx:generate{...}. Equal on all ranks.
struct Generation {
  std::optional<std::string> text;  ///< the prompt, or
  std::vector<int64_t> tokens;      ///< the tokens of the prompt
  int64_t max_new_tokens = 64;
  double temperature = 1;       ///< 0: always the most likely token
  int64_t top_k = 0;            ///< draws from this many most likely tokens; 0: from all
  std::optional<int64_t> seed;  ///< of the draws; default run.seed
};

/// One training. The implementer defines the class of tensor handles and invalidates them when they end.
class Training {
 public:
  virtual ~Training() = default;
  virtual int64_t step() = 0;                      ///< optimizer steps done
  virtual int64_t epoch() = 0;                     ///< from 0
  virtual std::optional<int64_t> max_steps() = 0;  ///< none if only time ends the training
  virtual bool is_last_step() = 0;  ///< true after the last planned step; a stop by a hook does not count
  virtual double loss() = 0;        ///< of the last global batch; NaN before the first. May wait for the device
  virtual double lr() = 0;
  virtual nlohmann::json metrics() = 0;  ///< {name: the last value}, validation's too
  virtual Reference recipe() = 0;        ///< the recipe as a read-only table of its State
  virtual std::string exception() = 0;   ///< the error text in on_exception; empty otherwise
  virtual HookWorld& world() = 0;

  virtual void log(const std::string& name, double value,
                   const std::string& sync) = 0;              ///< sync: none | sum | mean | min | max
  virtual std::string artifact(const std::string& name) = 0;  ///< path of a file in the run folder, created on rank 0
  virtual void append_artifact(const std::string& name, const std::string& text) = 0;  ///< writes on rank 0 only
  virtual void stop(const std::string& reason) = 0;  ///< after this step, on all ranks
  virtual void checkpoint() = 0;                     ///< at the end of this step
  virtual void set_lr(double lr) = 0;                ///< for the current step; the schedule sets it at the next step
  virtual void skip_step() = 0;                      ///< before the optimizer's step: skips the update

  virtual std::vector<std::string> parameter_names() = 0;
  virtual Value parameter(const std::string& name) = 0;
  virtual Value gradient(const std::string& name) = 0;  ///< in on_before_optimizer_step only
  virtual std::shared_ptr<Snapshot> snapshot() = 0;
  /// The prompt followed by the generated text or tokens, in the form of the prompt. Collective.
  virtual nlohmann::json generate(const Generation& wanted) = 0;
};

const Class& hook_context_class();
const Class& world_class();  ///< of ctx.world

/// The `ctx` for HookSet::call(). The training must outlive it. Invalidate it when the training ends.
std::shared_ptr<Object> make_context(Training& training);

}  // namespace runner::lua
