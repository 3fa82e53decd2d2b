// Lists and groups of runs, and the words that complete a filter.
#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/curves.hpp"
#include "runner/ledger/filter_sql.hpp"
#include "runner/ui/api.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

constexpr int64_t rows_max = 500;
constexpr int64_t sparkline_points = 48;

json null_or(const sqlite::Statement& row, int column) {
  return row.is_null(column) ? json() : json_number(row.real(column));
}

/// Reads the cells of a run in a table besides its RunRow: progress, speed, memory, a small curve.
class RowReader {
 public:
  explicit RowReader(sqlite::Database& database)
      : database_(database),
        facts_(
            database,
            "SELECT run.run, world_size, json_extract(content, '$.train.max_steps'), json_extract(content, "
            "'$.devices.accelerator'), "
            "json_extract(host, '$.memory_bytes'), coalesce(json_extract(host, "
            "'$.devices[0].memory_bytes'), json_extract(host, '$.cuda[0].memory_bytes')), (SELECT "
            "json_extract(fields, '$.steps') FROM "
            "event WHERE event.run = run.run AND kind = 'ready' ORDER BY event DESC LIMIT 1), notes, (SELECT count(*) "
            "FROM attempt WHERE "
            "attempt.run = run.run), (SELECT sweep.id FROM trial JOIN sweep USING (sweep) WHERE trial.run = run.run), "
            "annotations ->> '$.measured.tokens_per_s', annotations ->> '$.measured.samples_per_s', "
            "annotations ->> '$.measured.memory_bytes_per_rank' FROM run JOIN config ON hash = config WHERE id = ?"),
        last_(database, "SELECT value, max FROM metric_last WHERE run = ? AND key = ?"),
        loss_(metric_key(database, "loss")) {}

  json read(const RunRow& run, double now, bool sparkline) {
    json row = {{"id", run.id},
                {"name", run.name},
                {"status", run.status},
                {"strategy", run.strategy},
                {"started", run.started > 0 ? json(run.started) : json()},
                {"ended", run.ended ? json(*run.ended) : json()},
                {"seconds", run.started > 0 ? json(seconds_taken(run, now)) : json()},
                {"steps", run.steps},
                {"tags", run.tags},
                {"group", run.group},
                {"archived", run.archived},
                {"why", run.why},
                {"loss", run.final_loss ? json_number(*run.final_loss) : json()},
                {"metric", run.metric},
                {"metric_value", run.metric_value ? json_number(*run.metric_value) : json()}};
    facts_.bind(run.id);
    if (!facts_.step()) return row;
    const int64_t number = facts_.integer(0), ranks = facts_.integer(1);
    const json max_steps = !facts_.is_null(6)   ? json(facts_.integer(6))
                           : !facts_.is_null(2) ? json(facts_.integer(2))
                                                : json();
    // A plug-in gives the devices of "auto" in a resolved recipe.
    const bool on_devices = facts_.text(3) == "cuda" || facts_.text(3) == "auto";
    row["ranks"] = ranks;
    row["max_steps"] = max_steps;
    row["notes"] = facts_.text(7);
    row["attempts"] = facts_.integer(8);
    row["sweep"] = facts_.is_null(9) ? json() : json(facts_.text(9));
    // Ranks on CPUs share the memory of the machine; the limit of one of them is its part.
    if (on_devices)
      row["memory_limit"] = null_or(facts_, 5);
    else if (!facts_.is_null(4))
      row["memory_limit"] = facts_.real(4) / static_cast<double>(std::max<int64_t>(1, ranks));
    // Figures of the whole run, as `runner show` says it. While it trains: its last speed and its peak of memory.
    const json measured[] = {null_or(facts_, 10), null_or(facts_, 11), null_or(facts_, 12)};
    facts_.bind(run.id);
    const auto first_of = [](const json& one, const json& other) { return one.is_null() ? other : one; };
    row["memory_bytes"] = first_of(measured[2], last(number, metric::memory_bytes, 1));
    const json tokens = first_of(measured[0], last(number, metric::tokens_per_s));
    row["rate"] = first_of(tokens, first_of(measured[1], last(number, metric::samples_per_s)));
    row["rate_unit"] = tokens.is_null() && !row["rate"].is_null() ? "samples" : "tokens";
    if (const json step_seconds = last(number, "step_seconds");
        run.status == "running" && max_steps.is_number() && step_seconds.is_number())
      row["eta_s"] =
          std::max<double>(0, static_cast<double>(max_steps.get<int64_t>() - run.steps)) * step_seconds.get<double>();
    if (sparkline) {
      json points = json::array();
      for (const double value : sample_curve(database_, number, loss_, sparkline_points)) {
        const auto few_digits = static_cast<float>(value);
        points.push_back(std::isfinite(few_digits) ? json(few_digits) : json(value));
      }
      row["sparkline"] = std::move(points);
    }
    return row;
  }

