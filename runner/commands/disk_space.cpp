#include "runner/commands/disk_space.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/selection/candidate.hpp"

namespace runner {

std::string disk_space_note(const Plan& plan, int64_t free_bytes, int64_t existing) {
  const auto& settings = plan.recipe.checkpoint;
  if (plan.recipe.run.fast_dev_run > 0) return "";
  if (!settings.save_at_end && !settings.every_n_steps && !settings.every && settings.save_top_k.value_or(0) == 0)
    return "";
  const int64_t one = checkpoint_bytes_on_disk(plan.job, *plan.model);
  if (one > free_bytes)
    throw environment_error(
        "a checkpoint is predicted to take {}, and the disk of the run's folder has {} free: make room, {}, or train "
        "without checkpoints (checkpoint.save_at_end = false, and no other key of [checkpoint] that asks for one)",
        format_bytes(one), format_bytes(free_bytes),
        existing > 0 ? "delete checkpoints of other runs" : "set RUNNER_HOME to a folder on a larger disk");
  // While a checkpoint is written, the kept ones still exist, so space for one more is needed.
  const bool all = settings.keep_last == 0;
  const int64_t spaced =
      settings.keep_every_n_steps ? plan.recipe.train.max_steps.value_or(0) / *settings.keep_every_n_steps : 0;
  const int64_t kept = all ? 0 : settings.keep_last + settings.save_top_k.value_or(0) + spaced + 1;
  const int64_t more = std::max<int64_t>(1, kept - existing);
  int64_t needed = 0;
  const bool absurd = __builtin_mul_overflow(more, one, &needed);
  if (!all && !absurd && needed <= free_bytes) return "";
  if (all && free_bytes / one >= 100) return "";
  return fmt::format("the disk of the run's folder has {} free, room for {} of {} each; {} are kept",
                     format_bytes(free_bytes), counted(free_bytes / one, "more checkpoint"), format_bytes(one),
                     all ? "all" : std::to_string(kept - 1));
}

std::optional<int64_t> free_bytes(fs::path folder) {
  std::error_code failed;
  while (!fs::exists(folder, failed) && folder.has_parent_path() && folder != folder.parent_path())
    folder = folder.parent_path();
  auto space = fs::space(folder, failed);
  if (failed) return std::nullopt;
  return static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX));
}

}  // namespace runner
