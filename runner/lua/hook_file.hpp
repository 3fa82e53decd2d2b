// One file of hooks: the table that it returns, checked; its options against the recipe's [hooks.NAME].
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/script_file.hpp"

namespace runner::lua {

/// When hooks are called: Lightning's names and order.
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
/// By Moment.
const std::array<const char*, moments_count>& moment_names();

/// Its name is what [hooks.NAME] says.
struct HookFile : ScriptFile {
  std::array<Reference, moments_count> moments;  ///< its functions by Moment
  Reference loss;                                ///< empty: the hook makes none
};

/// Loads the file into `state`. What is wrong with it goes to `diagnostics`, and then there is no result.
std::optional<HookFile> load_hook_file(State& state, const ScriptSource& source, std::vector<Diagnostic>& diagnostics);

/// Hooks that come with the program: name -> text.
const std::map<std::string, std::string>& shipped_hooks();

}  // namespace runner::lua
