#include "runner/logging/run_listener.hpp"

#include <algorithm>
#include <ctime>
#include <exception>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"

namespace runner {

template <typename Call>
void RunListeners::tell_other(size_t i, Call&& call) {
  const auto listener = others_[i];  // stays alive if it fails during a call that it caused itself
  if (!listener) return;
  try {
    call(*listener);
  } catch (const std::exception& error) {
    log::warning("{}; the training continues without {}", error.what(), listener->title());
    others_[i].reset();
  }
}

template <typename Call>
void RunListeners::tell(Call&& call) {
  call(ledger_);
  for (size_t i = 0; i < others_.size(); ++i) tell_other(i, call);
}

void RunListeners::begin(const AttemptStart& attempt) {
  tell([&](RunListener& one) { one.begin(attempt); });
}

void RunListeners::points(const PointGroup& group) {
  if (!group.points.empty()) tell([&](RunListener& one) { one.points(group); });
}

void RunListeners::event(const std::string& kind, const nlohmann::json& fields) {
  tell([&](RunListener& one) { one.event(kind, fields); });
}

void RunListeners::artifact(const std::string& kind, const std::string& path, const nlohmann::json& fields) {
  tell([&](RunListener& one) { one.artifact(kind, path, fields); });
}

void RunListeners::tick() {
  tell([](RunListener& one) { one.tick(); });
}

void RunListeners::end(const RunEnd& end) {
  std::exception_ptr failure;  // of the ledger; it must not hide why the run ended
  try {
    ledger_.end(end);
  } catch (...) {
    failure = std::current_exception();
  }
  for (size_t i = others_.size(); i-- > 0;) tell_other(i, [&](RunListener& one) { one.end(end); });
  if (failure) std::rethrow_exception(failure);
}

std::vector<std::string> RunListeners::places() const {
  std::vector<std::string> places;
  for (const auto& one : others_)
    if (one && !one->place().empty()) places.push_back(one->place());
  return places;
}

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
