// One hook file: checks the table that it returns, and its options against the recipe's [hooks.NAME].
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/script_file.hpp"
#include "runner/lua/shipped.hpp"

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

/// Loads the file into `state`. Its options are in [hooks.NAME], where NAME is its name. Mistakes go to `diagnostics`; then there is no result.
std::optional<ScriptFile> load_hook_file(State& state, const ScriptSource& source,
                                         std::vector<Diagnostic>& diagnostics);

}  // namespace runner::lua
