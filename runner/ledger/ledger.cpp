// Opening and writing the ledger.
#include "runner/ledger/ledger.hpp"

#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/process_identity.hpp"

namespace runner {

namespace {

using nlohmann::json;

std::string to_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// SQLite does not apply its busy timeout to a change of journal mode, so this function retries when several processes
/// open a new ledger at the same time.
void set_journal_mode(sqlite::Database& database, const char* mode) {
  const double deadline = steady_seconds() + 10;
  while (true) {
    try {
      if (database.text("PRAGMA journal_mode") != mode) database.execute(std::string("PRAGMA journal_mode = ") + mode);
      return;
    } catch (const sqlite::Failure& failure) {
      if (failure.primary() != SQLITE_BUSY || steady_seconds() > deadline) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

std::string unused_id(sqlite::Database& database, double now) {
  while (true) {
    std::string id = make_id(now);
    if (!database.query("SELECT 1 FROM run WHERE id LIKE ?", "%" + id.substr(id.rfind('-'))).step()) return id;
  }
}

/// Ends the run's earlier attempts and inserts a new one, owned by this process and not begun yet, with the settings in
/// the run's row. Returns its row number.
int64_t claim(sqlite::Database& database, int64_t run, double now) {
  const ProcessIdentity me = this_process();
  database.run("UPDATE attempt SET ended = ifnull(ended, heartbeat) WHERE run = ?", run);
  database.run(
      "INSERT INTO attempt (run, number, host, machine, boot_id, pid_namespace, pid, process_start, started, "
      "heartbeat, "
      "strategy, world_size, argv, build_id, git, config) "
      "SELECT run, 1 + (SELECT ifnull(max(number), 0) FROM attempt WHERE run = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, "
      "strategy, world_size, argv, build_id, git, config FROM run WHERE run = ?1",
      run, me.host, me.machine, me.boot_id, me.pid_namespace, me.pid, me.start_time, now);
  return database.last_insert_rowid();
}

/// Keeps the run's row for put_back(). If the run is reopened several times, the first row counts.
void keep_row(sqlite::Database& database, int64_t run) {
  database.run("CREATE TEMP TABLE IF NOT EXISTS reopened AS SELECT * FROM main.run WHERE 0");
  database.run(
      "INSERT INTO temp.reopened SELECT * FROM main.run WHERE run = ?1 AND "
      "NOT EXISTS (SELECT 1 FROM temp.reopened WHERE run = ?1)",
      run);
}

/// `path` relative to `folder` if it lies below it, otherwise empty. Relative paths stay valid if the folder is moved.
std::optional<std::string> relative_below(const fs::path& folder, const fs::path& path) {
  const fs::path relative =
      fs::absolute(path).lexically_normal().lexically_relative(fs::absolute(folder / "").lexically_normal());
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative.string();
}

/// Reads "step" and "saved" from the fields. "saved" is internal and is removed from the fields.
Batch::Record make_record(const std::string& kind, json fields) {
  Batch::Record record;
  record.kind = kind;
  const auto integer = [&](const char* name) -> std::optional<int64_t> {
    const auto field = fields.is_object() ? fields.find(name) : fields.end();
    if (field == fields.end() || !field->is_number_integer()) return std::nullopt;
    return field->get<int64_t>();
  };
  record.step = integer("step").value_or(0);
  if (const auto saved = fields.is_object() ? fields.find("saved") : fields.end();
      saved != fields.end() && saved->is_number()) {
    record.saved = saved->get<double>();
    fields.erase(saved);
  }
  record.fields = to_text(fields);
  return record;
}

/// While it exists, reads of the database wait only briefly for other processes, because the caller also handles
/// signals.
class ShortWait {
 public:
  explicit ShortWait(sqlite::Database& database) : database_(database) { database_.set_busy_timeout(50); }
  ~ShortWait() { database_.set_busy_timeout(sqlite::Database::default_busy_timeout_ms); }
  ShortWait(const ShortWait&) = delete;

 private:
  sqlite::Database& database_;
};

[[noreturn]] void refuse_stale(sqlite::Database& database, const std::string& id, const Lease& lease) {
  auto newest = database.query("SELECT number, host, pid FROM attempt WHERE run = ? ORDER BY attempt DESC", lease.run);
  RUNNER_CHECK(newest.step());
  throw environment_error(
      "run {} was resumed elsewhere: attempt {} is process {} on {}. This one stops, and writes nothing more", id,
      newest.integer(0), newest.integer(2), newest.text(1));
}

}  // namespace

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

std::string keep_text(sqlite::Database& database, const std::string& content) {
  std::string hash = xxh3_hex(content);
  database.run("INSERT INTO config (hash, content) VALUES (?, ?) ON CONFLICT DO NOTHING", hash, content);
  return hash;
}

namespace {

std::optional<fs::path> ledger_above(const fs::path& folder) {
  struct stat here {
  }, above{};
  if (::stat(folder.c_str(), &here) != 0) return std::nullopt;
  for (fs::path parent = folder.parent_path();; parent = parent.parent_path()) {
    if (::stat(parent.c_str(), &above) != 0 || above.st_dev != here.st_dev) return std::nullopt;
    std::error_code ignored;
    const bool anybodys = (above.st_mode & S_IWOTH) != 0;
    if (!anybodys && fs::is_directory(parent / ".runner", ignored)) return parent / ".runner";
    if (parent == parent.parent_path()) return std::nullopt;
  }
}

}  // namespace

std::string ledger_home() {
  const char* home = std::getenv("RUNNER_HOME");
  std::error_code error;
  if (home && *home) {
    if (fs::exists(home, error) && !fs::is_directory(home, error))
      throw environment_error("RUNNER_HOME = {} is a file; it must name a folder", home);
    return home;
  }
  const fs::path folder = fs::current_path(error);
  if (error || fs::is_directory(".runner", error)) return ".runner";
  const auto above = ledger_above(folder);
  if (!above) return ".runner";
  static std::once_flag named;
  std::call_once(named, [&] {
    log::info("ledger: {} (mkdir .runner makes one here; RUNNER_HOME names any other)", above->string());
  });
  return above->string();
}

bool on_network_filesystem(const std::string& folder) {
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) return false;
  constexpr std::array<uint32_t, 11> types = {
      0x6969,      // NFS
      0x517b,      // SMB
      0xff534d42,  // CIFS
      0xfe534d42,  // SMB 2
      0x0bd00bd0,  // Lustre
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x00c36400,  // Ceph
      0x5346414f,  // AFS
      0x65735546,  // FUSE
      0x01021997,  // 9P
  };
  return std::find(types.begin(), types.end(), static_cast<uint32_t>(info.f_type)) != types.end();
}

std::unique_ptr<sqlite::Database> open_to_read(const fs::path& file) {
  if (!fs::exists(file)) return nullptr;
  std::unique_ptr<sqlite::Database> database;
  int64_t version = 0;
  try {
    database = std::make_unique<sqlite::Database>(file, sqlite::Access::existing);
    version = schema_version(*database);
  } catch (const sqlite::Failure& failure) {
    // In a write-protected folder or on a full disk, SQLite cannot create the index of the write-ahead log. An empty log
    // needs no index.
    const fs::path log = file.string() + "-wal";
    std::error_code ignored;
    const bool has_log = fs::exists(log) && fs::file_size(log, ignored) > 0;
    const int kind = failure.primary();
    const bool no_index =
        kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY || kind == SQLITE_FULL || kind == SQLITE_IOERR;
    if (!no_index || has_log) throw;
    database = std::make_unique<sqlite::Database>(file, sqlite::Access::immutable);
    version = schema_version(*database);
  }
  const auto newest = static_cast<int64_t>(migrations().size());
  if (version < newest && database->read_only())
    throw environment_error(
        "the ledger {} has schema {}, needs {}, and is write-protected: run `runner ls` once where it can be written",
        file.string(), version, newest);
  if (version == 0) return nullptr;  // another process has created the file and not migrated it yet
  migrate(*database);
  return database;
}

Ledger::Impl::Impl(const std::string& home_folder, Mode mode) : home(home_folder), path(home / "ledger.db") {
  if (mode == Mode::write)
    open_to_write();
  else
    database = open_to_read(path);
  if (database) mark_lost();
  if (mode == Mode::write) writer = std::make_unique<Writer>(sqlite::Database(path, sqlite::Access::existing));
}

void Ledger::Impl::open_to_write() {
  std::error_code error;
  const bool created = fs::create_directories(home, error);
  if (error) throw environment_error("cannot create the ledger's folder {}: {}", home.string(), error.message());
  // Git must ignore the ledger. An existing folder with another name may belong to the user, so it gets no .gitignore.
  const bool ours = created || home.filename() == ".runner";
  if (ours && !fs::exists(home / ".gitignore")) write_file_atomic(home / ".gitignore", "*\n");
  database = std::make_unique<sqlite::Database>(path, sqlite::Access::create);
  schema_version(*database);  // throws before anything is changed
  set_journal_mode(*database, on_network_filesystem(home.string()) ? "truncate" : "wal");
  migrate(*database);
}

void Ledger::Impl::mark_lost() {
  const ProcessIdentity me = this_process();
  const double now = wall_seconds();
  auto leases = database->query(
      "SELECT run.run, attempt.host, ifnull(machine, ''), boot_id, pid_namespace, pid, process_start, heartbeat FROM "
      "run "
      "JOIN attempt ON attempt.run = run.run AND number = (SELECT max(number) FROM attempt WHERE run = run.run) "
      "WHERE status = 'running'");
  while (leases.step()) {
    const ProcessIdentity owner{leases.text(1), leases.text(2),    leases.text(3),
                                leases.text(4), leases.integer(5), leases.integer(6)};
    const double heartbeat = leases.real(7);
    if (is_gone(owner, heartbeat, me, now)) lost[leases.integer(0)] = heartbeat;
  }
  if (lost.empty()) return;
  try {
    sqlite::Transaction transaction(*database);
    for (const auto& [run, heartbeat] : lost) {
      // The heartbeat is compared again: another process may have resumed the run in the meantime. An earlier attempt's
      // heartbeat may be later, if the clock was set back.
      database->run(
          "UPDATE run SET status = 'lost', ended = ?1 WHERE run = ?2 AND status = 'running' "
          "AND ?1 = (SELECT heartbeat FROM attempt WHERE run = ?2 ORDER BY number DESC LIMIT 1)",
          heartbeat, run);
      if (database->changes() > 0)
        database->run("UPDATE attempt SET ended = heartbeat WHERE run = ? AND ended IS NULL", run);
    }
    transaction.commit();
    lost.clear();
  } catch (const sqlite::Failure& failure) {
    if (failure.primary() == SQLITE_CORRUPT)
      throw;  // after any other failure, the ledger can still be read, and `lost` contains the lost runs
  }
}

int64_t Ledger::Impl::row_of(const std::string& id) const {
  if (database) {
    auto row = database->query("SELECT run FROM run WHERE id = ?", id);
    if (row.step()) return row.integer(0);
  }
  throw usage_error("there is no run {} in {}", id, path.string());
}

Lease Ledger::Impl::lease_of(const std::string& id) const {
  const auto found = leases.find(id);
  return found != leases.end() ? found->second : Lease{row_of(id), 0};
}

Lease& Ledger::Impl::own_lease(const std::string& id) {
  const auto found = leases.find(id);
  RUNNER_CHECK(found != leases.end(), "run {} was neither begun nor reopened here", id);
  return found->second;
}

bool Ledger::Impl::taken_up(const Lease& lease) const {
  const ShortWait wait(*database);
  try {
    auto newest = database->query("SELECT max(attempt) FROM attempt WHERE run = ?", lease.run);
    return newest.step() && newest.integer(0) > lease.attempt;
  } catch (const sqlite::Failure&) {
    return false;  // a temporary read failure must not stop the training
  }
}

Writer& Ledger::Impl::to_write() const {
  RUNNER_CHECK(writer, "{} was opened to read", path.string());
  return *writer;
}

Ledger::Ledger(const std::string& home, Mode mode) : impl_(std::make_unique<Impl>(home, mode)) {}
Ledger::~Ledger() = default;

std::string Ledger::begin_run(const NewRun& run) {
  const double now = wall_seconds();
  std::string id;
  fs::path folder;
  Lease lease;
  try {
    impl_->to_write().commit([&](Batch& batch) {
      auto& database = batch.database();
      id = unused_id(database, now);
      fs::create_directories(run.run_dir_root);
      fs::create_directory(fs::path(run.run_dir_root) / id);
      folder = fs::path(run.run_dir_root) / id;
      database.run(
          "INSERT INTO run (id, name, status, strategy, world_size, started, tags, notes, folder, working_directory, "
          "argv, "
          "build_id, git, host, recipe, resolved, config, origins, plan, annotations) "
          "VALUES (?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
          id, run.name, run.strategy, run.world_size, now, to_text(run.tags), run.notes,
          relative_below(impl_->home, folder).value_or(fs::absolute(folder).lexically_normal().string()),
          fs::current_path().string(), to_text(run.argv), run.build_id, to_text(run.git), to_text(run.host),
          keep_text(database, run.recipe_source), keep_text(database, run.resolved),
          keep_text(database, to_text(run.config)), keep_text(database, to_text(run.origins)),
          keep_text(database, to_text(run.plan)), to_text(run.annotations));
      lease.run = database.last_insert_rowid();
      if (!run.sweep.empty())
        database.run("UPDATE trial SET run = ? WHERE number = ? AND sweep = (SELECT sweep FROM sweep WHERE id = ?)",
                     lease.run, run.trial, run.sweep);
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
  return id;
}

int64_t Ledger::begin_attempt(const std::string& run, const std::string& reason, std::optional<int64_t> from_step,
                              bool completed) {
  const double now = wall_seconds();
  Lease& lease = impl_->own_lease(run);
  int64_t number = 0, attempt = 0;
  impl_->to_write().commit([&](Batch& batch) {
    auto& database = batch.database();
    if (!batch.owns(lease)) refuse_stale(database, run, lease);
    auto claimed = database.query("SELECT 1 FROM attempt WHERE attempt = ? AND reason IS NULL", lease.attempt);
    attempt = claimed.step() ? lease.attempt : claim(database, lease.run, now);
    database.run("UPDATE attempt SET reason = ?, from_step = ? WHERE attempt = ?", reason, from_step.value_or(0),
                 attempt);
    if (from_step) batch.rewind(lease.run, *from_step, completed);
    auto row = database.query("SELECT number FROM attempt WHERE attempt = ?", attempt);
    RUNNER_CHECK(row.step());
    number = row.integer(0);
    batch.touch({lease.run, attempt}, now);
  });
  lease.attempt = attempt;
  return number;
}

void Ledger::metrics(const std::string& run, std::vector<MetricPoint> points) {
  const double now = impl_->last_write[run] = wall_seconds();
  impl_->to_write().queue([lease = impl_->lease_of(run), now, points = std::move(points)](Batch& batch) {
    batch.points(lease, now, points);
  });
}

void Ledger::event(const std::string& run, const std::string& kind, const json& fields) {
  const double now = impl_->last_write[run] = wall_seconds();
  impl_->to_write().queue([now, lease = impl_->lease_of(run), record = make_record(kind, fields)](Batch& batch) {
    batch.event(lease, now, record);
  });
}

void Ledger::artifact(const std::string& run, const std::string& kind, const std::string& path, const json& fields,
                      bool unless_known) {
  const double now = impl_->last_write[run] = wall_seconds();
  // The run's folder is read in the background too: with a rollback journal, a reader waits for other processes.
  impl_->to_write().queue(
      [=, home = impl_->home, lease = impl_->lease_of(run), record = make_record(kind, fields)](Batch& batch) {
        auto row = batch.database().query("SELECT folder FROM run WHERE run = ?", lease.run);
        RUNNER_CHECK(row.step());
        const std::string stored = relative_below(home / row.text(0), path).value_or(path);
        auto known = batch.database().query("SELECT 1 FROM artifact WHERE run = ? AND kind = ? AND path = ?", lease.run,
                                            kind, stored);
        if (!unless_known || !known.step()) batch.artifact(lease, now, record, stored);
      });
}

void Ledger::settle(const std::string& run, std::function<void()> done) {
  const double now = impl_->last_write[run] = wall_seconds();
  auto owned = std::make_shared<bool>(true);
  // SQLite syncs its log only if the transaction writes something; the heartbeat ensures that.
  impl_->to_write().settle(
      [=, lease = impl_->own_lease(run)](Batch& batch) {
        *owned = batch.owns(lease);
        batch.touch(lease, now);
      },
      [owned, done = std::move(done)] {
        if (*owned) done();
      });
}

void Ledger::annotate(const std::string& run, const std::string& key, const json& value) {
  impl_->to_write().queue(
      [lease = impl_->lease_of(run), path = "$.\"" + key + "\"", text = to_text(value)](Batch& batch) {
        if (batch.owns(lease))
          batch.database().run("UPDATE run SET annotations = json_set(annotations, ?, json(?)) WHERE run = ?", path,
                               text, lease.run);
      });
}

void Ledger::heartbeat(const std::string& run) {
  constexpr double interval = 10;  // far below heartbeat_lease_seconds
  const double now = wall_seconds();
  const Lease lease = impl_->own_lease(run);
  if (impl_->taken_up(lease)) refuse_stale(*impl_->database, run, lease);
  double& last = impl_->last_write[run];
  if (now - last < interval) return;
  last = now;
  impl_->to_write().queue([lease, now](Batch& batch) { batch.touch(lease, now); });
}

bool Ledger::taken_up(const std::string& run) const {
  const auto own = impl_->leases.find(run);
  return own != impl_->leases.end() && impl_->taken_up(own->second);
}

void Ledger::finish_run(const std::string& run, const std::string& status, int exit_code, const std::string& message,
                        std::chrono::seconds patience) {
  constexpr std::array<std::string_view, 4> ends = {"finished", "failed", "interrupted", "preempted"};
  RUNNER_CHECK(std::find(ends.begin(), ends.end(), status) != ends.end(), "{}", status);
  const double now = wall_seconds();
  const Lease lease = impl_->own_lease(run);
  const auto end = [&](Batch& batch) {
    if (!batch.owns(lease)) refuse_stale(batch.database(), run, lease);
    batch.touch(lease, now);
    batch.database().run("UPDATE run SET status = ?, ended = ?, exit_code = ?, message = ? WHERE run = ?", status, now,
                         exit_code, message, lease.run);
    batch.database().run("UPDATE attempt SET ended = ? WHERE attempt = ?", now, lease.attempt);
  };
  impl_->to_write().commit(end, patience);
  impl_->leases.erase(run);
}

void Ledger::reopen_run(const std::string& run, const NewRun& again) {
  const double now = wall_seconds();
  Lease lease{impl_->row_of(run), 0};
  impl_->to_write().commit([&](Batch& batch) {
    auto& database = batch.database();
    auto owner = database.query(
        "SELECT attempt.host, pid FROM run JOIN attempt ON attempt.run = run.run WHERE run.run = ? AND status = "
        "'running' "
        "ORDER BY number DESC",
        lease.run);
    if (owner.step())
      throw usage_error("run {} is still running, as process {} on {}: stop it first", run, owner.integer(1),
                        owner.text(0));
    auto newest = database.query("SELECT max(number) FROM attempt WHERE run = ? AND reason IS NOT NULL", lease.run);
    if (newest.step() && again.last_attempt && newest.integer(0) > *again.last_attempt)
      throw usage_error("another process has continued run {} in the meantime: `runner show {}` shows its state", run,
                        run);
    keep_row(database, lease.run);
    database.run(
        "UPDATE run SET status = 'running', ended = NULL, exit_code = NULL, message = NULL, name = ?, tags = ?, "
        "notes = ?, strategy = ?, world_size = ?, working_directory = ?, argv = ?, build_id = ?, git = ?, host = ?, "
        "resolved = ?, config = ?, origins = ?, plan = ?, annotations = json_remove(annotations, '$.measured') "
        "WHERE run = ?",
        again.name, to_text(again.tags), again.notes, again.strategy, again.world_size, fs::current_path().string(),
        to_text(again.argv), again.build_id, to_text(again.git), to_text(again.host),
        keep_text(database, again.resolved), keep_text(database, to_text(again.config)),
        keep_text(database, to_text(again.origins)), keep_text(database, to_text(again.plan)), lease.run);
    lease.attempt = claim(database, lease.run, now);
  });
  impl_->leases[run] = lease;
}

void Ledger::put_back(const std::string& run) {
  impl_->to_write().commit([row = impl_->row_of(run)](Batch& batch) {
    if (batch.database().integer("SELECT count(*) FROM temp.sqlite_schema WHERE name = 'reopened'") > 0)
      batch.database().run(
          "UPDATE run SET (name, tags, notes, strategy, world_size, working_directory, argv, build_id, git, host, "
          "resolved, config, origins, plan, annotations) = (b.name, b.tags, b.notes, b.strategy, b.world_size, "
          "b.working_directory, b.argv, b.build_id, b.git, b.host, b.resolved, b.config, b.origins, b.plan, "
          "json_set(run.annotations, '$.predicted', json_extract(b.annotations, '$.predicted'))) "
          "FROM temp.reopened AS b WHERE b.run = run.run AND run.run = ? AND run.status <> 'running'",
          row);
  });
}

void Ledger::flush() {
  impl_->to_write().commit([](Batch&) {});
}

}  // namespace runner
