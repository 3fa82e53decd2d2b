#include "runner/config/schedule_shapes.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

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

}  // namespace runner
