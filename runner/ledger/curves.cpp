#include "runner/ledger/curves.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runner/ledger/ledger_impl.hpp"

namespace runner {

namespace {

/// The points of one column of pixels.
struct Column {
  int64_t index = -1;
  int64_t count = 0;
  double first_x = 0, first_y = 0, last_x = 0, last_y = 0;
  double least_x = 0, least_y = 0, greatest_x = 0, greatest_y = 0;

  void add(double x, double y) {
    if (count++ == 0) {
      first_x = least_x = greatest_x = x;
      first_y = least_y = greatest_y = y;
    }
    if (y < least_y) least_x = x, least_y = y;
    if (y > greatest_y) greatest_x = x, greatest_y = y;
    last_x = x;
    last_y = y;
  }
};

/// The step at a place that may be beyond all steps.
int64_t whole_step(double place) {
  constexpr double limit = 9.2e18;
  return static_cast<int64_t>(std::clamp(place, -limit, limit));
}

class CurveReducer {
 public:
  CurveReducer(const CurveRequest& request, const CurveRange& range)
      : range_(range),
        columns_(std::max<int64_t>(1, request.columns)),
        scale_(range.high > range.low ? static_cast<double>(columns_) / (range.high / 2 - range.low / 2) / 2 : 0),
        weight_(request.smoothing) {}

  void add(std::optional<double> place, double y) {
    if (!place) return static_cast<void>(++curve_.without_x);
    const double x = *place;
    const bool finite = std::isfinite(y);
    if (finite && weight_ > 0) {
      average_ = weight_ * average_ + (1 - weight_) * y;
      missing_ *= weight_;
    }
    if (!(x >= range_.low && x <= range_.high)) {
      const std::array<double, 3> neighbour{x, y, weight_ > 0 ? average_ / (1 - missing_) : y};
      if (finite && x < range_.low) curve_.before = neighbour;
      if (finite && x > range_.high && !curve_.after) curve_.after = neighbour;
      return;
    }
    ++curve_.points;
    const double column = (x / 2 - range_.low / 2) * (2 * scale_);  // the range may be longer than any number
    const auto index = column < static_cast<double>(columns_ - 1) ? static_cast<int64_t>(column) : columns_ - 1;
    if (!finite) return mark(x, y, index);
    if (index != column_.index) {
      end_column();
      column_ = {.index = index};
    }
    column_.add(x, y);
    if (weight_ > 0) average_at_end_ = average_ / (1 - missing_);
    if (curve_.points <= 2 * columns_) {
      all_x_.push_back(x);
      all_y_.push_back(y);
    }
  }

  Curve take() {
    end_column();
    if (column_.count > 0) put(column_.last_x, column_.last_y);  // where the curve has arrived
    if (curve_.points <= 2 * columns_) {
      curve_.x = std::move(all_x_);
      curve_.y = std::move(all_y_);
      curve_.complete = curve_.without_x == 0;
    }
    return std::move(curve_);
  }

 private:
  void mark(double x, double y, int64_t index) {
    ++curve_.nonfinite;
    const int kind = std::isnan(y) ? 0 : y > 0 ? 1 : 2;
    if (marked_[kind] == index) return;
    marked_[kind] = index;
    (kind == 0 ? curve_.nan_x : kind == 1 ? curve_.infinity_x : curve_.minus_infinity_x).push_back(x);
  }

  void put(double x, double y) {
    if (!curve_.x.empty() && curve_.x.back() == x && curve_.y.back() == y)
      return;  // several steps may have one x value
    curve_.x.push_back(x);
    curve_.y.push_back(y);
  }

  void end_column() {
    const Column& c = column_;
    if (c.count == 0) return;
    if (curve_.x.empty()) put(c.first_x, c.first_y);
    if (c.least_x <= c.greatest_x) {
      put(c.least_x, c.least_y);
      put(c.greatest_x, c.greatest_y);
    } else {
      put(c.greatest_x, c.greatest_y);
      put(c.least_x, c.least_y);
    }
    if (weight_ > 0) {
      curve_.smooth_x.push_back(c.last_x);
      curve_.smooth_y.push_back(average_at_end_);
    }
  }

