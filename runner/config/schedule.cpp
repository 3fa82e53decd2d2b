#include "runner/config/schedule.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/schedule_shapes.hpp"

namespace runner {

namespace {

/// Factor on lr during warm-up.
double warm_up(const Recipe::LrScheduler& schedule, int64_t step) {
  auto at = static_cast<double>(step), steps = static_cast<double>(schedule.warmup_steps);
  return schedule.warmup == "log" ? std::log(at) / std::log(std::max(2.0, steps)) : at / steps;
}

/// "train.max_steps = 200 instead of 100" for each changed key that affects the rate.
std::vector<std::string> changes(const Recipe& before, const Recipe& now) {
  std::vector<std::string> list;
  for (const auto& key : key_table()) {
    bool decides = key.section == "lr_scheduler" || key.dotted() == "optimizer.lr" ||
                   key.dotted() == "train.max_steps" || key.dotted() == "train.max_epochs";
    if (!decides) continue;
    auto was = key.get(before), is = key.get(now);
    auto text = [](const nlohmann::json& value) { return value.is_null() ? "unset" : toml_value(value); };
    if (was != is) list.push_back(fmt::format("{} = {} instead of {}", key.dotted(), text(is), text(was)));
  }
  return list;
}

}  // namespace

double learning_rate(const Recipe::LrScheduler& schedule, double lr, int64_t step, int64_t max_steps) {
  const int64_t warmup = schedule.warmup_steps;
  if (step <= warmup) return lr * warm_up(schedule, step);
  const auto* shape = find_schedule_shape(schedule.name);
  RUNNER_CHECK(shape, "schedule {}", schedule.name);
  return lr * shape->factor(schedule, step - warmup, std::max<int64_t>(0, max_steps - warmup));
}

bool needs_end(const Recipe::LrScheduler& schedule) {
  const auto* shape = find_schedule_shape(schedule.name);
  return shape && shape->needs_end(schedule);
}

namespace {

/// `end`: what the number of steps is called.
std::string endless_warmup(const Recipe& recipe, int64_t steps, const std::string& end) {
  const auto& schedule = recipe.lr_scheduler;
  if (schedule.warmup_steps <= steps || recipe.optimizer.lr == 0) return "";
  auto text = fmt::format(
      "lr_scheduler.warmup_steps = {} is more than {}: warm-up does not end, and the learning "
      "rate reaches {:.3g} of {:.3g} at the last step",
      schedule.warmup_steps, end, learning_rate(schedule, recipe.optimizer.lr, steps, steps), recipe.optimizer.lr);
  return schedule.name == "constant" ? text : text + fmt::format("; the {} schedule never starts", schedule.name);
}

}  // namespace

std::string warmup_note(const Recipe& recipe, int64_t steps) {
  if (recipe.train.max_steps == steps || recipe.run.fast_dev_run > 0)
    return "";  // schedule_note() has said it, or it is only a trial
  return endless_warmup(recipe, steps, fmt::format("the {} of this training", counted(steps, "step")));
}

std::string schedule_note(const Recipe& recipe) {
  const auto& schedule = recipe.lr_scheduler;
  const auto& last = recipe.train.max_steps;
  if (schedule.name == "wsd" && last && schedule.decay_steps.value_or(0) > *last - schedule.warmup_steps &&
      schedule.warmup_steps < *last)
    return fmt::format(
        "lr_scheduler.decay_steps = {}, but train.max_steps = {} leaves {} after warm-up: the learning rate "
        "decays over those, and there is no constant part",
        *schedule.decay_steps, *last, counted(*last - schedule.warmup_steps, "step"));
  return last ? endless_warmup(recipe, *last, fmt::format("train.max_steps = {}", *last)) : "";
}

std::string rate_change_note(const Recipe& before, const Recipe& now, int64_t step) {
  auto changed = changes(before, now);
  if (changed.empty() || (now.train.max_epochs && needs_end(now.lr_scheduler))) return "";
  if (before.train.max_epochs && needs_end(before.lr_scheduler))
    return fmt::format("from step {} on, the schedule is computed with {}: the learning rate may jump there", step + 1,
                       join(changed, " and "));
  auto rate = [](const Recipe& recipe, int64_t at) {
    return learning_rate(recipe.lr_scheduler, recipe.optimizer.lr, at, recipe.train.max_steps.value_or(0));
  };
  double expected = rate(before, step + 1), actual = rate(now, step + 1);
  if (std::abs(actual - expected) <= 1e-6 * std::max(before.optimizer.lr, now.optimizer.lr)) return "";
  return fmt::format(
      "the learning rate goes from {:.3g} at step {} to {:.3g} at step {}, because of {}{}", rate(before, step), step,
      actual, step + 1, join(changed, " and "),
      needs_end(now.lr_scheduler)
          ? fmt::format(": the {} schedule is computed again from step 1 to the end", now.lr_scheduler.name)
          : "");
}

}  // namespace runner
