// Queries of users: they read the views, and cannot change anything.
#include "runner/ledger/user_query.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "runner/base/files.hpp"
#include "runner/ledger/edits.hpp"
#include "support.hpp"

using namespace runner;
using nlohmann::json;

namespace {

struct QueriedRun {
  LedgerFolder folder;
  std::string id;
  QueriedRun() {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    NewRun run = new_run(folder, "one");
    run.group = "g";
    run.config["optimizer"] = {{"lr", 0.5}, {"betas", {0.9, 0.95}}, {"fused", true}};
    id = ledger.begin_run(run);
    ledger.begin_attempt(id, "start");
    ledger.metrics(id, {{"loss", 1, 2.0},
                        {"loss", 2, std::nan("")},
                        {"val_loss", 1, 4.0},
                        {"val_loss", 2, 5.0},
                        {"val_accuracy", 1, 0.75},
                        {"val_accuracy", 2, 0.5}});
    ledger.event(id, "note", {{"step", 2}, {"message", "hello"}});
    ledger.artifact(id, "checkpoint", "checkpoints/step-000002", {{"step", 2}, {"bytes", 100}});
    ledger.finish_run(id, "finished", 0, "");
    ledger.edit({id}, {.added_tags = {"x"}});
  }
  json rows(const std::string& sql) const {
    UserQuery query(folder.home(), sql);
    json list = json::array();
    while (const auto row = query.next()) list.push_back(*row);
    return list;
  }
  std::string error(const std::string& sql) const {
    return error_of([&] { rows(sql); });
  }
};

}  // namespace

