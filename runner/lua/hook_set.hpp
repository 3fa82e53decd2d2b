// The hooks of a recipe: loads them, calls them in order, and handles their failures.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/lua/draws.hpp"
#include "runner/lua/script_file.hpp"
#include "runner/lua/shipped.hpp"
#include "runner/lua/value.hpp"

namespace runner::lua {

/// When hooks are called. Names and order are those of PyTorch Lightning.
enum class Moment {
  setup,
  on_train_start,
  on_train_epoch_start,
  on_train_batch_start,
  on_before_backward,
  on_after_backward,
  on_before_optimizer_step,
  on_train_batch_end,
  on_validation_start,
  on_validation_end,
  on_train_epoch_end,
  on_save_checkpoint,
  on_load_checkpoint,
  on_exception,
  on_train_end,
  teardown
};
constexpr size_t moments_count = 16;
/// Names in the order of Moment.
const std::array<const char*, moments_count>& moment_names();

/// Loads the file into `state`. Its options are in [hooks.NAME], where NAME is its name. Mistakes go to `diagnostics`;
/// then there is no result.
std::optional<ScriptFile> load_hook_file(State& state, const ScriptSource& source,
                                         std::vector<Diagnostic>& diagnostics);

/// A hook failed, and on_error is "stop".
class HookError : public Error {
 public:
  explicit HookError(const std::string& text) : Error(ExitCode::run_failed, text) {}
};

/// Hooks share one State and its memory limit. A function of a hook is called as
///   on_train_batch_end(ctx, state, options)
/// ctx: the argument `context` of call(), see training.hpp. state: the hook's table of plain data and tensors, which is
/// part of checkpoints. options: the hook's options with defaults, read-only. A moment without hooks costs nothing. One
/// hook of a recipe may have
///   loss(ctx, logits, targets, options)
class HookSet {
 public:
  struct Talk {
    std::function<void(std::string_view line)> print = {};              ///< receives the output of print()
    std::function<void(const std::string& text)> report = {};           ///< receives notes for the user
    std::function<std::string(const std::exception&)> mistake_of = {};  ///< see StateOptions
    struct Failure {
      std::string text;           ///< empty: no failure
      bool left_changes = false;  ///< changed parameters or gradients, maybe not on all ranks
    };
    /// Called after each call of a hook with this rank's failure (empty: none). Returns the common failure of all
    /// ranks, which takes effect.
    std::function<Failure(const std::string& hook, const std::string& failure)> agree = {};
    std::function<int64_t()> step = {};  ///< the number of finished steps, for the seeds of math.random; default 0
  };

  /// Loads all files of [hooks], then the shipped hook for train.early_stopping, because it may monitor metrics that
  /// they log. Throws RecipeError with all mistakes in the files and their options.
  HookSet(const Recipe& recipe, Talk talk);
  explicit HookSet(const Recipe& recipe) : HookSet(recipe, Talk{}) {}

  bool wants(Moment moment) const { return !callers_[static_cast<size_t>(moment)].empty(); }
  /// Calls every hook that has a function for the moment. If a hook fails: throws HookError if on_error is "stop". With
  /// "disable", reports and disables the hook, but also throws HookError if it may have changed the training only
  /// partly. Exceptions of registered functions pass through.
  void call(Moment moment, const Value& context);

  /// Bytes on a rank: on the device of the parameters, and in host memory.
  struct Kept {
    int64_t device = 0, host = 0;
  };
  /// Sums the results of the hooks' functions `memory` for a job in plain data. Throws Error(usage) if one fails or
  /// returns something else.
  Kept memory(const nlohmann::json& job);
  bool says_memory() const;

  /// Whether a hook has a function `loss`.
  bool has_loss() const;
  /// Calls `loss` with logits [tokens, vocab] and targets [tokens, 1], and `take` with what it returns. `take` throws
  /// ScriptMistake if that is no loss. Throws Error(run_failed) if it fails, also with on_error = "disable", because a
  /// training cannot continue with another loss.
  void loss(const Value& context, const Value& logits, const Value& targets,
            const std::function<void(const Value& returned)>& take);

  /// Stores an object of a state in a checkpoint under NAME, "HOOK/weights/a.b" (hook and JSON pointer). Returns a JSON
  /// object from which Restore can make it again. Throws ScriptMistake if it cannot be stored.
  using Keep = std::function<nlohmann::json(const std::string& name, const std::shared_ptr<Object>& object)>;
  /// Makes the object again.
  using Restore = std::function<std::shared_ptr<Object>(const std::string& name, const nlohmann::json& kept)>;
  /// Calls on_save_checkpoint and returns {hook: its state}. Numbers that are not finite are stored as {"$number":
  /// "inf"}, strings that are not UTF-8 as {"$bytes": "e9"}, objects as {"$object": NAME, ...} if there is a `keep`.
  nlohmann::json save(const Value& context, const Keep& keep = {});
  /// Restores the states in `saved` and calls on_load_checkpoint. Reports states without a hook.
  void load(const nlohmann::json& saved, const Value& context, const Restore& restore = {});

  struct Hook {
    ScriptFile file;
    bool has(const std::string& function) const { return file.functions.contains(function); }
    nlohmann::json option_values;
    Reference options, state;
    bool disabled = false;
    double seconds = 0;                    ///< total time in its functions
    std::map<std::string, int64_t> calls;  ///< of each function
  };
  const std::vector<Hook>& hooks() const { return hooks_; }
  /// For each hook until now: {"hook": name, "seconds": time in its functions, "calls": {function: number}}.
  std::vector<nlohmann::json> records() const;
  State& state() { return *state_; }

  /// Names of disabled hooks, for a checkpoint. disable() disables them again, if on_error is still "disable".
  std::vector<std::string> disabled() const;
  void disable(const std::vector<std::string>& names);

 private:
  void call_one(Hook& hook, Moment moment, const Value& context);
  /// Counts a call of `function` and seeds math.random for it (see draws.hpp).
  void begin_call(Hook& hook, const std::string& function);
  /// Ends a call: agrees with other ranks on its failure and handles it.
  void end_call(Hook& hook, const std::string& doing, std::string failure);
  void fail(Hook& hook, const std::string& doing, const Talk::Failure& failure);
  nlohmann::json state_of(const Hook& hook, const Keep& keep);

  bool disables_;
  Talk talk_;
  Draws draws_;
  std::unique_ptr<State> state_;
  std::vector<Hook> hooks_;
  std::array<std::vector<size_t>, moments_count> callers_;  ///< by Moment: which hooks have a function for it
};

/// Conversion of a script's state for checkpoints, because JSON text has no infinities, no NaN, and no strings that are
/// not UTF-8.
nlohmann::json storable(nlohmann::json value);
nlohmann::json restore_stored(nlohmann::json value);

/// The hooks of the recipe in order.
std::vector<ScriptSource> hook_sources(const Recipe& recipe);

/// Adds the mistakes in the recipe's hooks to `diagnostics`. Runs every file in a sandbox.
void check_hooks(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner::lua
