// The life of a run in the ledger: begun, attempted, finished, reopened.
#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <string_view>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/process_identity.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 64> adjectives = {
    "amber",  "ample",  "azure", "bold",   "brave",  "bright", "brisk", "calm",  "clear", "clever", "cosy",
    "crisp",  "curly",  "deep",  "eager",  "early",  "fair",   "fancy", "fleet", "fond",  "fresh",  "gentle",
    "glad",   "golden", "grand", "green",  "happy",  "hardy",  "ivory", "jolly", "keen",  "kind",   "light",
    "lively", "lucky",  "lunar", "mellow", "merry",  "mild",   "misty", "neat",  "noble", "olive",  "patient",
    "plain",  "polite", "proud", "quick",  "quiet",  "rapid",  "ready", "rosy",  "royal", "shiny",  "silent",
    "silver", "smooth", "snowy", "solar",  "steady", "sunny",  "swift", "tidy",  "warm"};
constexpr std::array<std::string_view, 64> nouns = {
    "acorn",  "badger", "beacon",  "birch",  "bison",  "breeze",  "brook",  "canyon", "cedar",   "cloud", "clover",
    "comet",  "coral",  "crane",   "creek",  "dune",   "eagle",   "ember",  "falcon", "fern",    "finch", "fjord",
    "forest", "garden", "glacier", "grove",  "harbor", "hare",    "heron",  "hill",   "island",  "kite",  "lagoon",
    "lake",   "lark",   "leaf",    "lynx",   "maple",  "meadow",  "meteor", "moon",   "moss",    "ocean", "orchid",
    "otter",  "owl",    "pearl",   "pebble", "pine",   "planet",  "plum",   "pond",   "prairie", "quail", "rabbit",
    "raven",  "reef",   "ridge",   "river",  "robin",  "sparrow", "star",   "valley", "willow"};

/// A name for a run whose recipe has none, "quiet-otter-12", which no run of the ledger has. The number is that of the run's row, which
/// is about the number of runs so far.
std::string memorable_name(sqlite::Database& database) {
  std::random_device random;
  std::uniform_int_distribution<size_t> pick(0, adjectives.size() - 1);
  static_assert(adjectives.size() == nouns.size());
  const int64_t number = database.integer("SELECT ifnull(max(run), 0) + 1 FROM run");
  while (true) {
    std::string name = fmt::format("{}-{}-{}", adjectives[pick(random)], nouns[pick(random)], number);
    if (!database.query("SELECT 1 FROM run WHERE name = ?", name).step()) return name;
  }
}

