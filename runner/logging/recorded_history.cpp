#include "runner/logging/recorded_history.hpp"

#include <algorithm>
#include <ctime>

#include "runner/base/clock.hpp"

namespace runner {

void each_recorded_step(const AttemptStart& attempt,
                        const std::function<void(int64_t step, const StepValues& values)>& take) {
  struct Point {
    int64_t step;
    size_t name;
    double value;
  };
  std::vector<Point> points;
  const auto names = attempt.ledger.metric_names(attempt.run);
  for (size_t i = 0; i < names.size(); ++i)
    for (const auto& [step, value] : attempt.ledger.points(attempt.run, names[i])) points.push_back({step, i, value});
  std::ranges::sort(points, {}, [](const Point& point) { return std::pair(point.step, point.name); });
  StepValues values;
  for (size_t i = 0; i < points.size(); ++i) {
    values.emplace_hint(values.end(), names[points[i].name], points[i].value);
    if (i + 1 < points.size() && points[i + 1].step == points[i].step) continue;
    take(points[i].step, values);
    values.clear();
  }
}

double start_of_run(const std::string& run) {
  std::tm utc{};
  const char* end = ::strptime(run.c_str(), "%Y%m%d-%H%M%S-", &utc);
  return end ? static_cast<double>(::timegm(&utc)) : wall_seconds();
}

}  // namespace runner