 private:
  /// `column`: 0 for the last value, 1 for the greatest.
  json last(int64_t run, const std::string& metric, int column = 0) {
    auto [key, added] = keys_.try_emplace(metric, 0);
    if (added) key->second = metric_key(database_, metric);
    last_.bind(run, key->second);
    return last_.step() ? null_or(last_, column) : json();
  }

  sqlite::Database& database_;
  sqlite::Statement facts_, last_;
  int64_t loss_;
  std::map<std::string, int64_t> keys_;
};

/// The columns that the user has chosen (fields, recipe keys, metrics) and their values, by id. A column that no run of this ledger knows
/// is empty, because a page keeps its columns when the ledger becomes another one.
struct Cells {
  json names = json::array();
  json unknown = json::array();  ///< [{column, error}]
  std::map<std::string, json> values;
};

RunColumns wanted_columns(const Request& request) {
  const std::string text = request.parameter("columns");
  try {
    return text.empty() ? RunColumns() : parse_columns(text);
  } catch (const FilterError& error) {
    // A FilterError would make the page mark a place in the filter.
    throw ApiError(400, fmt::format("columns: {}", error.what()));
  }
}

Cells read_cells(const Api& api, const RunColumns& columns, const std::vector<const RunRow*>& runs) {
  Cells cells;
  for (const auto& column : columns.list) cells.names.push_back(column.text());
  if (runs.empty() || columns.list.empty()) return cells;
  RunColumns known{.text = columns.text, .list = {}};
  std::vector<size_t> places;
  {
    const auto database = open_ledger(api);
    const RunFilter all;
    const std::map<int64_t, double> lost;
    FilterSql sql(*database, all, lost);
    for (size_t i = 0; i < columns.list.size(); ++i) {
      try {
        sql.expression(columns.list[i], columns.text);
      } catch (const FilterError& error) {
        cells.unknown.push_back({{"column", cells.names[i]}, {"error", error.message()}});
        continue;
      }
      known.list.push_back(columns.list[i]);
      places.push_back(i);
    }
  }
  RunFilter shown;
  shown.ids.emplace();
  for (const RunRow* run : runs) shown.ids->push_back(run->id);
  for (const auto& row : Ledger(api.readers.home().string(), Ledger::Mode::read).runs(shown, known)) {
    json list(columns.list.size(), json());
    for (size_t i = 0; i < places.size(); ++i) list[places[i]] = row.cells[i];
    cells.values[row.id] = std::move(list);
  }
  return cells;
}

json status_counts(const std::vector<RunRow>& list) {
  json counts = json::object();
  for (const auto& run : list) counts[run.status] = counts.value(run.status, 0) + 1;
  return counts;
}

}  // namespace

Response get_runs(const Api& api, const Request& request, const Captures&) {
  const auto offset = static_cast<size_t>(integer_parameter(request, "offset", 0, 0, 100'000'000));
  const auto limit = static_cast<size_t>(integer_parameter(request, "limit", 100, 0, rows_max));
  const RunColumns columns = wanted_columns(request);
  const auto list = api.lists.matching(request.parameter("filter"));
  std::vector<const RunRow*> shown;
  json unknown = json::array();
  if (const auto ids = list_parameter(request, "runs"); !ids.empty()) {
    std::set<std::string> wanted;
    for (const auto& text : ids) try {
        wanted.insert(run_id(api, text));
      } catch (const ApiError&) {  // the page may ask for one that was removed meanwhile
        unknown.push_back(text);
      }
    for (const auto& run : *list)
      if (wanted.contains(run.id) && shown.size() < static_cast<size_t>(rows_max)) shown.push_back(&run);
  } else {
    for (size_t i = offset; i < std::min(list->size(), offset + limit); ++i) shown.push_back(&(*list)[i]);
  }
  json rows = json::array();
  Cells cells = read_cells(api, columns, shown);
  if (!shown.empty()) {
    const auto database = open_ledger(api);
    RowReader reader(*database);
    const double now = wall_seconds();
    const bool sparkline = request.parameter("sparkline", "yes") != "no";
    for (const RunRow* run : shown) {
      json row = reader.read(*run, now, sparkline);
      if (!columns.list.empty()) row["cells"] = std::move(cells.values[run->id]);
      rows.push_back(std::move(row));
    }
  }
  return json_response({{"runs", rows},
                        {"matching", list->size()},
                        {"offset", offset},
                        {"columns", cells.names},
                        {"unknown_columns", cells.unknown},
                        {"unknown_runs", unknown},
                        {"statuses", status_counts(*list)},
                        {"now", wall_seconds()}});
}