std::string make_id(double now) {
  std::random_device random;
  constexpr std::string_view letters = "23456789abcdefghjkmnpqrstuvwxyz";
  const auto whole = static_cast<std::time_t>(now);
  std::tm utc{};
  ::gmtime_r(&whole, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S-", &utc);
  std::string id = text;
  std::uniform_int_distribution<size_t> pick(0, letters.size() - 1);
  for (int i = 0; i < 4; ++i) id += letters[pick(random)];
  return id;
}

/// Ends the run's earlier attempts and inserts a new one, owned by this process and not begun yet, with the settings in
/// the run's row. Returns its row number.
int64_t claim(sqlite::Database& database, int64_t run, double now) {
  const ProcessIdentity me = this_process();
  database.run("UPDATE attempt SET ended = ifnull(ended, max(heartbeat, started)) WHERE run = ?", run);
  database.run(
      "INSERT INTO attempt (run, number, host, machine, boot_id, pid_namespace, pid, process_start, started, "
      "heartbeat, strategy, world_size, argv, build_id, git, config) "
      "SELECT run, 1 + (SELECT ifnull(max(number), 0) FROM attempt WHERE run = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, "
      "strategy, world_size, argv, build_id, git, config FROM run WHERE run = ?1",
      run, me.host, me.machine, me.boot_id, me.pid_namespace, me.pid, me.start_time, now);
  return database.last_insert_rowid();
}

/// Keeps the run's row for put_back(). If the run is reopened several times, the first row counts.
void keep_row(sqlite::Database& database, int64_t run) {
  database.run("CREATE TEMP TABLE IF NOT EXISTS reopened AS SELECT *, 0 AS last_change FROM main.run WHERE 0");
  database.run(
      "INSERT INTO temp.reopened SELECT *, (SELECT ifnull(max(change), 0) FROM change) FROM main.run WHERE run = ?1 "
      "AND NOT EXISTS (SELECT 1 FROM temp.reopened WHERE run = ?1)",
      run);
}

RunTexts texts_of(sqlite::Database& database, int64_t run, const NewRun& again) {
  return texts_after_edits(database, run,
                           {.name = again.name, .notes = again.notes, .group = again.group, .tags = again.tags});
}

/// Gives the run's row the settings with which a resumed run continues, and `attempt` those of the row.
void take_settings(sqlite::Database& database, int64_t run, int64_t attempt, const NewRun& again) {
  keep_row(database, run);
  const RunTexts texts = texts_of(database, run, again);
  database.run(
      "UPDATE run SET name = ?, tags = ?, notes = ?, grp = ?, strategy = ?, world_size = ?, working_directory = ?, "
      "argv = ?, build_id = ?, git = ?, host = ?, resolved = ?, config = ?, origins = ?, plan = ? WHERE run = ?",
      texts.name, json_text(json(texts.tags)), texts.notes, texts.group, again.strategy, again.world_size,
      fs::current_path().string(), json_text(json(again.argv)), again.build_id, json_text(again.git),
      json_text(again.host), keep_text(database, again.resolved), keep_text(database, json_text(again.config)),
      keep_text(database, json_text(again.origins)), keep_text(database, json_text(again.plan)), run);
  if (again.annotations.contains("redacted"))
    database.run("UPDATE run SET annotations = json_set(annotations, '$.redacted', json(?)) WHERE run = ?",
                 json_text(again.annotations["redacted"]), run);
  note_config(database, run);
  database.run(
      "UPDATE attempt SET (strategy, world_size, argv, build_id, git, config) = (SELECT strategy, world_size, argv, "
      "build_id, git, config FROM run WHERE run = ?) WHERE attempt = ?",
      run, attempt);
}

/// Undoes the change of the run's row since keep_row(), except for edits that users have made since then.
void restore_row(sqlite::Database& database, int64_t run) {
  database.run(
      "UPDATE run SET (strategy, world_size, working_directory, argv, build_id, git, host, resolved, config, monitor, "
      "origins, plan, annotations) = (b.strategy, b.world_size, b.working_directory, b.argv, b.build_id, b.git, "
      "b.host, b.resolved, b.config, b.monitor, b.origins, b.plan, json_set(run.annotations, '$.predicted', "
      "json_extract(b.annotations, '$.predicted'))) FROM temp.reopened AS b WHERE b.run = run.run AND run.run = ? AND "
      "run.status <> 'running'",
      run);
  for (const auto& [column, what] : {std::pair("name", "name"), {"tags", "tags"}, {"notes", "notes"}, {"grp", "group"}})
    database.run(
        fmt::format("UPDATE run SET {0} = b.{0} FROM temp.reopened AS b WHERE b.run = run.run AND run.run = ?1 AND "
                    "run.status <> 'running' AND NOT EXISTS (SELECT 1 FROM change WHERE change.run = ?1 AND "
                    "change > b.last_change AND what = '{1}')",
                    column, what),
        run);
}

}  // namespace

void note_config(sqlite::Database& database, int64_t run) {
  database.run(
      "UPDATE run SET monitor = ifnull((SELECT json_extract(content, '$.checkpoint.monitor') FROM config WHERE hash = "
      "run.config), 'val_loss') WHERE run = ?",
      run);
  database.run(
      "INSERT INTO config_key (name, path, numeric) "
      "SELECT replace(substr(fullkey, 3), '\"', ''), fullkey, max(tree.type IN ('integer', 'real')) "
      "FROM run JOIN config ON hash = run.config, json_tree(content) AS tree "
      "WHERE run = ? AND tree.type NOT IN ('object', 'null') AND instr(fullkey, '[') = 0 GROUP BY 1 "
      "ON CONFLICT (name) DO UPDATE SET numeric = 1 WHERE excluded.numeric > numeric",
      run);
}

std::string keep_text(sqlite::Database& database, const std::string& content) {
  std::string hash = xxh3_hex(content);
  database.run("INSERT INTO config (hash, content) VALUES (?, ?) ON CONFLICT DO NOTHING", hash, content);
  return hash;
}