  CurveRange range_;
  int64_t columns_;
  double scale_, weight_;
  double average_ = 0, missing_ = 1;
  double average_at_end_ = 0;  ///< after the last point of the column
  int64_t marked_[3] = {-1, -1, -1};
  Column column_;
  std::vector<double> all_x_, all_y_;
  Curve curve_;
};

/// Gives the points of these steps, and one on each side, to the reducer by an aggregate function of SQL, which takes
/// half of the time of a loop over rows.
void reduce_all(sqlite::Database& database, CurveReducer& reducer, int64_t run, int64_t key, int64_t first,
                int64_t last) {
  const auto step = [](sqlite3_context* context, int, sqlite3_value** values) {
    auto& to = *static_cast<CurveReducer*>(sqlite3_user_data(context));
    const bool nan = sqlite3_value_type(values[1]) == SQLITE_NULL;
    to.add(static_cast<double>(sqlite3_value_int64(values[0])),
           nan ? std::numeric_limits<double>::quiet_NaN() : sqlite3_value_double(values[1]));
  };
  const auto end = [](sqlite3_context* context) { sqlite3_result_null(context); };
  database.check(sqlite3_create_function_v2(database.handle(), "reduce_curve", 2, SQLITE_UTF8, &reducer, nullptr, step,
                                            end, nullptr));
  database.run(
      "SELECT reduce_curve(step, value) FROM metric WHERE run = ?1 AND key = ?2 AND step >= coalesce((SELECT max(step) "
      "FROM metric WHERE run = ?1 AND key = ?2 AND step < ?3), ?3) AND step <= coalesce((SELECT min(step) FROM metric "
      "WHERE run = ?1 AND key = ?2 AND step > ?4), ?4)",
      run, key, first, last);
}

}  // namespace

int64_t metric_key(sqlite::Database& database, const std::string& name) {
  auto row = database.query("SELECT key FROM key WHERE name = ?", name);
  return row.step() ? row.integer(0) : 0;
}

std::optional<CurveRange> curve_range(sqlite::Database& database, const std::vector<int64_t>& runs,
                                      const CurveRequest& request) {
  const bool by_step = request.x == "step";
  const int64_t key = metric_key(database, by_step ? request.metric : request.x);
  sqlite::Statement ends(database, by_step ? "SELECT (SELECT min(step) FROM metric WHERE run = ?1 AND key = ?2), "
                                             "(SELECT max(step) FROM metric WHERE run = ?1 AND key = ?2)"
                                           : "SELECT min, max FROM metric_last WHERE run = ?1 AND key = ?2");
  std::optional<CurveRange> range;
  for (const int64_t run : runs) {
    ends.bind(run, key);
    if (!ends.step() || ends.is_null(0) || ends.is_null(1)) continue;
    const double low = ends.real(0), high = ends.real(1);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    range = range ? CurveRange{std::min(range->low, low), std::max(range->high, high)} : CurveRange{low, high};
  }
  if (range && request.from) range->low = std::max(range->low, *request.from);
  if (range && request.to) range->high = std::min(range->high, *request.to);
  return range;
}

std::optional<Curve> read_curve(sqlite::Database& database, int64_t run, const CurveRequest& request,
                                const CurveRange& range) {
  const int64_t key = metric_key(database, request.metric);
  CurveReducer reducer(request, range);
  if (request.x == "step") {
    // Smoothing depends on all earlier points.
    const double first = request.smoothing > 0 ? std::numeric_limits<int64_t>::min() / 2 : std::ceil(range.low);
    reduce_all(database, reducer, run, key, whole_step(first), whole_step(std::floor(range.high)));
  } else {
    const char* const points = "SELECT step, value FROM metric WHERE run = ? AND key = ? ORDER BY step";
    auto x_rows = database.query(points, run, metric_key(database, request.x));
    StepAxis axis([&]() -> std::optional<StepAxis::Point> {
      if (!x_rows.step()) return {};
      return StepAxis::Point(x_rows.integer(0), metric_value(x_rows, 1));
    });
    auto rows = database.query(points, run, key);
    while (rows.step()) reducer.add(axis.at(rows.integer(0)), metric_value(rows, 1));
  }
  Curve curve = reducer.take();
  if (curve.points > 0) return curve;
  auto known = database.query("SELECT 1 FROM metric_last WHERE run = ? AND key = ?", run, key);
  return known.step() ? std::optional(curve) : std::nullopt;
}

std::vector<double> sample_curve(sqlite::Database& database, int64_t run, int64_t key, int64_t count) {
  std::vector<double> values;
  sqlite::Statement ends(database,
                         "SELECT (SELECT min(step) FROM metric WHERE run = ?1 AND key = ?2), "
                         "(SELECT max(step) FROM metric WHERE run = ?1 AND key = ?2)");
  ends.bind(run, key);
  if (!ends.step() || ends.is_null(0)) return values;
  const int64_t low = ends.integer(0), high = ends.integer(1);
  sqlite::Statement next(
      database, "SELECT step, value FROM metric WHERE run = ? AND key = ? AND step >= ? ORDER BY step LIMIT 1");
  int64_t last = std::numeric_limits<int64_t>::min();
  for (int64_t i = 0; i < count; ++i) {
    const auto step = whole_step(std::floor(
        static_cast<double>(low) + (static_cast<double>(high) - static_cast<double>(low)) * static_cast<double>(i) /
                                       static_cast<double>(std::max<int64_t>(1, count - 1))));
    if (step <= last) continue;
    next.bind(run, key, step);
    if (!next.step()) break;
    last = next.integer(0);
    if (const double value = metric_value(next, 1); std::isfinite(value)) values.push_back(value);
  }
  return values;
}

StepAxis::StepAxis(std::function<std::optional<Point>()> next) : next_(std::move(next)) { advance(); }

void StepAxis::advance() {
  do after_ = next_();
  while (after_ && !std::isfinite(after_->second));
}

std::optional<double> StepAxis::at(int64_t step) {
  while (after_ && after_->first <= step) {
    before_ = after_;
    advance();
  }
  if (!before_) return {};
  if (before_->first == step) return before_->second;
  if (!after_) return {};
  const auto begin = static_cast<double>(before_->first), passed = static_cast<double>(step) - begin,
             all = static_cast<double>(after_->first) - begin;
  return before_->second + (after_->second - before_->second) * passed / all;  // exact for whole numbers
}

TrainedTime::TrainedTime(sqlite::Database& database, int64_t run) {
  double before = 0;
  auto rows = database.query(
      "SELECT started, ifnull(ended, heartbeat) FROM attempt WHERE run = ? ORDER BY started, number", run);
  while (rows.step()) {
    const double seconds = std::max(0.0, rows.real(1) - rows.real(0));
    attempts_.push_back({.started = rows.real(0), .seconds = seconds, .seconds_before = before});
    before += seconds;
  }
  // The last one may go on.
  if (!attempts_.empty()) attempts_.back().seconds = std::numeric_limits<double>::infinity();
}

double TrainedTime::at(double time) const {
  const auto next = std::ranges::upper_bound(attempts_, time, {}, &Attempt::started);
  if (next == attempts_.begin()) return 0;
  const Attempt& attempt = *std::prev(next);
  return attempt.seconds_before + std::min(time - attempt.started, attempt.seconds);
}

}  // namespace runner
