#include "runner/ledger/foreign_runs.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/trash.hpp"

namespace runner {

using nlohmann::json;
using Outcome = MergedRun::Outcome;

namespace {

/// A digest of everything that is imported of the run.
std::string digest_of(const ForeignRun& run) {
  const json facts = {run.name, run.status, run.group,   run.notes,         run.host,
                      run.tags, run.config, run.started, or_null(run.ended)};
  std::string digests = xxh3_hex(json_text(facts)), text;
  for (const auto& point : run.points) {
    text += fmt::format("{}\n{} {}\n", point.name, point.step, point.value);
    if (text.size() < (1U << 20)) continue;
    digests += xxh3_hex(text);
    text.clear();
  }
  return xxh3_hex(digests + xxh3_hex(text));
}

/// The run that earlier imports of the same origin have made.
struct EarlierImport {
  int64_t run = 0;  ///< 0: nothing
  std::string id;
  bool deleted = false;
  std::vector<std::string> digests = {};  ///< the newest first

  /// Whether the run was imported in this state. Of a partial run, an earlier state is in the ledger as well.
  bool has(const std::string& digest, bool partial) const {
    const auto found = std::ranges::find(digests, digest);
    return partial ? found != digests.end() : !digests.empty() && found == digests.begin();
  }
};

EarlierImport imported_before(sqlite::Database& database, const std::string& kind, const std::string& origin) {
  EarlierImport before;
  auto row = database.query(
      "SELECT run, id, deleted IS NOT NULL, digest FROM imported JOIN run USING (run) WHERE kind = ? AND origin = ? "
      "ORDER BY imported DESC",
      kind, origin);
  while (row.step()) {
    if (before.run != 0 && before.run != row.integer(0)) break;
    before.run = row.integer(0);
    before.id = row.text(1);
    before.deleted = row.integer(2) != 0;
    before.digests.push_back(row.text(3));
  }
  return before;
}

/// Adds to a partial run what the ledger has of it.
void add_what_is_there(sqlite::Database& database, int64_t row, ForeignRun& run) {
  std::set<std::pair<std::string, int64_t>> known;
  for (const auto& point : run.points) known.emplace(point.name, point.step);
  auto points =
      database.query("SELECT name, step, value FROM metric JOIN key USING (key) WHERE run = ? ORDER BY key, step", row);
  while (points.step())
    if (!known.contains({points.text(0), points.integer(1)}))
      run.points.push_back({.name = points.text(0), .step = points.integer(1), .value = metric_value(points, 2)});
  auto facts = database.query(
      "SELECT content, started, ended, status FROM run JOIN config ON hash = run.config WHERE run = ?", row);
  RUNNER_CHECK(facts.step());
  json config = json::parse(facts.text(0));
  add_settings(config, run.config);
  run.config = std::move(config);
  if (facts.real(1) > 0) run.started = run.started > 0 ? std::min(run.started, facts.real(1)) : facts.real(1);
  if (const auto ended = facts.optional_real(2); ended && ended > run.ended) {
    run.ended = ended;
    run.status = facts.text(3);
  }
}

void add_points(sqlite::Database& database, int64_t row, const std::vector<MetricPoint>& points) {
  sqlite::Statement add_key(database, "INSERT INTO key (name) VALUES (?) ON CONFLICT DO NOTHING"),
      find_key(database, "SELECT key FROM key WHERE name = ?"),
      add(database, "INSERT OR REPLACE INTO metric (run, key, step, value) VALUES (?, ?, ?, ?)");
  const std::string* name = nullptr;
  int64_t key = 0, steps = 0;
  for (const auto& point : points) {
    if (!name || *name != point.name) {
      name = &point.name;
      add_key.bind(*name).step();
      RUNNER_CHECK(find_key.bind(*name).step());
      key = find_key.integer(0);
    }
    add.bind(row, key, point.step, point.value).step();
    steps = std::max(steps, point.step);
  }
  find_key.bind("").step();  // ends the statement, so that the transaction can be committed
  database.run(
      "INSERT INTO metric_last (run, key, step, value, min, max) SELECT metric.run, metric.key, metric.step, "
      "metric.value, low, high FROM (SELECT key, max(step) AS step, min(value) AS low, max(value) AS high FROM metric "
      "WHERE run = ?1 GROUP BY key) AS extent JOIN metric ON metric.run = ?1 AND metric.key = extent.key AND "
      "metric.step = extent.step",
      row);
  database.run("UPDATE run SET steps = ? WHERE run = ?", steps, row);
}

/// The run with all its rows, in the temporary ledger.
int64_t add_row(sqlite::Database& database, const std::string& kind, const ForeignRun& run, const std::string& id) {
  const std::string empty = keep_text(database, ""), nothing = keep_text(database, "{}");
  database.run(
      "INSERT INTO run (id, name, status, strategy, world_size, started, ended, tags, notes, grp, folder, "
      "working_directory, argv, build_id, git, host, recipe, resolved, config, origins, plan, message) "
      "VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10, '', '[]', '', 'null', ?11, ?12, ?12, ?13, ?14, ?15, "
      "iif(?3 = 'lost', 'not finished when it was imported', NULL))",
      id, run.name, run.status, kind, run.started, run.ended, json_text(json(run.tags)), run.notes, run.group,
      "runs/" + id, json_text(run.host.empty() ? json() : json{{"hostname", run.host}}), empty,
      keep_text(database, json_text(run.config)), nothing,
      keep_text(database, json_text(json{{"strategy", kind}, {"reason", "imported"}})));
  const int64_t row = database.last_insert_rowid();
  const double ended = run.ended.value_or(run.started), started = run.started > 0 ? run.started : ended;
  database.run(
      "INSERT INTO attempt (run, number, reason, host, boot_id, pid_namespace, pid, process_start, started, heartbeat, "
      "ended) VALUES (?, 1, ?, ?, '', '', 0, 0, ?, ?, ?)",
      row, "imported from " + kind, run.host, started, ended, ended);
  add_points(database, row, run.points);
  return row;
}

class ForeignImport {
 public:
  ForeignImport(const std::string& home, std::string kind, const std::string& source)
      : kind_(std::move(kind)), source_(escape_invalid_utf8(fs::absolute(source).lexically_normal().string())) {
    { Ledger ledger(home, Ledger::Mode::write); }  // creates or migrates it
    database_ = std::make_unique<sqlite::Database>(fs::path(home) / "ledger.db", sqlite::Access::existing);
    scratch_ = std::make_unique<ScratchLedger>(home);
    database_->run("ATTACH ? AS scratch", scratch_->file().string());
    database_->execute("PRAGMA scratch.journal_mode = off; PRAGMA scratch.synchronous = off");
  }