std::string unused_id(sqlite::Database& database, const std::string& table, double now) {
  while (true) {
    std::string id = make_id(now);
    if (!database.query("SELECT 1 FROM " + table + " WHERE id LIKE ?", "%" + id.substr(id.rfind('-'))).step())
      return id;
  }
}

NewRun Ledger::Impl::without_secrets(NewRun run) {
  std::vector<std::string> keys;
  run.config = secrets.take_from(std::move(run.config), keys);
  run.argv = secrets.without(secrets.take_from(std::move(run.argv)));
  for (auto* text : {&run.name, &run.notes, &run.group}) *text = secrets.take_from(std::move(*text));
  for (auto& tag : run.tags) tag = secrets.take_from(std::vector{std::move(tag)}).front();
  for (auto* text : {&run.name, &run.notes, &run.group, &run.recipe_source, &run.resolved})
    *text = secrets.without(std::move(*text));
  for (auto& origin : run.origins)
    if (origin.is_string()) origin = secrets.take_from(origin.get<std::string>());
  for (auto* value : {&run.config, &run.origins, &run.plan, &run.git, &run.host, &run.annotations})
    *value = secrets.json_without(std::move(*value));
  run.tags = secrets.without(std::move(run.tags));
  if (!keys.empty()) run.annotations["redacted"] = keys;
  return run;
}

NewRun Ledger::without_secrets(NewRun row) const { return impl_->without_secrets(std::move(row)); }

std::string Ledger::begin_run(const NewRun& given) {
  const NewRun run = impl_->without_secrets(given);
  const double now = wall_seconds();
  std::string id;
  fs::path folder;
  Lease lease;
  try {
    impl_->to_write().commit([&](Batch& batch) {
      auto& database = batch.database();
      id = unused_id(database, "run", now);
      fs::create_directories(run.run_dir_root);
      fs::create_directory(fs::path(run.run_dir_root) / id);
      folder = fs::path(run.run_dir_root) / id;
      database.run(
          "INSERT INTO run (id, name, status, strategy, world_size, started, tags, notes, folder, working_directory, "
          "argv, build_id, git, host, recipe, resolved, config, origins, plan, annotations, grp) "
          "VALUES (?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
          id, run.name.empty() ? memorable_name(database) : run.name, run.strategy, run.world_size, now,
          json_text(json(run.tags)), run.notes,
          relative_below(impl_->home, folder).value_or(fs::absolute(folder).lexically_normal().string()),
          fs::current_path().string(), json_text(json(run.argv)), run.build_id, json_text(run.git), json_text(run.host),
          keep_text(database, run.recipe_source), keep_text(database, run.resolved),
          keep_text(database, json_text(run.config)), keep_text(database, json_text(run.origins)),
          keep_text(database, json_text(run.plan)), json_text(run.annotations), run.group);
      lease.run = database.last_insert_rowid();
      note_config(database, lease.run);
      if (!run.sweep.empty())
        database.run("UPDATE trial SET run = ? WHERE number = ? AND sweep = (SELECT sweep FROM sweep WHERE id = ?)",
                     lease.run, run.trial, run.sweep);
      if (!run.parent.empty())
        database.run("INSERT INTO edge (source, target, kind) SELECT run, ?, ? FROM run WHERE id = ?", lease.run,
                     run.parent_kind, run.parent);
      lease.attempt = claim(database, lease.run, now);
    });
  } catch (const fs::filesystem_error& error) {
    throw environment_error("cannot create a run's folder in {}: {}", run.run_dir_root, error.code().message());
  } catch (...) {
    std::error_code ignored;
    if (!folder.empty()) fs::remove(folder, ignored);
    throw;
  }
  impl_->leases[id] = lease;
  impl_->to_write().guard(lease.run, fs::absolute(folder));
  return id;
}