namespace {

/// The numbers of a group's runs. NaN and runs without a number do not count.
class Spread {
 public:
  void add(const std::optional<double>& value) {
    if (!value || std::isnan(*value)) return;
    least_ = runs_ ? std::min(least_, *value) : *value;
    greatest_ = runs_ ? std::max(greatest_, *value) : *value;
    mean_ += (*value - mean_) / static_cast<double>(++runs_);
  }
  /// {runs, mean, least, greatest}; null if no run has a number.
  json to_json() const {
    if (!runs_) return nullptr;
    return {{"runs", runs_},
            {"mean", json_number(mean_)},
            {"least", json_number(least_)},
            {"greatest", json_number(greatest_)}};
  }

 private:
  int64_t runs_ = 0;
  double mean_ = 0, least_ = 0, greatest_ = 0;
};

/// The runs that have one value of a column.
struct Group {
  std::vector<RunRow> runs;

  json read(double now) const {
    Spread loss, metric;
    std::set<std::string> metrics;
    double newest = 0, seconds = 0;
    for (const auto& run : runs) {
      loss.add(run.final_loss);
      metric.add(run.metric_value);
      metrics.insert(run.metric);
      newest = std::max(newest, run.started);
      if (run.started > 0) seconds += seconds_taken(run, now);
    }
    // Values of different metrics have no mean.
    const bool one_metric = metrics.size() == 1 && *metrics.begin() != "loss";
    return {{"runs", runs.size()},
            {"statuses", status_counts(runs)},
            {"loss", loss.to_json()},
            {"metric", one_metric ? *metrics.begin() : ""},
            {"metric_value", one_metric ? metric.to_json() : json()},
            {"newest", newest},
            {"seconds", seconds}};
  }
};

/// `filter` with a term that only the runs of a group fulfil; null if the language of filters has no such term.
json filter_of(const std::string& filter, const RunOperand& column, const RunExpression& expression,
               const json& value) {
  const bool measured = expression.kind == FieldKind::time || expression.kind == FieldKind::duration ||
                        (!expression.has_value_sql.empty() && value.is_null());
  if (measured || expression.kind == FieldKind::words || value.is_array() || value.is_object()) return nullptr;
  std::string text = value.is_null() ? "none" : value.is_string() ? value.get<std::string>() : value.dump();
  if (value.is_boolean() && expression.kind == FieldKind::flag) text = value.get<bool>() ? "yes" : "no";
  if (value.is_string()) {
    std::string exact;
    for (const char c : text)
      exact += std::string_view("*?[").find(c) != std::string_view::npos ? fmt::format("[{}]", c) : std::string(1, c);
    text = text == "none" ? "non[e]" : exact;
  }
  const char* const quote = text.find('"') == std::string::npos    ? "\""
                            : text.find('\'') == std::string::npos ? "'"
                                                                   : "";
  if (!*quote) return nullptr;
  return std::string(trim(fmt::format("{} {}:{}{}{}", filter, column.text(), quote, text, quote)));
}

}  // namespace