  MergedRun add(ForeignRun& run) {
    const std::string digest = digest_of(run);
    EarlierImport before = imported_before(*database_, kind_, run.origin);
    MergedRun merged{.id = before.id, .name = run.name, .outcome = Outcome::unchanged, .why = ""};
    if (settled(merged, before, digest, run.partial)) return merged;
    if (before.run != 0 && run.partial) add_what_is_there(*database_, before.run, run);
    const std::string id =
        before.run != 0 ? before.id : unused_id(*database_, "run", run.started > 0 ? run.started : wall_seconds());
    const int64_t prepared = prepare(run, id);
    sqlite::Transaction transaction(*database_);
    const EarlierImport now = imported_before(*database_, kind_, run.origin);
    if (now.run != before.run || now.digests != before.digests || now.deleted != before.deleted)
      throw environment_error("another import has changed {} meanwhile: import it again", run.name);
    merged.id = id;
    merged.outcome = before.run == 0 ? Outcome::added : Outcome::updated;
    if (before.run == 0)
      before.run = RowCopy(*database_, "scratch", "main").copy(prepared);
    else
      update(before.run, prepared);
    note_config(*database_, before.run);
    database_->run("INSERT INTO main.imported (run, time, kind, source, origin, digest) VALUES (?, ?, ?, ?, ?, ?)",
                   before.run, wall_seconds(), kind_, source_, run.origin, digest);
    fault_point("import run");
    transaction.commit();
    fault_point("import run committed");
    return merged;
  }

 private:
  /// Whether there is nothing to do for the run.
  static bool settled(MergedRun& merged, const EarlierImport& before, const std::string& digest, bool partial) {
    if (before.run == 0) return false;
    if (before.deleted) {
      merged.outcome = Outcome::conflict;
      merged.why = why_in_trash(before.id);
      return true;
    }
    return before.has(digest, partial);
  }

  /// Writes the rows of the run into the temporary ledger, which has no others then. Returns its row number.
  int64_t prepare(const ForeignRun& run, const std::string& id) {
    sqlite::Database scratch(scratch_->file(), sqlite::Access::existing);
    scratch.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off; BEGIN");
    for (const char* table : {"metric", "metric_last", "attempt", "run"})
      scratch.execute(std::string("DELETE FROM ") + table);
    const int64_t row = add_row(scratch, kind_, run, id);
    scratch.execute("COMMIT");
    return row;
  }

