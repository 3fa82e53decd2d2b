// Bundles of strangers, who know ids of this ledger: they change neither its sweeps nor its runs.
#include <catch2/catch_test_macros.hpp>

#include "bundle_support.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/sweeps.hpp"

using namespace runner;

namespace {

/// All values of some tables, as one text.
std::string rows_of(const LedgerFolder& folder, const std::vector<std::string>& tables) {
  auto database = folder.raw();
  std::string text;
  for (const auto& table : tables) {
    std::vector<std::string> columns;
    auto names = database.query("SELECT name FROM pragma_table_info(?)", table);
    while (names.step()) columns.push_back("quote(" + names.text(0) + ")");
    auto rows = database.query(fmt::format("SELECT {} FROM {}", fmt::join(columns, " || ',' || "), table));
    while (rows.step()) text += rows.text(0) + "\n";
  }
  return text;
}
const std::vector<std::string> tables_of_sweeps{"sweep", "trial", "sweep_history"};

/// A finished sweep with one trial, which began in this ledger.
std::string add_sweep(const LedgerFolder& folder) {
  Sweeps sweeps(folder.home(), Ledger::Mode::write);
  const std::string id =
      sweeps.begin({.name = "mine", .seed = 1, .space = {{"objective", "loss"}}, .recipe = "[run]\n"});
  sweeps.propose(id, 1, {{"lr", 0.5}}, {{"proposed", 1}});
  sweeps.start(id, 1, "0");
  sweeps.finish(id, 1, {.status = "finished", .value = 0.25, .step = 5, .reason = "", .message = ""}, {{"ended", 1}});
  sweeps.end(id, "finished", "all trials", 10);
  return id;
}

/// A sweep in the ledger of a stranger, with two trials; the first one is `run`.
void claim_sweep(const LedgerFolder& stranger, const std::string& sweep, const std::string& run) {
  auto database = stranger.raw();
  const std::string space = R"({"objective":{}})";
  database.run("INSERT INTO config VALUES (?, ?)", xxh3_hex(space), space);
  database.run(
      "INSERT INTO sweep (id, name, status, seed, started, ended, heartbeat, space, recipe, folder, host, pid) VALUES "
      "(?1, "
      "'theirs', 'finished', 9, 1, 4e9, 4e9, ?2, ?2, 'sweeps/x', 'there', 1)",
      sweep, xxh3_hex(space));
  database.run(
      "INSERT INTO trial (sweep, number, draw, status, parameters, objective, ended, run) SELECT 1, 1, 1, 'finished', "
      "'{\"lr\":9}', -1, 4e9, run FROM run WHERE id = ?",
      run);
  database.execute(
      "INSERT INTO trial (sweep, number, draw, status, parameters, objective, ended) VALUES (1, 2, 2, 'finished', "
      "'{}', "
      "-2, 4e9); INSERT INTO sweep_history VALUES (1, 1, 1, 1, '{}'), (1, 7, 1, 1, '{\"theirs\":1}')");
}

/// Makes the record of `run` one of a run with another id.
void rename_id(const LedgerFolder& folder, const std::string& run, const std::string& id) {
  folder.raw().run("UPDATE run SET id = ?1, folder = 'runs/' || ?1 WHERE id = ?2", id, run);
}

}  // namespace

TEST_CASE("a bundle that knows the id of a sweep that began here changes nothing of it") {
  LedgerFolder stranger, here;
  const auto sweep = add_sweep(here), before = rows_of(here, tables_of_sweeps);
  const auto run = add_run(stranger, "a", 5);
  claim_sweep(stranger, sweep, run);
  const auto file = bundle_of(stranger, {run});
  SECTION("whose sweep ended later") {}
  SECTION("whose sweep goes on, as no bundle of this program says") {
    sqlite::Database bundle(file, sqlite::Access::existing);
    bundle.execute("UPDATE sweep SET status = 'running'; UPDATE trial SET status = 'running'");
  }
  CHECK(merge_bundle(here.home(), file).at(0).outcome == Outcome::added);
  CHECK(rows_of(here, tables_of_sweeps) == before);
  CHECK_FALSE(record_of(here, run).at("sweep").is_object());
  CHECK(Sweeps(here.home(), Ledger::Mode::read).trials(sweep).size() == 1);
}

TEST_CASE("a sweep of a bundle has no process here, and its name is not that of a sweep to join") {
  LedgerFolder stranger, here;
  const auto run = add_run(stranger, "a", 5);
  claim_sweep(stranger, "20240101-000000-aaaa", run);
  merge_bundle(here.home(), bundle_of(stranger, {run}));
  const Sweeps sweeps(here.home(), Ledger::Mode::read);
  REQUIRE(sweeps.sweeps().size() == 1);
  CHECK(sweeps.sweeps()[0].name == "theirs");
  CHECK(sweeps.sweeps()[0].owner.host.empty());
  CHECK(sweeps.trials(sweeps.sweeps()[0].id).at(0).run == run);
  CHECK_FALSE(sweeps.named("theirs"));
  CHECK(Sweeps(stranger.home(), Ledger::Mode::read).named("theirs"));
}

TEST_CASE("a bundle that knows the id of a run here gives it neither a parent nor a sweep") {
  LedgerFolder stranger, here;
  const auto mine = add_run(here, "mine", 5);
  const auto parent = add_run(stranger, "parent", 5), child = add_run(stranger, "child", 5, parent);
  rename_id(stranger, child, mine);
  claim_sweep(stranger, "20240101-000000-aaaa", parent);
  stranger.raw().run("UPDATE trial SET run = (SELECT run FROM run WHERE id = ?) WHERE number = 2", mine);
  const auto before = record_of(here, mine);
  for (const auto& merged : merge_bundle(here.home(), bundle_of(stranger, {parent, mine})))
    CHECK(merged.outcome == (merged.id == mine ? Outcome::conflict : Outcome::added));
  CHECK(record_of(here, mine) == before);
  CHECK(before.at("parents").empty());
  CHECK(record_of(here, parent).at("sweep").is_object());
}

TEST_CASE("a run that has come back to its ledger is not replaced by a stranger who knows its id") {
  LedgerFolder here, there, stranger;
  const auto id = add_run(here, "a", 5);
  merge_bundle(there.home(), bundle_of(here, {id}));
  train_on(there, id, 5, 7);
  const auto second = bundle_of(there, {id}, "second.bundle");
  REQUIRE(merge_bundle(here.home(), second).at(0).outcome == Outcome::updated);
  CHECK(merge_bundle(here.home(), second).at(0).outcome == Outcome::unchanged);
  const auto before = record_of(here, id);
  const auto foreign = add_run(stranger, "b", 50);
  rename_id(stranger, foreign, id);
  // Nor by one who takes over what the program writes for its own use.
  stranger.raw().execute(
      "INSERT INTO imported (run, time, kind, source, origin, digest) SELECT run, 1, 'bundle', 'x', id, 'begun here' "
      "FROM "
      "run");
  const auto other = bundle_of(stranger, {id});
  CHECK(merge_bundle(here.home(), other).at(0).outcome == Outcome::conflict);
  CHECK(record_of(here, id) == before);
  // What goes on where the run has been does replace it, again and again.
  for (const int64_t from : {7, 9}) {
    train_on(there, id, from, from + 2);
    CHECK(merge_bundle(here.home(), bundle_of(there, {id}, "later.bundle")).at(0).outcome == Outcome::updated);
    CHECK(record_of(here, id).at("points") == record_of(there, id).at("points"));
  }
  CHECK(merge_bundle(here.home(), other).at(0).outcome == Outcome::conflict);
}
