// Curves and the names of metrics.
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/json_text.hpp"
#include "runner/ledger/curves.hpp"
#include "runner/ui/api.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

constexpr size_t curves_max = 2000;
/// For a zoom or an export that shows every point: of one curve, and of all curves together.
constexpr int64_t columns_max = 1'000'000, all_columns_max = 8 * columns_max;

CurveRequest curve_request(const Request& request) {
  CurveRequest wanted;
  wanted.metric = request.parameter("metric", "loss");
  wanted.x = request.parameter("x", "step");
  wanted.from = number_parameter(request, "from");
  wanted.to = number_parameter(request, "to");
  wanted.columns = integer_parameter(request, "pixels", wanted.columns, 1, columns_max);
  wanted.smoothing = number_parameter(request, "smoothing").value_or(0);
  if (wanted.smoothing < 0 || wanted.smoothing >= 1)
    throw ApiError(400, "smoothing must be at least 0 and less than 1");
  return wanted;
}

/// Reads the curves with several connections. The element of a run without the metric is unset.
std::vector<std::optional<Curve>> read_curves(const Api& api, const std::vector<int64_t>& runs,
                                              const CurveRequest& wanted, const CurveRange& range) {
  std::vector<std::optional<Curve>> curves(runs.size());
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    try {
      const auto database = open_ledger(api);
      for (size_t i = next++; i < runs.size(); i = next++)
        if (runs[i] != 0) curves[i] = read_curve(*database, runs[i], wanted, range);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      failure = std::current_exception();
      next = runs.size();
    }
  };
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  // One curve is read in milliseconds; starting a thread is not worth it for few. One connection stays free for other requests.
  const size_t helpers = std::min({cores, api.readers.most() - 1, runs.size() / 8 + 1}) - 1;
  std::vector<std::thread> threads;
  {
    const BlockedSignals blocked;
    try {
      for (size_t i = 0; i < helpers; ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {  // the system has no thread now: those that there are read all
    }
  }
  work();
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return curves;
}

json head_of(const std::string& id, const Curve& curve) {
  json head{{"run", id}, {"points", curve.points}, {"complete", curve.complete}};
  if (curve.before) head["before"] = *curve.before;
  if (curve.after) head["after"] = *curve.after;
  if (curve.without_x > 0) head["without_x"] = curve.without_x;
  if (curve.nonfinite > 0)
    head["nonfinite"] = {{"count", curve.nonfinite},
                         {"nan", curve.nan_x},
                         {"infinity", curve.infinity_x},
                         {"minus_infinity", curve.minus_infinity_x}};
  return head;
}

/// For a thousand curves, text would take longer to write and to read than the curves themselves. Layout: README.md.
Response binary_response(json head, const std::vector<std::optional<Curve>>& curves) {
  std::string text = json_text(head);
  while ((text.size() + 8) % 8 != 0) text += ' ';
  size_t numbers = 0;
  for (const auto& curve : curves)
    if (curve) numbers += 2 * (curve->x.size() + curve->smooth_x.size());
  Response response{.type = "application/vnd.runner.curves"};
  response.body.reserve(8 + text.size() + 8 * numbers);
  const uint64_t length = text.size();
  response.body.append(reinterpret_cast<const char*>(&length), sizeof length);
  response.body += text;
  for (const auto& curve : curves)
    if (curve)
      for (const auto* list : {&curve->x, &curve->y, &curve->smooth_x, &curve->smooth_y})
        response.body.append(reinterpret_cast<const char*>(list->data()), list->size() * sizeof(double));
  return response;
}

}  // namespace

Response get_curves(const Api& api, const Request& request, const Captures&) {
  CurveRequest wanted = curve_request(request);
  const auto chosen = chosen_runs(api, request, curves_max);
  wanted.columns = std::min(wanted.columns, all_columns_max / std::max<int64_t>(1, std::ssize(chosen.rows)));
  std::vector<int64_t> rows;
  std::optional<CurveRange> range;
  {
    const auto database = open_ledger(api);
    for (const auto& run : chosen.rows) rows.push_back(run_row(*database, run.id));
    range = curve_range(*database, rows, wanted);
  }
  std::vector<std::optional<Curve>> curves(rows.size());
  if (range && range->low <= range->high) curves = read_curves(api, rows, wanted, *range);
  json list = json::array(), missing = json::array();
  const bool binary = request.parameter("format") == "binary";
  for (size_t i = 0; i < curves.size(); ++i) {
    if (!curves[i]) {
      missing.push_back(chosen.rows[i].id);
      continue;
    }
    json one = head_of(chosen.rows[i].id, *curves[i]);
    one["name"] = chosen.rows[i].name;
    if (binary) {
      one["count"] = curves[i]->x.size();
      one["smooth_count"] = curves[i]->smooth_x.size();
    } else {
      one["x"] = curves[i]->x;
      one["y"] = curves[i]->y;
      if (wanted.smoothing > 0) one["smooth"] = {{"x", curves[i]->smooth_x}, {"y", curves[i]->smooth_y}};
    }
    list.push_back(std::move(one));
  }
  json head{{"metric", wanted.metric}, {"x", wanted.x},      {"range", range ? json{range->low, range->high} : json()},
            {"curves", list},          {"missing", missing}, {"left_out", chosen.left_out}};
  if (!binary) return json_response(std::move(head));
  head["schema"] = 1;
  return binary_response(std::move(head), curves);
}

Response get_metrics(const Api& api, const Request& request, const Captures&) {
  const auto chosen = chosen_runs(api, request, curves_max);
  if (chosen.rows.empty()) return json_response({{"metrics", json::array()}, {"runs", 0}});
  const auto database = open_ledger(api);
  std::map<std::string, int64_t> counts;
  sqlite::Statement names(
      *database, "SELECT name FROM metric_last JOIN key USING (key) WHERE run = (SELECT run FROM run WHERE id = ?)");
  for (const auto& run : chosen.rows) {
    names.bind(run.id);
    while (names.step()) ++counts[names.text(0)];
  }
  json list = json::array();
  for (const auto& [name, count] : counts) list.push_back({{"name", name}, {"runs", count}});
  return json_response({{"metrics", list}, {"runs", chosen.rows.size()}});
}

}  // namespace runner::ui