  /// Replaces parameters and points of the run `row` by those of `prepared`.
  void update(int64_t row, int64_t prepared) {
    RowCopy copy(*database_, "scratch", "main");
    copy.copy_texts("run", prepared);
    database_->run(
        "UPDATE main.run SET (config, status, steps, message, started, ended) = (SELECT config, status, steps, "
        "message, "
        "started, ended FROM scratch.run WHERE run = ?2) WHERE run = ?1",
        row, prepared);
    database_->run(
        "UPDATE main.attempt SET (started, heartbeat, ended) = (SELECT started, heartbeat, ended FROM "
        "scratch.attempt WHERE run = ?2) WHERE run = ?1",
        row, prepared);
    for (const char* table : {"metric", "metric_last", "end_point"}) {
      database_->run(std::string("DELETE FROM main.") + table + " WHERE run = ?", row);
      copy.copy_table(table, prepared);
    }
  }

  std::string kind_, source_;
  std::unique_ptr<ScratchLedger> scratch_;
  std::unique_ptr<sqlite::Database> database_;  ///< closed before the temporary file is removed
};

}  // namespace

std::string imported_from(const std::string& home, const std::string& run) {
  const auto database = open_to_read(fs::path(home) / "ledger.db");
  if (!database) return "";
  auto row = database->query(
      "SELECT kind, source FROM imported JOIN run USING (run) WHERE id = ? ORDER BY imported DESC", run);
  return row.step() ? fmt::format("{} ({})", row.text(0), row.text(1)) : "";
}

std::map<std::string, std::string> imported_kinds(const std::string& home) {
  std::map<std::string, std::string> kinds;
  const auto database = open_to_read(fs::path(home) / "ledger.db");
  if (!database) return kinds;
  auto rows = database->query("SELECT id, kind FROM imported JOIN run USING (run) ORDER BY imported");
  while (rows.step()) kinds[rows.text(0)] = rows.text(1);
  return kinds;
}

std::vector<MergedRun> add_foreign_runs(const std::string& home, const std::string& kind, const std::string& source,
                                        std::vector<ForeignRun> runs) {
  std::map<std::string, std::string> origins;
  for (const auto& run : runs)
    if (const auto [known, is_new] = origins.emplace(run.origin, run.name); !is_new)
      throw usage_error("{} has two runs \"{}\" ({} and {}): import them one by one", source, run.origin, known->second,
                        run.name);
  ForeignImport import(home, kind, source);
  std::vector<MergedRun> merged;
  for (auto& run : runs) {
    merged.push_back(import.add(run));
    run = {};  // the points of the next ones may need the memory
  }
  return merged;
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether a text has the form in which programs write numbers: -12, 0.5, 1e-05, not 007, 12345e7 or a number with more digits than
/// a double has.
bool is_written_number(std::string_view text) {
  constexpr size_t most_digits = 17;
  if (text.starts_with('-')) text.remove_prefix(1);
  const auto take_digits = [&] {
    const auto digits = text.substr(0, static_cast<size_t>(std::ranges::find_if_not(text, is_digit) - text.begin()));
    text.remove_prefix(digits.size());
    return digits;
  };
  const auto whole = take_digits();
  size_t digits = whole == "0" ? 0 : whole.size();
  if (whole.empty() || (whole.size() > 1 && whole.front() == '0')) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const auto fraction = take_digits();
    if (fraction.empty()) return false;
    digits +=
        digits > 0 ? fraction.size() : fraction.size() - std::min(fraction.find_first_not_of('0'), fraction.size());
  }
  if (digits > most_digits) return false;
  if (text.empty()) return true;
  if (text.front() != 'e' && text.front() != 'E') return false;
  text.remove_prefix(1);
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return whole.size() == 1 && !take_digits().empty() && text.empty();
}

json typed(const std::string& text) {
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (const auto whole = parse_number<int64_t>(text); whole && std::to_string(*whole) == text) return *whole;
  if (!is_written_number(text)) return text;
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) ? json(*number) : json(text);
}

/// The values below `object`, under names with dots, at `place`.
void put_flat(json& place, const std::string& name, const json& object) {
  for (const auto& [key, value] : object.items())
    if (value.is_object() && !value.empty())
      put_flat(place, name + "." + key, value);
    else
      place[name + "." + key] = value;
}

}  // namespace

void set_parameter(json& config, const std::string& name, const json& value) {
  json* place = &config;
  const auto parts = split(name, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    auto& next = (*place)[parts[i]];
    if (next.is_null()) next = json::object();
    if (!next.is_object()) {
      (*place)[join({parts.begin() + static_cast<std::ptrdiff_t>(i), parts.end()}, ".")] = value;
      return;
    }
    place = &next;
  }
  auto& last = (*place)[parts.back()];
  const json before = std::exchange(last, value);
  if (before.is_object() && !value.is_object()) put_flat(*place, parts.back(), before);
}

void add_settings(json& config, const json& later) {
  if (!config.is_object() || !later.is_object()) {
    config = later;
    return;
  }
  for (const auto& [name, value] : later.items()) add_settings(config[name], value);
}

void set_parameter(json& config, const std::string& name, const std::string& value) {
  set_parameter(config, name, typed(value));
}

}  // namespace runner
