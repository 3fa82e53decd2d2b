#include "runner/selection/late_reducer.hpp"

#include <fmt/format.h>

#include "strategies/reducers/built_in.hpp"

namespace runner {

std::optional<std::string> note_on_late_reducer(const Recipe& recipe, const Entry& entry, const Job& job) {
  const auto last = recipe.train.max_steps;
  if (!last || !entry.plan) return std::nullopt;
  const auto plan = entry.plan(job);
  const auto* reducer = find_reducer(plan.reducer.name);
  if (!reducer || !reducer->late_start) return std::nullopt;
  const auto first = reducer->late_start->first_step(plan.reducer.options);
  if (first <= *last) return std::nullopt;
  return fmt::format("`{}` {} from step {} on ({}), and the run ends at step {}: it has no effect", reducer->name,
                     reducer->late_start->does, first, reducer->late_start->option, *last);
}

}  // namespace runner