int64_t Ledger::begin_attempt(const std::string& run, const std::string& reason, std::optional<int64_t> from_step,
                              bool completed) {
  const double now = wall_seconds();
  Lease& lease = impl_->own_lease(run);
  const auto again = impl_->reopened.find(run);
  int64_t number = 0, attempt = 0;
  impl_->to_write().commit([&](Batch& batch) {
    auto& database = batch.database();
    if (!batch.owns(lease)) refuse_stale(database, run, lease);
    auto claimed = database.query("SELECT 1 FROM attempt WHERE attempt = ? AND reason IS NULL", lease.attempt);
    attempt = claimed.step() ? lease.attempt : claim(database, lease.run, now);
    if (again != impl_->reopened.end()) take_settings(database, lease.run, attempt, again->second);
    database.run("UPDATE attempt SET reason = ?, from_step = ? WHERE attempt = ?", reason, from_step.value_or(0),
                 attempt);
    if (from_step) batch.rewind(lease.run, *from_step, completed);
    number = database.integer("SELECT number FROM attempt WHERE attempt = ?", attempt);
    batch.touch({lease.run, attempt}, now);
  });
  if (attempt != lease.attempt) lease = {lease.run, attempt};
  if (again != impl_->reopened.end()) impl_->reopened.erase(again);
  impl_->to_write().guard_again();
  return number;
}

void Ledger::finish_run(const std::string& run, const std::string& status, int exit_code, const std::string& message,
                        std::chrono::seconds patience) {
  constexpr std::array<std::string_view, 4> ends = {"finished", "failed", "interrupted", "preempted"};
  RUNNER_CHECK(std::find(ends.begin(), ends.end(), status) != ends.end(), "{}", status);
  const double now = wall_seconds();
  const Lease lease = impl_->own_lease(run);
  const double took = steady_seconds() - lease.begun;
  const std::string text = impl_->secrets.without(message);
  const auto end = [&](Batch& batch) {
    if (!batch.owns(lease)) refuse_stale(batch.database(), run, lease);
    batch.touch(lease, now);
    // The clock may have been set back since the start.
    batch.database().run("UPDATE attempt SET ended = max(?, started + ?) WHERE attempt = ?", now, took, lease.attempt);
    batch.database().run(
        "UPDATE run SET status = ?, ended = (SELECT max(run.started, attempt.ended) FROM attempt WHERE attempt = ?), "
        "exit_code = ?, message = ? "
        "WHERE run = ?",
        status, lease.attempt, exit_code, text, lease.run);
  };
  if (status == "interrupted" || status == "preempted") impl_->to_write().hurry();
  impl_->to_write().commit(end, patience);
  impl_->leases.erase(run);
  impl_->reopened.erase(run);
  impl_->follow_writer();
}

std::string Ledger::reopen_run(const std::string& run, const NewRun& given) {
  const NewRun again = impl_->without_secrets(given);
  const double now = wall_seconds();
  Lease lease{impl_->row_of(run), 0};
  std::string name;
  impl_->to_write().commit([&](Batch& batch) {
    auto& database = batch.database();
    auto owner = database.query(
        "SELECT attempt.host, pid FROM run JOIN attempt ON attempt.run = run.run WHERE run.run = ? AND "
        "status = 'running' ORDER BY number DESC",
        lease.run);
    const bool owned = owner.step();
    if (owned && impl_->lost.contains(lease.run))
      throw environment_error("run {} cannot continue before its end is recorded, and the ledger {} cannot be written",
                              run, impl_->path.string());
    if (owned)
      throw usage_error("run {} is still running, as process {} on {}: stop it first", run, owner.integer(1),
                        owner.text(0));
    if (database.query("SELECT 1 FROM run WHERE run = ? AND deleted IS NOT NULL", lease.run).step())
      throw usage_error("run {} is in the trash: `runner restore {}` brings it back", run, run);
    auto newest = database.query("SELECT max(number) FROM attempt WHERE run = ? AND reason IS NOT NULL", lease.run);
    if (newest.step() && again.last_attempt && newest.integer(0) > *again.last_attempt)
      throw usage_error("another process has continued run {} in the meantime: `runner show {}` shows its state", run,
                        run);
    database.run(
        "UPDATE run SET status = 'running', ended = NULL, exit_code = NULL, message = NULL, annotations = "
        "json_remove(annotations, '$.measured') WHERE run = ?",
        lease.run);
    name = texts_of(database, lease.run, again).name;
    lease.attempt = claim(database, lease.run, now);
  });
  impl_->leases[run] = lease;
  impl_->reopened[run] = again;
  impl_->to_write().guard(lease.run, fs::absolute(run_dir(run)));
  return name;
}

void Ledger::put_back(const std::string& run) {
  impl_->to_write().commit([row = impl_->row_of(run)](Batch& batch) {
    if (batch.database().integer("SELECT count(*) FROM temp.sqlite_schema WHERE name = 'reopened'") > 0)
      restore_row(batch.database(), row);
  });
}

}  // namespace runner
