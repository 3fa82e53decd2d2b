// MLflow's stores: the SQLite store is read; the folder store is written and read, by us and by MLflow's own client.
#include "foreign_support.hpp"

using namespace runner;
using namespace runner::testing;
using nlohmann::json;

TEST_CASE("expectation 34: a store of MLflow becomes runs") {
  Workplace place;
  const fs::path file = place.path() / "mlflow.db";
  {
    // The columns of MLflow's tables that are read, as its version 3 creates them.
    sqlite::Database store(file, sqlite::Access::create);
    store.execute(
        "CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256) NOT NULL, lifecycle_stage "
        "VARCHAR(32));"
        "CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(9), start_time BIGINT, "
        "end_time BIGINT, "
        "lifecycle_stage VARCHAR(20), artifact_uri VARCHAR(200), experiment_id INTEGER);"
        "CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL, run_uuid "
        "VARCHAR(32) NOT NULL, "
        "step BIGINT NOT NULL, is_nan BOOLEAN NOT NULL);"
        "CREATE TABLE params (key VARCHAR(250) NOT NULL, value VARCHAR(8000) NOT NULL, run_uuid VARCHAR(32) NOT NULL);"
        "CREATE TABLE tags (key VARCHAR(250) NOT NULL, value VARCHAR(8000), run_uuid VARCHAR(32) NOT NULL);"
        "INSERT INTO experiments VALUES (1, 'trial runs', 'active');"
        "INSERT INTO runs VALUES ('r1', 'brave-lion', 'FINISHED', 1000500, 1009000, 'active', '', 1), "
        "('r2', '', 'RUNNING', 2000000, NULL, 'active', '', 1), ('r3', 'gone', 'FAILED', 3000000, NULL, 'deleted', '', "
        "1);"
        "INSERT INTO params VALUES ('optimizer.lr', '0.25', 'r1'), ('layers', '3', 'r1'), ('kind', 'a', 'r1'), ('on', "
        "'True', 'r1');"
        "INSERT INTO tags VALUES ('mlflow.note.content', 'a note', 'r1'), ('team', 'blue', 'r1'), ('mlflow.user', "
        "'me', 'r1');"
        "INSERT INTO metrics VALUES ('loss', 0.5, 2, 'r1', 1, 0), ('loss', 1.0, 1, 'r1', 0, 0), ('loss', 0.25, 3, "
        "'r1', 1, 0), "
        "('nan', 0, 1, 'r1', 1, 1), ('inf', 1.7976931348623157e308, 1, 'r1', 1, 0), "
        "('plain', 5, 1, 'r1', 0, 0), ('plain', 6, 2, 'r1', 0, 0), ('plain', 7, 3, 'r1', 0, 0), ('loss', 9, 1, 'r2', "
        "4, 0)");
  }
  auto result = place.run({"import", "mlflow.db"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err ==
        "note: left out: 1 run that was deleted in MLflow\nnote: left out: 1 value, because the same step has a later "
        "value\n"
        "read 2 runs with 8 points of 4 metrics\n2 runs: 2 added\n");
  CHECK(points_of(place, "brave-lion", "loss") == json{{0, 1.0}, {1, 0.25}});
  CHECK(points_of(place, "brave-lion", "nan") == json{{1, "NaN"}});
  CHECK(points_of(place, "brave-lion", "inf") == json{{1, "Infinity"}});
  CHECK(points_of(place, "brave-lion", "plain") == json{{0, 5.0}, {1, 6.0}, {2, 7.0}});
  const auto shown = show(place, "brave-lion");
  CHECK(shown.at("config") == json{{"optimizer", {{"lr", 0.25}}}, {"layers", 3}, {"kind", "a"}, {"on", true}});
  CHECK(shown.at("notes") == "a note");
  CHECK(shown.at("tags") == json{"team=blue"});
  CHECK(shown.at("started") == 1000.5);
  CHECK(shown.at("ended") == 1009);
  CHECK(show(place, "r2").at("status") == "lost");
  CHECK(place.run({"ls", "group:trial*", "--json"}).json().at("runs").size() == 2);
  CHECK(place.run({"import", "mlflow", "mlflow.db"}).err.ends_with("2 runs: 2 already there\n"));
  // The second run goes on there; what was edited here stays.
  REQUIRE(place.run({"tag", "r2", "+mine"}).code == 0);
  sqlite::Database(file, sqlite::Access::existing)
      .execute(
          "INSERT INTO metrics VALUES ('loss', 8, 2, 'r2', 5, 0); UPDATE runs SET status = 'FINISHED', end_time = "
          "2005000 WHERE "
          "run_uuid = 'r2'");
  CHECK(place.run({"import", "mlflow.db"}).err.ends_with("2 runs: 1 updated, 1 already there\n"));
  CHECK(points_of(place, "r2", "loss").size() == 2);
  CHECK(show(place, "r2").at("status") == "finished");
  CHECK(show(place, "r2").at("tags") == json{"mine"});
}

// Needs a Python with mlflow: RUNNER_TEST_PYTHON=PYTHON build/bin/test_keeping "[.foreign]"
TEST_CASE("expectation 34: a store that MLflow's own client has written", "[.foreign]") {
  Workplace place;
  python(place, "mlflow", place.path() / "mlflow.db");
  const auto result = place.run({"import", "mlflow.db"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.find("read 2 runs with 56 points of 4 metrics") != std::string::npos);
  check_values(points_of(place, "brave-lion", "loss"), 50, false);
  check_values(points_of(place, "brave-lion", "unnumbered"), 3, false);
  CHECK(points_of(place, "brave-lion", "nan") == json{{1, "NaN"}});
  CHECK(points_of(place, "brave-lion", "inf") == json{{1, "Infinity"}});
  const auto shown = show(place, "brave-lion");
  CHECK(shown.at("config") == json{{"optimizer", {{"lr", 0.25}}}, {"layers", 3}, {"kind", "a"}, {"on", true}});
  CHECK(shown.at("notes") == "a note");
  CHECK(show(place, "failed").at("status") == "failed");
}

TEST_CASE("a metric of MLflow that has two values at one step keeps the step and the later value") {
  Workplace place;
  {
    sqlite::Database store(place.path() / "mlflow.db", sqlite::Access::create);
    store.execute(
        "CREATE TABLE experiments (experiment_id, name, lifecycle_stage); INSERT INTO experiments VALUES (0, "
        "'Default', "
        "'active');"
        "CREATE TABLE runs (run_uuid, name, status, start_time, end_time, lifecycle_stage, experiment_id);"
        "INSERT INTO runs VALUES ('r', 'r', 'FINISHED', 1000, 2000, 'active', 0);"
        "CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan);"
        "INSERT INTO metrics VALUES ('test_acc', 0.5, 1, 'r', 1000, 0), ('test_acc', 0.75, 2, 'r', 1000, 0);"
        "CREATE TABLE params (key, value, run_uuid); CREATE TABLE tags (key, value, run_uuid)");
  }
  REQUIRE(place.run({"import", place.path().string()}).code == 0);  // a folder with a store
  CHECK(points_of(place, "r", "test_acc") == json{{1000, 0.75}});
}

TEST_CASE("a run of MLflow that went on there took longer, and an end before the start is none") {
  Workplace place;
  sqlite::Database store(place.path() / "mlflow.db", sqlite::Access::create);
  store.execute(
      "CREATE TABLE experiments (experiment_id, name, lifecycle_stage); INSERT INTO experiments VALUES (0, 'Default', "
      "'active');"
      "CREATE TABLE runs (run_uuid, name, status, start_time, end_time, lifecycle_stage, experiment_id);"
      "INSERT INTO runs VALUES ('r', 'r', 'RUNNING', 1000, NULL, 'active', 0);"
      "CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan);"
      "CREATE TABLE params (key, value, run_uuid); CREATE TABLE tags (key, value, run_uuid)");
  const auto import = [&] {
    const auto result = place.run({"import", "mlflow.db"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    const RunRow run = Ledger(place.home(), Ledger::Mode::read).runs().at(0);
    return std::pair(seconds_taken(run, 0), run.why);
  };
  CHECK(import() == std::pair<double, std::string>(0.0, "not finished when it was imported"));
  store.execute("UPDATE runs SET status = 'FINISHED', end_time = 61000");
  CHECK(import() == std::pair<double, std::string>(60.0, ""));
  store.execute("UPDATE runs SET end_time = 500");
  CHECK(import() == std::pair<double, std::string>(0.0, ""));
  CHECK(place.run({"import", "mlflow.db"}).err.starts_with("note: r: its end is before its start, and is left out\n"));
}

namespace {

/// A run with everything that MLflow's store has a place for.
std::string add_rich_run(const Workplace& place) {
  const auto id = add_run(place.home(), "a", 30);
  auto database = raw(place.home());
  for (const char* name : {"train", "train/loss", "a@b", "a#b", "seconds"})
    database.run("INSERT INTO key (name) VALUES (?)", name);
  database.execute(
      "INSERT INTO metric (run, key, step, value) SELECT run, key, 7, key + 0.25 FROM run, key WHERE key.name NOT IN "
      "('loss', 'odd, \"name\"');"
      "INSERT INTO metric_last (run, key, step, value, min, max) SELECT run, key, step, value, value, value FROM "
      "metric "
      "WHERE key IN (SELECT key FROM key WHERE name NOT IN ('loss', 'odd, \"name\"'))");
  REQUIRE(place.run({"tag", id, "+team=blue", "+night shift"}).code == 0);
  REQUIRE(place.run({"note", id, "two\nlines"}).code == 0);
  REQUIRE(place.run({"group", id, "the: group"}).code == 0);
  return id;
}

}  // namespace

TEST_CASE("expectation 34: runs go out as MLflow's folder store, and come back") {
  Workplace place, other;
  const auto id = add_rich_run(place);
  auto result = place.run({"export", "a", "--metrics", "mlflow", "-o", "mlruns"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.starts_with("65 points of 7 metrics of 1 run\n"));
  result = other.run({"import", (place.path() / "mlruns").string()});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err == "read 1 run with 65 points of 7 metrics\n1 run: 1 added\n");
  CHECK(points_of(other, "a", "loss") == points_of(place, "a", "loss"));
  CHECK(points_of(other, "a", "odd, \"name\"") == points_of(place, "a", "odd, \"name\""));
  CHECK(points_of(other, "a", "train/loss") == points_of(place, "a", "train/loss"));
  const auto ours = show(place, "a"), theirs = show(other, "a");
  CHECK(theirs.at("config").at("optimizer") == ours.at("config").at("optimizer"));
  for (const char* field : {"name", "notes", "group", "status"}) CHECK(theirs.at(field) == ours.at(field));
  std::vector<std::string> tags = theirs.at("tags");
  std::ranges::sort(tags);
  CHECK(tags == std::vector<std::string>{"night shift", "team=blue"});
  CHECK(std::abs(theirs.at("started").get<double>() - ours.at("started").get<double>()) < 0.002);
  CHECK(other.run({"import", "mlflow", (place.path() / "mlruns").string()}).err.ends_with("1 already there\n"));
  CHECK(place.run({"export", id, "--metrics", "mlflow", "-o", "mlruns"}).err ==
        "error: mlruns exists: remove it, or name another file\n");
}

TEST_CASE("a folder store of MLflow: deleted runs, long names in YAML, old files of metrics") {
  Workplace place;
  place.write("mlruns/0/meta.yaml", "experiment_id: '0'\nlifecycle_stage: active\nname: Default\n");
  place.write("mlruns/.trash/x/meta.yaml", "experiment_id: '9'\n");
  place.write("mlruns/7/meta.yaml",
              "artifact_location: x\nexperiment_id: '7'\nname: 'it''s a long name of an experiment that\n  goes on'\n");
  place.write("mlruns/7/r1/meta.yaml",
              "run_id: r1\nrun_name: r-one\nstatus: 4\nstart_time: 1000500\nend_time: null\n"
              "lifecycle_stage: active\n");
  place.write("mlruns/7/r1/metrics/val/acc", "1 0.5 3\n2 0.75 3\n3 nan 4\n");
  place.write("mlruns/7/r1/metrics/old", "1 5\n2 6\n");
  place.write("mlruns/7/r1/params/lr", "0.25");
  place.write("mlruns/7/r1/tags/mlflow.note.content", "a\nnote\n");
  place.write("mlruns/7/r2/meta.yaml", "run_id: r2\nstatus: 3\nstart_time: 1\nlifecycle_stage: deleted\n");
  place.write("mlruns/7/r3/meta.yaml", "run_id: r3\nstatus: 3\nstart_time: 1\nlifecycle_stage: active\n");
  place.write("mlruns/7/r3/metrics/bad", "what\n");
  auto result = place.run({"import", "."});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.find("bad, line 1: \"what\" is not a time, a value and a step; its run is left out\n") !=
        std::string::npos);
  CHECK(result.err.find(
            "note: left out: 1 run that was deleted in MLflow\nnote: left out: 1 value, because the same step "
            "has a later value\nread 1 run with 4 points of 2 metrics\n") != std::string::npos);
  CHECK(points_of(place, "r-one", "val/acc") == json{{3, 0.75}, {4, "NaN"}});
  CHECK(points_of(place, "r-one", "old") == json{{0, 5.0}, {1, 6.0}});
  const auto shown = show(place, "r-one");
  CHECK(shown.at("group") == "it's a long name of an experiment that goes on");
  CHECK(shown.at("status") == "failed");
  CHECK(shown.at("notes") == "a\nnote");
  CHECK(shown.at("config") == json{{"lr", 0.25}});
}

TEST_CASE("a folder store of MLflow: escapes and folded lines of YAML") {
  const std::pair<std::string, std::string> names[] = {
      {R"("rocket \U0001F680 launch")", "rocket 🚀 launch"},
      {R"("caf\xE9 \u20AC \_x")", "café € \xc2\xa0x"},
      {R"("a \"b\" \\ c")", "a \"b\" \\ c"},
      {R"("two\nlines\tand a tab")", "two lines and a tab"},
      {"\"a long name that \\\n  \\ goes on\"", "a long name that  goes on"},
      {"\"a long\n  name\"", "a long name"},
      {"'two\n\n  lines'", "two lines"},
      {R"("\uD800 \x4 \q")", R"(\uD800 \x4 q)"},
      {"plain \\n", "plain \\n"},
  };
  for (const auto& [written, name] : names) {
    Workplace place;
    place.write("mlruns/7/meta.yaml", "experiment_id: '7'\nname: " + written + "\n");
    place.write("mlruns/7/r1/meta.yaml", "run_id: r1\nrun_name: " + written + "\nstatus: 3\nstart_time: 1000\n");
    place.write("mlruns/7/r1/metrics/loss", "1 0.5 3\n");
    REQUIRE(place.run({"import", "mlruns"}).code == 0);
    const auto shown = show(place, "last");
    CHECK(shown.at("name") == name);
    CHECK(shown.at("group") == name);
  }
}

// Needs a Python with mlflow, as above.
TEST_CASE("expectation 34: MLflow's own client reads the folder that is exported", "[.foreign]") {
  Workplace place;
  const auto id = add_rich_run(place);
  REQUIRE(place.run({"export", "a", "--metrics", "mlflow", "-o", "mlruns"}).code == 0);
  const auto run = json::parse(python(place, "read-mlflow", place.path() / "mlruns"));
  CHECK(run.at("name") == "a");
  CHECK(run.at("experiment") == "the: group");
  CHECK(run.at("status") == "FINISHED");
  CHECK(run.at("params").at("optimizer.lr") == "0.1");
  CHECK(run.at("tags").at("runner.run") == id);
  CHECK(run.at("tags").at("team") == "blue");
  CHECK(run.at("tags").at("mlflow.note.content") == "two\nlines");
  CHECK(run.at("tags").at("runner.metric.train_loss_2") == "train/loss");
  CHECK(run.at("metrics").size() == 7);
  const auto& loss = run.at("metrics").at("loss");
  REQUIRE(loss.size() == 30);
  for (size_t i = 0; i < 30; ++i) CHECK(loss[i][1].get<double>() == 1.0 / static_cast<double>(i + 1));
  CHECK(run.at("metrics").at("odd_ _name_")[6][1] == "nan");
}

// Needs a Python with mlflow, as above.
TEST_CASE("expectation 34: a folder store that MLflow's own client has written", "[.foreign]") {
  Workplace place;
  python(place, "mlflow-folder", place.path() / "mlruns");
  const auto result = place.run({"import", "mlruns"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.find("read 2 runs with 56 points of 4 metrics") != std::string::npos);
  check_values(points_of(place, "brave-lion", "loss"), 50, false);
  check_values(points_of(place, "brave-lion", "unnumbered"), 3, false);
  CHECK(points_of(place, "brave-lion", "nan") == json{{1, "NaN"}});
  CHECK(points_of(place, "brave-lion", "inf") == json{{1, "Infinity"}});
  const auto shown = show(place, "brave-lion");
  CHECK(shown.at("config") == json{{"optimizer", {{"lr", 0.25}}}, {"layers", 3}, {"kind", "a"}, {"on", true}});
  CHECK(shown.at("notes") == "a note");
  CHECK(shown.at("group") == "trial runs");
  CHECK(shown.at("tags") == json{"team=blue"});
  CHECK(show(place, "failed").at("status") == "failed");
}