/// Groups of runs by the value of the column `by`. A run with several tags is in the group of each.
Response get_groups(const Api& api, const Request& request, const Captures&) {
  const std::string text = request.parameter("filter"), by = request.parameter("by");
  RunColumns columns;
  RunExpression expression;
  try {
    columns = parse_columns(by);
    if (columns.list.size() != 1) throw ApiError(400, "by: name one field, recipe key or metric");
    const RunFilter all;
    const std::map<int64_t, double> lost;
    const auto database = open_ledger(api);
    expression = FilterSql(*database, all, lost).expression(columns.list[0], by);
  } catch (const FilterError& error) {
    // A FilterError would make the page mark a place in the filter.
    throw ApiError(400, fmt::format("by: {}", error.what()));
  }
  const auto list = Ledger(api.readers.home().string(), Ledger::Mode::read).runs(parse_filter(text), columns);
  std::map<json, Group> groups;
  for (const auto& run : list) {
    const json& value = run.cells[0];
    if (expression.kind == FieldKind::list && value.is_array() && !value.empty())
      for (const auto& one : value) groups[one].runs.push_back(run);
    else
      groups[expression.kind == FieldKind::list || value == "" ? json() : value].runs.push_back(run);
  }
  // null is the least value, and is shown last.
  std::vector<std::pair<json, const Group*>> order;
  for (const auto& [value, group] : groups) order.emplace_back(value, &group);
  if (!order.empty() && order.front().first.is_null()) std::ranges::rotate(order, order.begin() + 1);
  json rows = json::array();
  for (const auto& [value, group] : order | std::views::take(rows_max)) {
    json row = group->read(wall_seconds());
    row["value"] = value;
    row["filter"] = filter_of(text, columns.list[0], expression, value);
    rows.push_back(std::move(row));
  }
  return json_response({{"groups", rows},
                        {"left_out", order.size() - rows.size()},
                        {"total", list.size()},
                        {"statuses", status_counts(list)},
                        {"now", wall_seconds()}});
}

ChosenRuns chosen_runs(const Api& api, const Request& request, size_t most) {
  ChosenRuns chosen;
  auto ids = list_parameter(request, "runs");
  for (auto& id : ids) id = run_id(api, id);
  if (ids.empty() && request.parameter("filter").empty() && request.query.count("filter") == 0)
    throw ApiError(400, "name runs with `runs`, their ids or names with commas between, or with `filter`");
  const auto add = [&](const std::string& id, const std::string& name) {
    if (chosen.rows.size() < most)
      chosen.rows.push_back({.id = id, .name = name});
    else
      ++chosen.left_out;
  };
  if (ids.empty()) {
    for (const auto& run : *api.lists.matching(request.parameter("filter"))) add(run.id, run.name);
    return chosen;
  }
  const auto database = open_ledger(api);
  sqlite::Statement named(*database, "SELECT name FROM run WHERE id = ?");
  for (const auto& id : ids) {
    named.bind(id);
    if (!named.step()) throw ApiError(404, fmt::format("there is no run \"{}\"", id));
    add(id, named.text(0));
    named.bind(id);
  }
  return chosen;
}

namespace {

/// The completions at the cursor of a filter's field; offsets are bytes of the text.
Response complete(const Api& api, const Request& request) {
  const std::string text = request.parameter("text");
  const auto cursor = static_cast<size_t>(
      integer_parameter(request, "cursor", static_cast<int64_t>(text.size()), 0, static_cast<int64_t>(text.size())));
  const auto found = Ledger(api.readers.home().string(), Ledger::Mode::read).complete_filter(text, cursor);
  json list = json::array();
  for (const auto& candidate : found.candidates) list.push_back({{"text", candidate.text}, {"about", candidate.about}});
  return json_response({{"offset", found.place.offset}, {"length", found.place.length}, {"candidates", list}});
}

}  // namespace

Response get_words(const Api& api, const Request& request, const Captures&) {
  if (request.query.contains("text")) return complete(api, request);
  json fields = json::array(), keys = json::array(), metrics = json::array(), tags = json::array(),
       groups = json::array(), names = json::array();
  for (const auto& field : run_fields()) fields.push_back({{"name", field.name}, {"help", field.help}});
  if (const auto database = api.readers.take()) {
    keys = database->texts("SELECT name FROM config_key ORDER BY name LIMIT 2000");
    metrics = database->texts("SELECT name FROM key ORDER BY name LIMIT 2000");
    tags = database->texts("SELECT DISTINCT value FROM run, json_each(run.tags) ORDER BY 1 LIMIT 500");
    groups = database->texts("SELECT DISTINCT grp FROM run WHERE grp <> '' ORDER BY 1 LIMIT 500");
    names = database->texts("SELECT DISTINCT name FROM run ORDER BY 1 LIMIT 500");
  }
  return json_response({{"fields", fields},
                        {"keys", keys},
                        {"metrics", metrics},
                        {"tags", tags},
                        {"groups", groups},
                        {"names", names},
                        {"statuses", run_statuses()}});
}

}  // namespace runner::ui
