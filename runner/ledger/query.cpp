// Reads the ledger.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/curves.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/run_id.hpp"
#include "runner/ledger/run_kinds.hpp"

namespace runner {

namespace {

using nlohmann::json;

json read_metrics(sqlite::Database& database, int64_t run) {
  json metrics = json::object();
  auto rows = database.query("SELECT name, value, min, max FROM metric_last JOIN key USING (key) WHERE run = ?", run);
  while (rows.step())
    metrics[rows.text(0)] = {{"last", json_number(metric_value(rows, 1))},
                             {"min", json_number(metric_value(rows, 2))},
                             {"max", json_number(metric_value(rows, 3))}};
  return metrics;
}

json read_attempts(sqlite::Database& database, int64_t run) {
  json attempts = json::array();
  auto rows = database.query(
      "SELECT number, reason, from_step, host, pid, started, heartbeat, ended, strategy, world_size, argv, build_id, "
      "git, (SELECT content FROM config WHERE hash = attempt.config) FROM attempt WHERE run = ? ORDER BY number",
      run);
  const auto parsed = [&](int column) { return rows.is_null(column) ? json(nullptr) : json::parse(rows.text(column)); };
  while (rows.step())
    attempts.push_back({{"number", rows.integer(0)},
                        {"reason", rows.is_null(1) ? json(nullptr) : json(rows.text(1))},
                        {"from_step", rows.integer(2)},
                        {"host", rows.text(3)},
                        {"pid", rows.integer(4)},
                        {"started", rows.real(5)},
                        {"heartbeat", rows.real(6)},
                        {"ended", or_null(rows.optional_real(7))},
                        {"strategy", rows.is_null(8) ? json(nullptr) : json(rows.text(8))},
                        {"world_size", rows.is_null(9) ? json(nullptr) : json(rows.integer(9))},
                        {"argv", parsed(10)},
                        {"build_id", rows.is_null(11) ? json(nullptr) : json(rows.text(11))},
                        {"git", parsed(12)},
                        {"config", parsed(13)}});
  return attempts;
}

json read_events(sqlite::Database& database, int64_t run) {
  json events = json::array();
  auto rows = database.query("SELECT time, kind, fields FROM event WHERE run = ? ORDER BY event", run);
  while (rows.step()) {
    json event = json::parse(rows.text(2));
    if (!event.is_object()) event = {{"fields", std::move(event)}};
    event["time"] = rows.real(0);
    event["event"] = rows.text(1);
    events.push_back(std::move(event));
  }
  return events;
}

/// Reads the checkpoints, or all other artifacts. If a path was recorded several times (a restarted run writes a step
/// again), only the last record is used.
json read_artifacts(sqlite::Database& database, int64_t run, const fs::path& folder, bool checkpoints) {
  json artifacts = json::array();
  auto rows = database.query(
      "SELECT time, kind, path, fields FROM artifact WHERE run = ?1 AND (kind = 'checkpoint') = ?2 "
      "AND artifact IN (SELECT max(artifact) FROM artifact WHERE run = ?1 GROUP BY kind, path) ORDER BY artifact",
      run, checkpoints);
  while (rows.step()) {
    json artifact = json::parse(rows.text(3));
    if (!artifact.is_object()) artifact = {{"fields", std::move(artifact)}};
    artifact["time"] = rows.real(0);
    if (!checkpoints) artifact["kind"] = rows.text(1);
    artifact["path"] = rows.text(2);
    std::error_code error;
    artifact["exists"] = fs::exists(folder / rows.text(2), error);
    artifacts.push_back(std::move(artifact));
  }
  return artifacts;
}

/// {id, name, trial} of the run's sweep; null if the run is not a trial.
json read_sweep(sqlite::Database& database, int64_t run) {
  auto row = database.query("SELECT id, name, number FROM trial JOIN sweep USING (sweep) WHERE run = ?", run);
  if (!row.step()) return nullptr;
  return {{"id", row.text(0)}, {"name", row.text(1)}, {"trial", row.integer(2)}};
}

/// [{id, name, kind, started, metrics}] of the runs that are linked to this one (run_kinds.hpp): those that came from it, or the one
/// that it came from.
json read_edges(sqlite::Database& database, int64_t run, bool children) {
  json list = json::array();
  const std::string here = children ? "source" : "target", there = children ? "target" : "source";
  auto rows = database.query("SELECT run.run, id, name, kind, started FROM edge JOIN run ON run.run = edge." + there +
                                 " WHERE edge." + here + " = ? ORDER BY started, run.run",
                             run);
  while (rows.step()) {
    json edge{{"id", rows.text(1)}, {"name", rows.text(2)}, {"kind", rows.text(3)}, {"started", rows.real(4)}};
    if (children) edge["metrics"] = read_metrics(database, rows.integer(0));
    list.push_back(std::move(edge));
  }
  return list;
}

/// Throws Error(usage) if `text` is the id or the name of a run in the trash, or the id of one that was purged.
void refuse_hidden(sqlite::Database& database, const std::string& text) {
  auto trashed = database.query(
      "SELECT id FROM run WHERE deleted IS NOT NULL AND (id = ?1 OR name = ?1 OR substr(id, -length(?1) - 1) = '-' || "
      "?1) ORDER BY deleted DESC",
      text);
  if (trashed.step())
    throw usage_error("run {} is in the trash: `runner restore {}` brings it back", trashed.text(0), trashed.text(0));
  auto purged = database.query(
      "SELECT id, time, who FROM purged WHERE id = ?1 OR name = ?1 OR substr(id, -length(?1) - 1) = '-' || ?1 "
      "ORDER BY time DESC",
      text);
  if (purged.step())
    throw usage_error("run {} was deleted for good at {} by {}", purged.text(0), format_time(purged.real(1)),
                      purged.text(2));
}

}  // namespace

json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string Ledger::find_run(const std::string& text) const {
  const std::string file = fs::absolute(impl_->path).lexically_normal().string();
  if (text.empty()) throw usage_error("an empty text names no run");
  std::vector<std::string> ids, similar, matches;
  std::set<std::string> begun_names;  // that begin with the text
  std::string newest_of_name, newest, newest_training, newest_begun;
  int of_name = 0;
  bool named_exactly = false;
  if (impl_->database) {
    auto rows = impl_->database->query(
        "SELECT id, name, strategy, EXISTS (SELECT 1 FROM imported WHERE imported.run = run.run AND kind <> 'bundle'), "
        "archived IS NOT NULL FROM run WHERE deleted IS NULL ORDER BY started, run");
    while (rows.step()) {
      const std::string id = rows.text(0), name = rows.text(1);
      if (id == text) return id;
      if (name == text) {
        newest_of_name = id;
        ++of_name;
      }
      if (shortens(text, id)) matches.push_back(id);
      named_exactly |= name == text || id_end(id) == text;
      if (name.starts_with(text)) {
        begun_names.insert(name);
        newest_begun = id;
      }
      ids.push_back(id);
      if (rows.integer(4) == 0) newest = id;
      if (rows.integer(4) == 0 && trains(rows.text(2)) && rows.integer(3) == 0) newest_training = id;
      similar.insert(similar.end(), {name, id, id_end(id)});
    }
  }
  if (impl_->database && !named_exactly && text != "last") refuse_hidden(*impl_->database, text);
  if (ids.empty())
    throw usage_error("there is no run \"{}\": {} {}; RUNNER_HOME=FOLDER names another ledger", text,
                      impl_->database ? "there are no runs in" : "there is no ledger", file);
  if (text == "last" && newest.empty())
    throw usage_error("there is no last run: all runs in {} are archived; `runner ls archived:yes` lists them", file);
  if (text == "last") return newest_training.empty() ? newest : newest_training;
  if (of_name > 1) log::info("note: {} runs are named \"{}\"; the newest is {}", of_name, text, newest_of_name);
  if (of_name > 0) return newest_of_name;
  if (matches.size() == 1) return matches[0];
  if (matches.empty() && begun_names.size() == 1) return newest_begun;
  if (matches.empty()) matches.assign(begun_names.begin(), begun_names.end());
  if (matches.size() > 1) {
    constexpr size_t shown = 5;
    std::string list = join_or({matches.end() - std::min(shown, matches.size()), matches.end()});
    if (matches.size() > shown) list += fmt::format(" ({} more)", matches.size() - shown);
    throw usage_error("\"{}\" names {} runs: {}", text, matches.size(), list);
  }
  const auto near = nearest(text, similar);
  throw usage_error("there is no run \"{}\" in {}{}; `runner ls` lists all, RUNNER_HOME=FOLDER names another ledger",
                    text, file, near ? fmt::format(": did you mean \"{}\"?", *near) : "");
}

std::string Ledger::run_dir(const std::string& run) const {
  const int64_t number = impl_->row_of(run);
  return (impl_->home / impl_->database->text("SELECT folder FROM run WHERE run = ?", number)).string();
}

std::map<int64_t, int64_t> Ledger::attempts(const std::string& run) const {
  std::map<int64_t, int64_t> begun;
  auto rows = impl_->database->query("SELECT number, from_step FROM attempt WHERE run = ? AND reason IS NOT NULL",
                                     impl_->row_of(run));
  while (rows.step()) begun[rows.integer(0)] = rows.integer(1);
  return begun;
}

json Ledger::show(const std::string& run) const {
  const int64_t number = impl_->row_of(run);
  auto& database = *impl_->database;
  auto rest = database.query(
      "SELECT exit_code, message, notes, world_size, working_directory, argv, build_id, git, host, "
      "  (SELECT content FROM config WHERE hash = recipe), (SELECT content FROM config WHERE hash = resolved), "
      "  (SELECT content FROM config WHERE hash = run.config), (SELECT content FROM config WHERE hash = origins), "
      "  (SELECT content FROM config WHERE hash = plan), annotations "
      "FROM run WHERE run = ?",
      number);
  RUNNER_CHECK(rest.step());
  const std::string folder = run_dir(run);
  // Annotations are first, so none of a stranger's record replaces a field of the ledger.
  json all{{"predicted", nullptr}, {"measured", nullptr}};
  all.update(json::parse(rest.text(14)));
  all.update(to_json(impl_->row(number)));
  all.update({{"exit_code", rest.is_null(0) ? json(nullptr) : json(rest.integer(0))},
              {"message", rest.is_null(1) ? json(nullptr) : json(rest.text(1))},
              {"notes", rest.text(2)},
              {"world_size", rest.integer(3)},
              {"run_dir", folder},
              {"working_directory", rest.text(4)},
              {"argv", json::parse(rest.text(5))},
              {"build_id", rest.text(6)},
              {"git", json::parse(rest.text(7))},
              {"host", json::parse(rest.text(8))},
              {"recipe", rest.text(9)},
              {"resolved", rest.text(10)},
              {"config", json::parse(rest.text(11))},
              {"origins", json::parse(rest.text(12))},
              {"plan", json::parse(rest.text(13))}});
  all["sweep"] = read_sweep(database, number);
  all["metrics"] = read_metrics(database, number);
  all["system"] = json::object();
  for (const auto& [name, values] : system_summaries(run))
    all["system"][name] = {{"count", values.count}, {"mean", values.mean}, {"min", values.min}, {"max", values.max}};
  all["parents"] = read_edges(database, number, /*children=*/false);
  all["children"] = read_edges(database, number, /*children=*/true);
  all["attempts"] = read_attempts(database, number);
  all["checkpoints"] = read_artifacts(database, number, folder, true);
  all["artifacts"] = read_artifacts(database, number, folder, false);
  all["events"] = read_events(database, number);
  all["changes"] = read_changes(database, number);
  return all;
}

std::vector<std::pair<int64_t, double>> Ledger::points(const std::string& run, const std::string& metric) const {
  const int64_t number = impl_->row_of(run);
  std::vector<std::pair<int64_t, double>> points;
  auto rows = impl_->database->query(
      "SELECT step, value FROM metric WHERE run = ? AND key = (SELECT key FROM key WHERE name = ?) ORDER BY step",
      number, metric);
  while (rows.step()) points.emplace_back(rows.integer(0), metric_value(rows, 1));
  if (!points.empty()) return points;
  const auto names = metric_names(run);
  if (names.empty()) throw usage_error("run {} has no metrics yet", run);
  const auto readings = system_names(run);  // of which the user may have meant one
  auto known = names;
  known.insert(known.end(), readings.begin(), readings.end());
  const auto near = nearest(metric, known);
  throw usage_error("run {} has no metric \"{}\"{}; it has {}{}", run, metric,
                    near ? fmt::format(": did you mean \"{}\"?", *near) : "", join(names, ", "),
                    near || readings.empty() ? "" : ", and readings of the machine: " + join(readings, ", "));
}

std::optional<double> Ledger::last_value(const std::string& run, const std::string& metric) const {
  auto row = impl_->database->query(
      "SELECT value FROM metric_last WHERE run = ? AND key = (SELECT key FROM key WHERE name = ?)", impl_->row_of(run),
      metric);
  return row.step() ? std::optional(metric_value(row, 0)) : std::nullopt;
}

std::vector<std::string> Ledger::metric_names(const std::string& run) const {
  return impl_->database->texts("SELECT name FROM metric_last JOIN key USING (key) WHERE run = ? ORDER BY name",
                                impl_->row_of(run));
}

std::optional<std::string> Ledger::kept(const std::string& digest) const {
  if (!impl_->database) return std::nullopt;
  auto row = impl_->database->query("SELECT content FROM config WHERE hash = ?", digest);
  return row.step() ? std::optional(row.text(0)) : std::nullopt;
}

RunRow Ledger::row(const std::string& run) const { return impl_->row(impl_->row_of(run)); }

namespace {

json read_text(sqlite::Database& database, const std::string& column, int64_t run) {
  auto row =
      database.query("SELECT content FROM config WHERE hash = (SELECT " + column + " FROM run WHERE run = ?)", run);
  return row.step() ? json::parse(row.text(0)) : json();
}

}  // namespace

json Ledger::config(const std::string& run) const { return read_text(*impl_->database, "config", impl_->row_of(run)); }
json Ledger::origins(const std::string& run) const {
  return read_text(*impl_->database, "origins", impl_->row_of(run));
}

std::map<std::string, MetricSummary> Ledger::summaries(const std::string& run) const {
  return summaries_of(*impl_->database, run);
}

std::map<std::string, MetricSummary> summaries_of(sqlite::Database& database, const std::string& run) {
  std::map<std::string, MetricSummary> list;
  auto rows = database.query("SELECT name, step, value, min, max, best FROM last_metrics WHERE run = ?", run);
  while (rows.step())
    list[rows.text(0)] = {rows.integer(1), metric_value(rows, 2), metric_value(rows, 3), metric_value(rows, 4),
                          metric_value(rows, 5)};
  return list;
}

std::map<int64_t, std::map<std::string, double>> Ledger::last_rows(const std::string& run, int64_t count) const {
  std::map<int64_t, std::map<std::string, double>> rows;
  const int64_t number = impl_->row_of(run);
  sqlite::Statement points(
      *impl_->database,
      "SELECT step, value FROM metric WHERE run = ? AND key = (SELECT key FROM key WHERE name = ?) "
      "ORDER BY step DESC LIMIT ?");
  for (const auto& name : metric_names(run)) {
    points.bind(number, name, count);
    while (points.step()) rows[points.integer(0)][name] = metric_value(points, 1);
  }
  while (std::ssize(rows) > count) rows.erase(rows.begin());
  return rows;
}

std::vector<std::string> Ledger::metric_names() const {
  if (!impl_->database) return {};
  return impl_->database->texts("SELECT name FROM key ORDER BY name");
}

std::vector<std::pair<double, double>> Ledger::system_curve(const std::string& run, const std::string& name) const {
  std::vector<std::pair<double, double>> curve;
  const int64_t row = impl_->row_of(run);
  auto points = impl_->database->query(
      "SELECT time, value FROM system_sample WHERE run = ? AND key = (SELECT key FROM key WHERE name = ?) ORDER BY "
      "time",
      row, name);
  while (points.step()) curve.emplace_back(points.real(0), points.real(1));
  if (!curve.empty()) return curve;
  const auto names = system_names(run);
  const auto near = nearest(name, names);
  throw usage_error("run {} has no reading \"{}\"{}", run, name,
                    near            ? "; did you mean \"" + *near + "\"?"
                    : names.empty() ? ": it has none"
                                    : "; it has " + join(names, ", "));
}

std::vector<std::pair<double, double>> Ledger::system_over_seconds(const std::string& run,
                                                                   const std::string& name) const {
  auto curve = system_curve(run, name);
  const TrainedTime trained(*impl_->database, impl_->row_of(run));
  for (auto& [time, value] : curve) time = std::round(1000 * trained.at(time)) / 1000;
  return curve;
}

std::map<std::string, SystemSummary> Ledger::system_summaries(const std::string& run) const {
  std::map<std::string, SystemSummary> summaries;
  auto rows = impl_->database->query(
      "SELECT name, count(*), avg(value), min(value), max(value) FROM system_sample JOIN key USING (key) WHERE run = ? "
      "GROUP BY key",
      impl_->row_of(run));
  while (rows.step())
    summaries[rows.text(0)] = {
        .count = rows.integer(1), .mean = rows.real(2), .min = rows.real(3), .max = rows.real(4)};
  return summaries;
}

std::vector<std::string> Ledger::system_names(const std::string& run) const {
  const int64_t row = impl_->row_of(run);
  // The query looks up each name, instead of scanning all readings of the run.
  return impl_->database->texts(
      "SELECT name FROM key WHERE EXISTS (SELECT 1 FROM system_sample WHERE run = ? AND key = key.key) ORDER BY name",
      row);
}

}  // namespace runner
