// The hooks of a recipe: loaded in order, called in order, and what happens when one fails.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/lua/hook_file.hpp"
#include "runner/lua/matrix.hpp"

namespace runner::lua {

/// A hook failed, and on_error is "stop".
class HookError : public Error {
 public:
  explicit HookError(const std::string& text) : Error(ExitCode::run_failed, text) {}
};

/// Hooks share one State, and so its memory. A function of a hook is called as
///   on_train_batch_end(ctx, state, options)
/// ctx: what the caller hands to call(), see training.hpp; state: the hook's own table, plain data and tensors, which
/// checkpoints keep; options: its options with defaults filled in, read-only. A moment that no hook has costs nothing.
/// One hook of a recipe may have
///   loss(ctx, logits, targets, options)
class HookSet {
 public:
  struct Talk {
    std::function<void(std::string_view line)> print = {};              ///< what print() prints
    std::function<void(const std::string& text)> report = {};           ///< a hook that is left out from now on
    std::function<std::string(const std::exception&)> mistake_of = {};  ///< as StateOptions has it
    struct Failure {
      std::string text;           ///< empty: nothing went wrong
      bool left_changes = false;  ///< parameters or gradients, maybe not on all ranks
    };
    /// Told of the end of each call of a hook, and what went wrong in it here (empty: nothing). Gives back what went
    /// wrong in it on all ranks together, which is what counts.
    std::function<Failure(const std::string& hook, const std::string& failure)> agree = {};
  };

  /// All files of [hooks], and train.early_stopping as the shipped hook of that name, after them: it may watch what
  /// they log. Throws RecipeError with every mistake in the files and in their options.
  HookSet(const Recipe& recipe, Talk talk);
  explicit HookSet(const Recipe& recipe) : HookSet(recipe, Talk{}) {}

  bool wants(Moment moment) const { return !callers_[static_cast<size_t>(moment)].empty(); }
  /// Calls every hook that has a function for the moment. Throws HookError where one fails and on_error is "stop";
  /// with "disable" it is reported, and left out from then on, unless it has left changes to the training that may be
  /// half of what it was to do: then, too, HookError. What a registered function throws passes through.
  void call(Moment moment, const Value& context);

  /// Bytes on a rank: where its parameters are, and in host memory whatever the device.
  struct Kept {
    int64_t device = 0, host = 0;
  };
  /// What the hooks that have a `memory` say that they keep, of a job in plain data. Throws Error(usage) where one
  /// fails or says something else.
  Kept memory(const nlohmann::json& job);
  bool says_memory() const;

  /// Whether a hook makes the loss.
  bool has_loss() const;
  /// The losses [n, 1] that its `loss` makes of logits [n, vocab] and targets [n, 1]. Throws Error(run_failed) where it
  /// fails, whatever on_error says: a training does not go on with another loss.
  Matrix::Pointer loss(const Value& context, const Matrix::Pointer& logits, const Matrix::Pointer& targets);

  /// Puts an object of a state into a checkpoint as NAME ("HOOK/weights/a.b", a JSON pointer behind the hook) and gives
  /// back what it takes to make it again, an object; throws ScriptMistake where that is no object to be kept.
  using Keep = std::function<nlohmann::json(const std::string& name, const std::shared_ptr<Object>& object)>;
  /// Makes it again.
  using Restore = std::function<std::shared_ptr<Object>(const std::string& name, const nlohmann::json& kept)>;
  /// on_save_checkpoint, then {hook: its state}. Numbers that are not finite are kept (as {"$number": "inf"}), objects
  /// as {"$object": NAME, ...} if `keep` takes them.
  nlohmann::json save(const Value& context, const Keep& keep = {});
  /// The states of the hooks that are in `saved`, then on_load_checkpoint. Reports what belongs to no hook.
  void load(const nlohmann::json& saved, const Value& context, const Restore& restore = {});

  struct Hook {
    HookFile file;
    nlohmann::json option_values;
    Reference options, state;
    bool disabled = false;
    double seconds = 0;  ///< spent in it, all in all
  };
  const std::vector<Hook>& hooks() const { return hooks_; }
  State& state() { return *state_; }

  /// Hooks that have failed and are left out, for a checkpoint; and the same again, where on_error is still "disable".
  std::vector<std::string> disabled() const;
  void disable(const std::vector<std::string>& names);

 private:
  void call_one(Hook& hook, Moment moment, const Value& context);
  /// The end of a call: agrees on its failure, and acts on it.
  void end_call(Hook& hook, const std::string& doing, std::string failure);
  void fail(Hook& hook, const std::string& doing, const Talk::Failure& failure);
  nlohmann::json state_of(const Hook& hook, const Keep& keep);

  bool disables_;
  Talk talk_;
  std::unique_ptr<State> state_;
  std::vector<Hook> hooks_;
  std::array<std::vector<size_t>, moments_count> callers_;  ///< by Moment: which hooks have a function for it
};

/// A script's state for a checkpoint, and back: JSON has no infinities.
nlohmann::json keep_nonfinite(nlohmann::json value);
nlohmann::json restore_nonfinite(nlohmann::json value);

/// What the recipe asks for, in order; none: no hooks.
std::vector<ScriptSource> hook_sources(const Recipe& recipe);

/// Adds what is wrong with the hooks of a recipe to the diagnostics of reading it: runs every file in a sandbox.
void check_hooks(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner::lua
