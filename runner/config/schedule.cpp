#include "runner/config/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

namespace {

using Schedule = Recipe::LrScheduler;

/// 0 at step `from`, 1 at the end and after it.
double progress(int64_t step, int64_t from, int64_t end) {
  if (end <= from) return 1.0;
  return std::clamp(static_cast<double>(step - from) / static_cast<double>(end - from), 0.0, 1.0);
}

/// 1 at progress 0, 0 at progress 1.
double half_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * progress)); }

double between(double low, double share) { return low + (1 - low) * share; }

double linear(const Schedule& schedule, int64_t step, int64_t steps) {
  return 1 + (schedule.min_lr_ratio - 1) * progress(step, 0, steps);
}

double cosine(const Schedule& schedule, int64_t step, int64_t steps) {
  return between(schedule.min_lr_ratio, half_cosine(progress(step, 0, steps)));
}

double cosine_with_restarts(const Schedule& schedule, int64_t step, int64_t steps) {
  const int64_t longest = int64_t{1} << 53;
  int64_t within = step - 1, cycle = schedule.cycle_steps.value_or(std::max<int64_t>(1, steps));
  if (schedule.cycle_factor == 1) within %= cycle;
  while (within >= cycle) {
    within -= cycle;
    cycle = cycle > longest / schedule.cycle_factor ? longest : cycle * schedule.cycle_factor;
  }
  return between(schedule.min_lr_ratio, half_cosine(progress(within, 0, cycle)));
}

double polynomial(const Schedule& schedule, int64_t step, int64_t steps) {
  return between(schedule.min_lr_ratio, std::pow(1 - progress(step, 0, steps), schedule.power));
}

double inverse_sqrt(const Schedule& schedule, int64_t step, int64_t) {
  constexpr int64_t without_warmup = 10000;
  const auto scale = static_cast<double>(
      schedule.timescale.value_or(schedule.warmup_steps > 0 ? schedule.warmup_steps : without_warmup));
  return 1 / std::sqrt((static_cast<double>(step) + scale) / scale);
}

double wsd(const Schedule& schedule, int64_t step, int64_t steps) {
  const int64_t all = steps + schedule.warmup_steps;
  const int64_t decay = schedule.decay_steps.value_or(std::max<int64_t>(1, all / 10));
  const int64_t stable_end = std::max<int64_t>(0, steps - decay);
  if (step <= stable_end) return 1;
  const double done = progress(step, stable_end, steps);
  if (schedule.decay_type == "cosine") return between(schedule.min_lr_ratio, half_cosine(done));
  if (schedule.decay_type == "1-sqrt") return between(schedule.min_lr_ratio, 1 - std::sqrt(done));
  return 1 + (schedule.min_lr_ratio - 1) * done;
}

double stepwise(const Schedule& schedule, int64_t step, int64_t) {
  return std::pow(schedule.gamma, static_cast<double>((step - 1) / schedule.step_size.value_or(1)));
}

double one_cycle(const Schedule& schedule, int64_t step, int64_t steps) {
  const double last = static_cast<double>(std::max<int64_t>(1, steps)) - 1;
  const double at = std::min(static_cast<double>(step - 1), last);
  const double peak = schedule.pct_start * (last + 1) - 1;  // a step, from 0
  const double first_rate = 1 / schedule.div_factor, last_rate = first_rate / schedule.final_div_factor;
  const auto anneal = [&](double from, double to, double begin, double end) {
    const double done = end > begin ? (at - begin) / (end - begin) : 1;
    return schedule.anneal_strategy == "linear" ? from + (to - from) * done : to + (from - to) * half_cosine(done);
  };
  return at <= peak ? anneal(first_rate, 1, 0, peak) : anneal(1, last_rate, peak, last);
}

bool always(const Schedule&) { return true; }
bool never(const Schedule&) { return false; }

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

/// A note if the rate of each of `steps` steps is 0.
std::string idle_rate(const Recipe& recipe, int64_t steps) {
  const auto& schedule = recipe.lr_scheduler;
  if (steps == 0 || recipe.optimizer.lr == 0) return "";
  constexpr int64_t looked_at = 1000;  // no schedule begins to rise later
  for (int64_t step = 1; step <= std::min(steps, looked_at); ++step)
    if (learning_rate(schedule, recipe.optimizer.lr, step, steps) != 0) return "";
  return fmt::format(
      "the {} schedule{} has the learning rate 0 in {} of this training, so the weights do not change: train more "
      "steps, or set lr_scheduler.name to \"constant\"{}",
      schedule.name, schedule.warmup_steps > 0 ? " with its warm-up" : "",
      steps == 1 ? "the only step" : fmt::format("all {} steps", steps),
      schedule.warmup_steps > 0 ? " and lr_scheduler.warmup_steps to 0" : "");
}

}  // namespace

const std::vector<ScheduleShape>& schedule_shapes() {
  static const std::vector<ScheduleShape> list = {
      {.name = "constant", .needs_end = never, .factor = [](const Schedule&, int64_t, int64_t) { return 1.0; }},
      {.name = "linear", .needs_end = always, .factor = linear},
      {.name = "cosine", .needs_end = always, .factor = cosine},
      {.name = "cosine_with_restarts",
       .needs_end = [](const Schedule& schedule) { return !schedule.cycle_steps; },
       .factor = cosine_with_restarts},
      {.name = "polynomial", .needs_end = always, .factor = polynomial},
      {.name = "inverse_sqrt", .needs_end = never, .factor = inverse_sqrt},
      {.name = "wsd", .needs_end = always, .factor = wsd},
      {.name = "step", .needs_end = never, .factor = stepwise},
      {.name = "one_cycle", .needs_end = always, .factor = one_cycle},
  };
  return list;
}

const ScheduleShape* find_schedule_shape(const std::string& name) {
  const auto& list = schedule_shapes();
  const auto found = std::ranges::find(list, name, &ScheduleShape::name);
  return found == list.end() ? nullptr : &*found;
}

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

std::string warmup_note(const Recipe& recipe, int64_t steps) {
  if (recipe.train.max_steps == steps || recipe.run.fast_dev_run > 0)
    return "";  // schedule_note() has said it, or it is only a trial
  const auto idle = idle_rate(recipe, steps);
  return idle.empty() ? endless_warmup(recipe, steps, fmt::format("the {} of this training", counted(steps, "step")))
                      : idle;
}

std::string schedule_note(const Recipe& recipe) {
  const auto& schedule = recipe.lr_scheduler;
  const auto& last = recipe.train.max_steps;
  const auto trial = recipe.run.fast_dev_run;
  if (auto idle = idle_rate(recipe, trial > 0 ? trial : last.value_or(0)); !idle.empty()) return idle;
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