TEST_CASE("expectation 25: queries read documented views") {
  const QueriedRun run;
  CHECK(
      run.rows("SELECT id, name, group_name, status, steps, metric, metric_value, best_value, final_loss FROM runs") ==
      json{{run.id, "one", "g", "finished", 2, "val_loss", 5.0, 4.0, nullptr}});
  CHECK(run.rows("SELECT step, value FROM metrics WHERE run = '" + run.id + "' AND name = 'loss' ORDER BY step") ==
        json{{1, 2.0}, {2, nullptr}});
  CHECK(run.rows("SELECT name, value, min, max, best FROM last_metrics WHERE name LIKE 'val%' ORDER BY name") ==
        json{{"val_accuracy", 0.5, 0.5, 0.75, 0.75}, {"val_loss", 5.0, 4.0, 5.0, 4.0}});
  CHECK(run.rows("SELECT name, value, type FROM params ORDER BY name") ==
        json{{"optimizer.betas", "[0.9,0.95]", "array"},
             {"optimizer.fused", "true", "true"},
             {"optimizer.lr", 0.5, "real"},
             {"run.name", "one", "text"},
             {"run.seed", 1234, "integer"}});
  CHECK(run.rows("SELECT kind, step, message FROM events") == json{{"note", 2, "hello"}});
  CHECK(run.rows("SELECT kind, path, step, bytes FROM artifacts") ==
        json{{"checkpoint", "checkpoints/step-000002", 2, 100}});
  CHECK(run.rows("SELECT run, number, reason FROM attempts") == json{{run.id, 1, "start"}});
  CHECK(run.rows("SELECT who, what, after FROM changes") ==
        json{{this_user(), "tags", "[\"night\",\"a \\\"quoted\\\" one\",\"x\"]"}});
  CHECK(run.rows(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n;  -- end") ==
        json{{1}, {2}, {3}});
  CHECK(UserQuery(run.folder.home(), "SELECT name AS n, 1 + 1 FROM runs").columns() ==
        std::vector<std::string>{"n", "1 + 1"});
}

TEST_CASE("the best value of the views is finite, as in filters") {
  const QueriedRun run;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Ledger ledger(run.folder.home(), Ledger::Mode::write);
  NewRun other = new_run(run.folder, "two");
  other.config["checkpoint"] = {{"monitor", "val_accuracy"}};
  const std::string id = ledger.begin_run(other), third = ledger.begin_run(new_run(run.folder, "three"));
  ledger.begin_attempt(id, "start");
  ledger.metrics(id, {{"loss", 1, infinity}, {"loss", 2, 3.0}, {"loss", 3, -infinity}});
  ledger.metrics(id, {{"val_accuracy", 1, 0.5}, {"val_accuracy", 2, infinity}});
  ledger.begin_attempt(third, "start");
  ledger.metrics(third, {{"loss", 1, -infinity}});
  ledger.flush();
  CHECK(run.rows("SELECT name, metric, best_value FROM runs ORDER BY name") ==
        json{{"one", "val_loss", 4.0}, {"three", "loss", nullptr}, {"two", "val_accuracy", 0.5}});
  CHECK(run.rows("SELECT name, best FROM last_metrics WHERE run = '" + id + "' ORDER BY name") ==
        json::array({{"loss", 3.0}, {"val_accuracy", 0.5}}));
  CHECK(ledger.summaries(id).at("loss").best == 3.0);
  CHECK(std::isnan(ledger.summaries(third).at("loss").best));
}

TEST_CASE("expectation 25: a query cannot write") {
  const QueriedRun run;
  const auto before = read_file(run.folder.file());
  const std::string end = " is not allowed: runner query only reads";
  CHECK(run.error("DELETE FROM run") == "2: DELETE" + end);
  CHECK(run.error("UPDATE run SET name = 'x'") == "2: UPDATE" + end);
  CHECK(run.error("INSERT INTO key (name) VALUES ('x')") == "2: INSERT" + end);
  CHECK(run.error("ATTACH '" + (run.folder.path / "x.db").string() + "' AS x") == "2: ATTACH" + end);
  CHECK(run.error("PRAGMA journal_mode = delete") == "2: PRAGMA" + end);
  CHECK(run.error("PRAGMA query_only = OFF") == "2: PRAGMA" + end);
  CHECK(run.error("BEGIN IMMEDIATE") == "2: BEGIN, COMMIT and ROLLBACK" + end);
  CHECK(run.error("DROP TABLE run").ends_with(end));
  CHECK(run.error("CREATE TABLE x (a)").ends_with(end));
  CHECK(run.error("CREATE TEMP TABLE x (a)").ends_with(end));
  CHECK(run.error("VACUUM INTO '" + (run.folder.path / "x.db").string() + "'") == "2: VACUUM" + end);
  CHECK(run.error("VACUUM") == "2: VACUUM" + end);
  CHECK(run.error("SELECT load_extension('x')") ==
        "2: no such function: load_extension\n  SELECT load_extension('x')\n         ^^^^^^^^^^^^^^");
  CHECK(run.error("SELECT 1; DELETE FROM run") ==
        "2: a query is one statement; this is a second one\n  SELECT 1; DELETE FROM run\n            ^^^^^^^^^^^^^^^");
  CHECK_FALSE(fs::exists(run.folder.path / "x.db"));
  CHECK(read_file(run.folder.file()) == before);
  CHECK(run.rows("SELECT name FROM pragma_table_info('runs') LIMIT 1") == json{{"id"}});
}

TEST_CASE("a mistake in a query is shown with its place and the nearest name") {
  const QueriedRun run;
  CHECK(run.error("SELECT nme FROM runs") ==
        "2: no such column: nme; did you mean \"name\"?\n  SELECT nme FROM runs\n         ^^^");
  CHECK(run.error("SELECT name\nFROM rns") == "2: no such table: rns; did you mean \"runs\"?");
  CHECK(run.error("SELECT name\nFORM runs") == "2: near \"runs\": syntax error\n  FORM runs\n       ^^^^");
  CHECK(run.error("") == "2: the query is empty; `runner query` lists views and columns");
  LedgerFolder empty;
  CHECK(error_of([&] { UserQuery(empty.home(), "SELECT 1"); }) ==
        "2: there is no ledger in " + empty.home() + " yet; RUNNER_HOME=FOLDER names another one");
}

TEST_CASE("the points of a metric are searched, never scanned") {
  const QueriedRun run;
  for (const char* where : {"run = 'x' AND name = 'loss'", "name = 'loss'", "run = 'x'",
                            "name = 'loss' AND run IN (SELECT id FROM runs WHERE status = 'failed')"})
    for (const auto& row : run.rows(std::string("EXPLAIN QUERY PLAN SELECT * FROM metrics WHERE ") + where)) {
      INFO(where << ": " << row.dump());
      CHECK(row[3].get<std::string>().find("SCAN metric") == std::string::npos);
    }
  for (const auto& row : run.rows("EXPLAIN QUERY PLAN SELECT * FROM runs")) {
    INFO(row.dump());
    CHECK(row[3].get<std::string>().find("SCAN metric") == std::string::npos);
  }
}

TEST_CASE("all views have an explanation") {
  const QueriedRun run;
  const auto views = UserQuery::views(run.folder.home());
  auto file = run.folder.raw();
  auto count = file.query("SELECT count(*) FROM sqlite_schema WHERE type = 'view'");
  REQUIRE(count.step());
  CHECK(std::ssize(views) == count.integer(0));
  for (const auto& view : views) {
    INFO(view.name);
    CHECK_FALSE(view.about.empty());
    CHECK_FALSE(view.columns.empty());
  }
}
