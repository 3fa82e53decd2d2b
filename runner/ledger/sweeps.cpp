#include "runner/ledger/sweeps.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/private_file.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/run_id.hpp"

namespace runner {

using nlohmann::json;

struct Sweeps::Impl {
  fs::path home;
  std::unique_ptr<sqlite::Database> database;  ///< null while there is no file
  std::optional<ProcessIdentity> owner;        ///< this process, once it has begun or claimed a sweep
  std::optional<int64_t> shared_trial;         ///< after join()
  bool completed = false;                      ///< of Sweeps::completed()

  /// Row number of an existing sweep.
  int64_t number(const std::string& id) const {
    auto row = database->query("SELECT sweep FROM sweep WHERE id = ?", id);
    RUNNER_CHECK(row.step(), "sweep {}", id);
    return row.integer(0);
  }
  void keep(int64_t sweep, int64_t trial, const json& entry) const {
    database->run(
        "INSERT INTO sweep_history (sweep, sequence, trial, time, entry) VALUES (?1, "
        "1 + (SELECT ifnull(max(sequence), 0) FROM sweep_history WHERE sweep = ?1), ?2, ?3, ?4)",
        sweep, trial, wall_seconds(), entry.dump());
  }
  /// Records this process as the one that runs the sweep.
  void sign(int64_t sweep, const ProcessIdentity& me) const {
    database->run(
        "UPDATE sweep SET status = 'running', ended = NULL, message = NULL, host = ?, machine = ?, boot_id = ?, "
        "pid_namespace = ?, pid = ?, process_start = ?, heartbeat = ? WHERE sweep = ?",
        me.host, me.machine, me.boot_id, me.pid_namespace, me.pid, me.start_time, wall_seconds(), sweep);
  }
  void own(int64_t sweep) { sign(sweep, owner.emplace(this_process())); }
  /// Inserts the row and makes the folder. Returns the id.
  std::string insert(const NewSweep& sweep) const;
  void insert_trial(int64_t sweep, int64_t trial, const json& parameters, const json& entry) const {
    database->run("INSERT INTO trial (sweep, number, draw, status, parameters) VALUES (?1, ?2, ?2, 'waiting', ?3)",
                  sweep, trial, parameters.dump());
    keep(sweep, trial, entry);
  }
  void end_shared(int64_t sweep, const std::string& status, const std::string& message);
  /// Throws Error(environment) if another process has claimed the sweep since this one did, because this one seemed
  /// lost.
  void check_owner(int64_t sweep) const {
    if (!owner) return;
    auto row = database->query("SELECT host, boot_id, pid_namespace, pid, process_start, id FROM sweep WHERE sweep = ?",
                               sweep);
    RUNNER_CHECK(row.step(), "sweep {}", sweep);
    if (row.text(0) == owner->host && row.text(1) == owner->boot_id && row.text(2) == owner->pid_namespace &&
        row.integer(3) == owner->pid && row.integer(4) == owner->start_time)
      return;
    throw environment_error("process {} on {} has continued sweep {}; this process stops", row.integer(3), row.text(0),
                            row.text(5));
  }
  /// The row number of a sweep that this process may write.
  int64_t owned(const std::string& id) const {
    const int64_t sweep = number(id);
    check_owner(sweep);
    return sweep;
  }
};

namespace {

constexpr const char* sweep_columns =
    "SELECT id, name, status, ifnull(message, ''), seed, started, ended, seconds, folder, "
    "(SELECT content FROM config WHERE hash = space), ifnull(host, ''), ifnull(machine, ''), "
    "ifnull(boot_id, ''), ifnull(pid_namespace, ''), ifnull(pid, 0), ifnull(process_start, 0), ifnull(heartbeat, 0) "
    "FROM sweep ";

/// Keeps the text of the sweep's file in the folder if `space` has it without secrets, and removes it otherwise.
void keep_source(const fs::path& folder, const json& space, const std::string& source) {
  if (!source.empty() && space.value("source", "") != source)
    write_private_file_atomic(folder / "source", source);
  else
    fs::remove(folder / "source");
}

/// The description of a sweep. One that came with a bundle may lack fields, or have other types: these are as if nobody had set them.
json whole_space(const std::string& text) {
  static const json unset = {{"source", ""},      {"file", ""},    {"method", ""},
                             {"metric", "value"}, {"goal", "min"}, {"shared", false}};
  json space = foreign_json(text);
  if (!space.is_object()) space = json::object();
  for (const auto& [name, fallback] : unset.items())
    if (const auto field = space.find(name); field == space.end() || field->type() != fallback.type())
      space[name] = fallback;
  if (!space.value("trials", json()).is_number_integer()) space["trials"] = nullptr;
  return space;
}

SweepRow read_row(const sqlite::Statement& row, const fs::path& home, const ProcessIdentity& me) {
  SweepRow sweep;
  sweep.id = row.text(0);
  sweep.name = row.text(1);
  sweep.status = row.text(2);
  sweep.message = row.text(3);
  sweep.seed = static_cast<uint64_t>(row.integer(4));
  sweep.started = row.real(5);
  sweep.ended = row.optional_real(6);
  sweep.seconds = row.real(7);
  sweep.folder = (home / row.text(8)).string();
  sweep.space = whole_space(row.text(9));
  if (const auto source = fs::path(sweep.folder) / "source"; fs::exists(source))
    sweep.space["source"] = read_file(source);
  sweep.owner = {row.text(10), row.text(11), row.text(12), row.text(13), row.integer(14), row.integer(15)};
  if (sweep.status == "running" && is_gone(sweep.owner, row.real(16), me, wall_seconds())) {
    sweep.status = "lost";
    sweep.ended = std::max(row.real(16), sweep.started);
  }
  return sweep;
}

constexpr const char* trial_columns =
    "SELECT number, trial.status, parameters, objective, ifnull(step, 0), ifnull(reason, ''), "
    "ifnull(trial.message, ''), ifnull(slot, ''), tries, trial.started, trial.ended, ifnull(run.id, ''), "
    "ifnull(run.status, ''), ifnull(run.message, ''), run.exit_code, "
    "ifnull(json_extract(run.annotations, '$.measured.failure.kind'), '') FROM trial LEFT JOIN run ON run.run = "
    "trial.run ";

TrialRow read_trial(const sqlite::Statement& row) {
  TrialRow trial;
  trial.number = row.integer(0);
  trial.status = row.text(1);
  trial.parameters = json::parse(row.text(2));
  trial.value = row.optional_real(3);
  trial.step = row.integer(4);
  trial.reason = row.text(5);
  trial.message = row.text(6);
  trial.slot = row.text(7);
  trial.tries = row.integer(8);
  trial.started = row.optional_real(9);
  trial.ended = row.optional_real(10);
  trial.run = row.text(11);
  trial.run_status = row.text(12);
  trial.run_message = row.text(13);
  if (!row.is_null(14)) trial.run_exit_code = row.integer(14);
  trial.run_failure = row.text(15);
  return trial;
}

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

}  // namespace

json to_json(const TrialRow& row) {
  return {{"trial", row.number},
          {"status", row.status},
          {"parameters", row.parameters},
          {"value", or_null(row.value)},
          {"step", row.step},
          {"reason", text_or_null(row.reason)},
          {"message", text_or_null(row.message)},
          {"slot", text_or_null(row.slot)},
          {"tries", row.tries},
          {"started", or_null(row.started)},
          {"ended", or_null(row.ended)},
          {"run", text_or_null(row.run)}};
}

Sweeps::Sweeps(const std::string& home, Ledger::Mode mode) : impl_(std::make_unique<Impl>()) {
  impl_->home = home;
  const fs::path file = impl_->home / "ledger.db";
  { Ledger ledger(home, mode); }  // creates and migrates the file, and marks lost runs
  if (mode == Ledger::Mode::read) {
    impl_->database = open_to_read(file);
    return;
  }
  impl_->database = std::make_unique<sqlite::Database>(file, sqlite::Access::existing);
  // NORMAL keeps the order of commits. A power failure may lose the end of the history, which the sweep then repeats.
  if (!on_network_filesystem(home)) impl_->database->execute("PRAGMA synchronous = NORMAL");
}

Sweeps::~Sweeps() = default;

std::string Sweeps::Impl::insert(const NewSweep& sweep) const {
  const std::string id = unused_id(*database, "sweep", wall_seconds());
  const fs::path relative = fs::path("sweeps") / id;
  std::error_code error;
  fs::create_directories(home / relative / "logs", error);
  if (error) throw environment_error("cannot make the folder {}: {}", (home / relative).string(), error.message());
  const fs::path recipe = home / relative / "recipe.toml";
  const bool has_secrets = sweep.recorded_recipe != sweep.recipe;
  (has_secrets ? write_private_file_atomic : write_file_atomic)(recipe, sweep.recipe);
  keep_source(home / relative, sweep.space, sweep.source);
  database->run(
      "INSERT INTO sweep (id, name, status, seed, started, space, recipe, folder) VALUES (?, ?, 'running', ?, ?, ?, ?, "
      "?)",
      id, sweep.name, static_cast<int64_t>(sweep.seed), wall_seconds(), keep_text(*database, sweep.space.dump()),
      keep_text(*database, sweep.recorded_recipe), relative.string());
  return id;
}

std::string Sweeps::begin(const NewSweep& sweep) {
  sqlite::Transaction transaction(*impl_->database);
  const std::string id = impl_->insert(sweep);
  impl_->own(impl_->database->last_insert_rowid());
  transaction.commit();
  return id;
}

std::optional<std::string> Sweeps::named(const std::string& name) const {
  auto row = impl_->database->query(
      "SELECT id FROM sweep WHERE name = ? AND host IS NOT NULL ORDER BY started DESC, sweep DESC LIMIT 1", name);
  return row.step() ? std::optional(row.text(0)) : std::nullopt;
}

std::string Sweeps::begin_shared(const NewSweep& sweep, const std::vector<FirstTrial>& trials) {
  sqlite::Transaction transaction(*impl_->database);
  if (auto known = named(sweep.name)) return *known;
  const std::string id = impl_->insert(sweep);
  const int64_t number = impl_->database->last_insert_rowid();
  for (const auto& trial : trials) impl_->insert_trial(number, trial.number, trial.parameters, trial.entry);
  impl_->sign(number, this_process());
  transaction.commit();
  return id;
}

void Sweeps::join(const std::string& sweep, int64_t trial) {
  sqlite::Transaction transaction(*impl_->database);
  impl_->sign(impl_->number(sweep), this_process());
  impl_->shared_trial = trial;
  transaction.commit();
}

void Sweeps::claim(const std::string& sweep) {
  sqlite::Transaction transaction(*impl_->database);
  const SweepRow row = find(sweep);
  if (row.status == "running" && row.space.value("shared", false))
    throw usage_error(
        "sweep {} is still running, as process {} on {} and perhaps others: wait for them, or stop them first (jobs of "
        "Slurm: scancel)",
        row.id, row.owner.pid, row.owner.host);
  if (row.status == "running")
    throw usage_error("sweep {} is still running, as process {} on {}: stop it first (runner sweep stop {})", row.id,
                      row.owner.pid, row.owner.host, row.id);
  if (!fs::is_directory(row.folder))
    throw usage_error(
        "sweep {} cannot be continued: its folder {} is not here, as of a sweep that came with a bundle of its runs",
        row.id, row.folder);
  impl_->own(impl_->number(sweep));
  transaction.commit();
}

void Sweeps::set_space(const std::string& sweep, const json& space, const std::string& source) {
  sqlite::Transaction transaction(*impl_->database);
  impl_->database->run("UPDATE sweep SET space = ? WHERE sweep = ?", keep_text(*impl_->database, space.dump()),
                       impl_->owned(sweep));
  keep_source(find(sweep).folder, space, source);
  transaction.commit();
}

void Sweeps::heartbeat(const std::string& sweep, double seconds) {
  sqlite::Transaction transaction(*impl_->database);
  const int64_t number = impl_->owned(sweep);
  if (impl_->shared_trial) {
    auto row = impl_->database->query(std::string(sweep_columns) + "WHERE sweep = ?", number);
    RUNNER_CHECK(row.step(), "sweep {}", sweep);
    const auto me = this_process();
    const SweepRow shared = read_row(row, impl_->home, me);
    if (shared.status != "running") impl_->sign(number, me);  // the owner has ended, and its trial with it
    seconds = std::max(0.0, wall_seconds() - shared.started);
  }
  impl_->database->run("UPDATE sweep SET heartbeat = ?, seconds = ? WHERE sweep = ?", wall_seconds(), seconds, number);
  transaction.commit();
}

void Sweeps::Impl::end_shared(int64_t sweep, const std::string& status, const std::string& message) {
  database->run("UPDATE trial SET status = 'waiting' WHERE sweep = ? AND number = ? AND status = 'running'", sweep,
                *shared_trial);
  auto row = database->query(
      "SELECT count(*) FILTER (WHERE status = 'running'), count(*) FILTER (WHERE status = 'waiting') FROM trial "
      "WHERE sweep = ?",
      sweep);
  RUNNER_CHECK(row.step(), "sweep {}", sweep);
  const int64_t running = row.integer(0), waiting = row.integer(1);
  if (running > 0) return;  // the process of one of them becomes the owner
  completed = waiting == 0;
  const std::string left = status == "finished" ? counted(waiting, "trial") + " to begin" : message;
  database->run(
      "UPDATE sweep SET status = ?1, message = ?2, ended = max(?3, started), seconds = max(0, ?3 - started) "
      "WHERE sweep = ?4",
      completed ? "finished" : "interrupted", completed ? "" : left, wall_seconds(), sweep);
}

bool Sweeps::completed() const { return impl_->completed; }

void Sweeps::end(const std::string& sweep, const std::string& status, const std::string& message, double seconds) {
  sqlite::Transaction transaction(*impl_->database);
  const int64_t number = impl_->owned(sweep);
  if (impl_->shared_trial) {
    impl_->end_shared(number, status, message);
    return transaction.commit();
  }
  impl_->database->run("UPDATE trial SET status = 'waiting' WHERE sweep = ? AND status = 'running'", number);
  impl_->database->run("UPDATE sweep SET status = ?, message = ?, ended = max(?, started), seconds = ? WHERE sweep = ?",
                       status, message, wall_seconds(), seconds, number);
  transaction.commit();
}

void Sweeps::propose(const std::string& sweep, int64_t trial, const json& parameters, const json& entry) {
  sqlite::Transaction transaction(*impl_->database);
  impl_->insert_trial(impl_->owned(sweep), trial, parameters, entry);
  transaction.commit();
}

void Sweeps::start(const std::string& sweep, int64_t trial, const std::string& slot) {
  sqlite::Transaction transaction(*impl_->database);
  impl_->database->run(
      "UPDATE trial SET status = 'running', slot = ?, tries = tries + 1, started = ?, ended = NULL, objective = NULL, "
      "step = NULL, reason = NULL, message = NULL WHERE sweep = ? AND number = ?",
      slot, wall_seconds(), impl_->owned(sweep), trial);
  transaction.commit();
}

void Sweeps::report(const std::string& sweep, int64_t trial, const json& entry) {
  sqlite::Transaction transaction(*impl_->database);
  impl_->keep(impl_->owned(sweep), trial, entry);
  transaction.commit();
}

void Sweeps::finish(const std::string& sweep, int64_t trial, const TrialEnd& end, const json& entry) {
  sqlite::Transaction transaction(*impl_->database);
  const int64_t number = impl_->owned(sweep);
  auto text = [](const std::string& value) { return value.empty() ? std::nullopt : std::optional(value); };
  impl_->database->run(
      "UPDATE trial SET status = ?, objective = ?, step = ?, reason = ?, message = ?, ended = ? WHERE sweep = ? AND "
      "number = ?",
      end.status, end.value, end.step, text(end.reason), text(end.message), wall_seconds(), number, trial);
  if (end.status == "pruned" || end.reason == "timeout")  // the run has recorded only that it received a signal
    impl_->database->run(
        "UPDATE run SET message = 'its sweep stopped it: ' || ? WHERE status = 'preempted' AND run = (SELECT run FROM "
        "trial WHERE sweep = ? AND number = ?)",
        end.message, number, trial);
  impl_->keep(number, trial, entry);
  transaction.commit();
}

std::vector<SweepRow> Sweeps::sweeps() const {
  std::vector<SweepRow> list;
  if (!impl_->database) return list;
  const ProcessIdentity me = this_process();
  // Rows without a folder have the first form of the schema, which no version of the program wrote.
  auto rows = impl_->database->query(std::string(sweep_columns) + "WHERE folder IS NOT NULL ORDER BY started, sweep");
  while (rows.step()) list.push_back(read_row(rows, impl_->home, me));
  return list;
}

SweepRow Sweeps::find(const std::string& text) const {
  const auto list = sweeps();
  const std::string file = fs::absolute(impl_->home / "ledger.db").lexically_normal().string();
  if (list.empty())
    throw usage_error("there is no sweep \"{}\": {} {}; RUNNER_HOME=FOLDER names another ledger", text,
                      impl_->database ? "there are no sweeps in" : "there is no ledger", file);
  if (text == "last") return list.back();
  const SweepRow* of_name = nullptr;
  std::vector<const SweepRow*> matches;
  std::vector<std::string> similar;
  for (const auto& sweep : list) {
    if (sweep.id == text) return sweep;
    if (sweep.name == text) of_name = &sweep;
    if (shortens(text, sweep.id)) matches.push_back(&sweep);
    similar.insert(similar.end(), {sweep.name, sweep.id, id_end(sweep.id)});
  }
  if (of_name) return *of_name;
  if (matches.size() == 1) return *matches[0];
  if (matches.size() > 1) {
    std::vector<std::string> ids;
    for (const auto* sweep : matches) ids.push_back(sweep->id);
    throw usage_error("\"{}\" names {} sweeps: {}", text, ids.size(), join_or(ids));
  }
  const auto near = nearest(text, similar);
  throw usage_error(
      "there is no sweep \"{}\" in {}{}; `runner sweep status --all` lists them, RUNNER_HOME=FOLDER names another "
      "ledger",
      text, file, near ? fmt::format(": did you mean \"{}\"?", *near) : "");
}

std::vector<TrialRow> Sweeps::trials(const std::string& sweep) const {
  std::vector<TrialRow> list;
  auto rows =
      impl_->database->query(std::string(trial_columns) + "WHERE sweep = ? ORDER BY number", impl_->number(sweep));
  while (rows.step()) list.push_back(read_trial(rows));
  return list;
}

TrialRow Sweeps::trial(const std::string& sweep, int64_t number) const {
  auto row = impl_->database->query(std::string(trial_columns) + "WHERE sweep = ? AND number = ?", impl_->number(sweep),
                                    number);
  RUNNER_CHECK(row.step(), "trial {} of {}", number, sweep);
  return read_trial(row);
}

double Sweeps::trial_seconds(const std::string& sweep, int64_t number) const {
  auto row = impl_->database->query(
      "SELECT ifnull(sum(max(0, ifnull(attempt.ended, heartbeat) - attempt.started)), 0) FROM trial JOIN attempt USING "
      "(run) WHERE trial.sweep = ?1 AND trial.number = ?2 AND attempt.started > (SELECT ifnull(max(time), 0) "
      "FROM sweep_history WHERE sweep = ?1 AND trial = ?2 AND json_extract(entry, '$.kind') = 'ended')",
      impl_->number(sweep), number);
  RUNNER_CHECK(row.step(), "trial {} of {}", number, sweep);
  return row.real(0);
}

std::vector<std::pair<int64_t, json>> Sweeps::history(const std::string& sweep) const {
  std::vector<std::pair<int64_t, json>> entries;
  auto rows = impl_->database->query("SELECT trial, entry FROM sweep_history WHERE sweep = ? ORDER BY sequence",
                                     impl_->number(sweep));
  while (rows.step()) entries.emplace_back(rows.integer(0), json::parse(rows.text(1)));
  return entries;
}

std::map<std::string, MetricSummary> Sweeps::summaries(const std::string& run) const {
  return summaries_of(*impl_->database, run);
}

}  // namespace runner
