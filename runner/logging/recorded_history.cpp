#include "runner/logging/recorded_history.hpp"

#include <ctime>

#include "runner/base/clock.hpp"

namespace runner {

std::map<int64_t, StepValues> recorded_history(const AttemptStart& attempt) {
  std::map<int64_t, StepValues> steps;
  for (const auto& name : attempt.ledger.metric_names(attempt.run))
    for (const auto& [step, value] : attempt.ledger.points(attempt.run, name)) steps[step][name] = value;
  return steps;
}

double start_of_run(const std::string& run) {
  std::tm utc{};
  const char* end = ::strptime(run.c_str(), "%Y%m%d-%H%M%S-", &utc);
  return end ? static_cast<double>(::timegm(&utc)) : wall_seconds();
}

}  // namespace runner
