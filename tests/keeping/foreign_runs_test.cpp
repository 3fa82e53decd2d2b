// Runs of other programs, written by their own classes, arrive with all their counts and values, and what runner exports is read by
// theirs.
#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using nlohmann::json;

namespace {

/// Runs foreign_sources.py. The test is skipped if the program is not installed.
std::string python(const Workplace& place, const std::string& what, const fs::path& path) {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  const std::string program = chosen ? chosen
                                     : "PYTHONPATH=" RUNNER_SOURCE_DIR "/.deps/transformers:" RUNNER_SOURCE_DIR
                                       "/.deps/wandb /usr/bin/python3";
  const std::string out = (place.path() / "python.out").string();
  const int status = std::system(fmt::format("{} {}/tests/keeping/foreign_sources.py {} {} >{} 2>{}.err", program,
                                             RUNNER_SOURCE_DIR, what, path.string(), out, out)
                                     .c_str());
  INFO(slurp(out + ".err"));
  if (WEXITSTATUS(status) == 77) SKIP(program << " cannot do this: " << slurp(out + ".err"));
  REQUIRE(status == 0);
  return slurp(out);
}

json points_of(const Workplace& place, const std::string& run, const std::string& metric) {
  const auto result = place.run({"metrics", run, "--name", metric, "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.json().at("points");
}

json show(const Workplace& place, const std::string& run) { return place.run({"show", run, "--json"}).json(); }

/// 1, 1/2, 1/3, ... as foreign_sources.py writes them.
void check_values(const json& points, size_t count, bool floats, double factor = 1) {
  REQUIRE(points.size() == count);
  for (size_t step = 0; step < count; ++step) {
    const double value = factor / static_cast<double>(step + 1);
    CHECK(points[step][0] == step);
    CHECK(points[step][1].get<double>() == (floats ? static_cast<double>(static_cast<float>(value)) : value));
  }
}

}  // namespace

TEST_CASE("expectation 34: event files of TensorBoard's own writer become runs") {
  Workplace place;
  python(place, "tensorboard", place.path() / "tb");
  auto result = place.run({"import", "tb"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err == "read 2 runs with 200 points of 2 metrics\n2 runs: 2 added\n");
  check_values(points_of(place, "first", "loss"), 50, true);
  check_values(points_of(place, "sub/second", "accuracy"), 50, true, 2);
  const auto shown = show(place, "first");
  CHECK(shown.at("config") == json{{"lr", 0.25}, {"kind", "a"}, {"on", true}});
  CHECK(shown.at("status") == "finished");
  CHECK(shown.at("started") == 100);
  CHECK(shown.at("ended") == 149);
  CHECK(place.run({"import", "tensorboard", "tb"}).err.ends_with("2 runs: 2 already there\n"));
  CHECK(place.run({"ls", "lr:0.25", "--json"}).json().at("runs").size() == 2);
}

TEST_CASE("expectation 34: runs exported as event files are read by TensorBoard, and come back") {
  Workplace place, other;
  const auto id = add_run(place.home(), "a", 120);
  const auto exported = place.run({"export", "a", "--metrics", "tensorboard", "-o", "tb"});
  INFO(exported.err);
  REQUIRE(exported.code == 0);
  CHECK(exported.err == "240 points of 2 metrics of 1 run\n");
  CHECK(other.run({"import", (place.path() / "tb").string()}).code == 0);
  const std::string name = "a-" + id.substr(id.rfind('-') + 1);
  const auto ours = points_of(place, "a", "loss"), back = points_of(other, name, "loss");
  REQUIRE(back.size() == ours.size());
  for (size_t i = 0; i < ours.size(); ++i) CHECK(back[i][1].get<float>() == ours[i][1].get<float>());
  const auto read = json::parse(python(place, "read-tensorboard", place.path() / "tb")).at(name);
  CHECK(read.at("loss").size() == 120);
  CHECK(read.at("odd, \"name\"").size() == 120);
  for (size_t i = 0; i < ours.size(); ++i) CHECK(read.at("loss")[i][1].get<float>() == ours[i][1].get<float>());
}

TEST_CASE("a damaged or cut event file is named with its place") {
  Workplace place;
  add_run(place.home(), "a", 20);
  REQUIRE(place.run({"export", "a", "--metrics", "tensorboard", "-o", "tb"}).code == 0);
  fs::path file;
  for (const auto& entry : fs::recursive_directory_iterator(place.path() / "tb"))
    if (entry.is_regular_file()) file = entry.path();
  const std::string bytes = slurp(file);
  std::ofstream(file, std::ios::binary) << bytes.substr(0, bytes.size() - 3);
  auto result = place.run({"import", "tb"});
  CHECK(result.code == 0);
  CHECK(result.err.find("the last record is not complete; it is left out") != std::string::npos);
  std::string flipped = bytes;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << flipped;
  result = place.run({"import", "tb"});
  CHECK(result.code == 4);
  CHECK(result.err.find("is damaged: ") != std::string::npos);
}

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
        "note: 1 run that were deleted in MLflow are left out\nnote: 1 value left out, because the same step has a "
        "later value\n"
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

TEST_CASE("expectation 34: an offline run of W&B, written by wandb's own record log") {
  Workplace place;
  python(place, "wandb", place.path() / "offline-run");
  const auto result = place.run({"import", "offline-run"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err == "read 1 run with 9000 points of 3 metrics\n1 run: 1 added\n");
  check_values(points_of(place, "calm-sea", "loss"), 3000, false);
  check_values(points_of(place, "calm-sea", "nested.a"), 3000, false);
  const auto shown = show(place, "calm-sea");
  CHECK(shown.at("config") == json{{"lr", 0.25}, {"model", {{"dim", 32}}}});
  CHECK(shown.at("tags") == json{"one", "two"});
  CHECK(shown.at("notes") == "a note");
  CHECK(shown.at("group") == "night");
  CHECK(shown.at("status") == "finished");
  CHECK(shown.at("started") == 1000);
  CHECK(shown.at("ended") == 4000);
}

TEST_CASE("expectation 34: tables of metrics in the forms of other loggers") {
  Workplace place;
  place.write("lightning.csv", "epoch,step,train_loss,val_loss\n0,0,1.5,\n0,1,0.5,\n0,1,,0.25\n");
  place.write("board.csv", "Wall time,Step,Value\n1.5,0,3.0\n2.5,10,nan\n");
  place.write("other.csv", "a,b\n1,2\n");
  CHECK(place.run({"import", "lightning.csv"}).err == "read 1 run with 5 points of 3 metrics\n1 run: 1 added\n");
  CHECK(points_of(place, "lightning", "train_loss") == json{{0, 1.5}, {1, 0.5}});
  CHECK(points_of(place, "lightning", "val_loss") == json{{1, 0.25}});
  CHECK(place.run({"import", "board.csv"}).code == 0);
  CHECK(points_of(place, "board", "board") == json{{0, 3.0}, {10, "NaN"}});
  const auto result = place.run({"import", "other.csv"});
  CHECK(result.code == 2);
  CHECK(result.err ==
        "error: other.csv: the table has no column of steps (step, global_step, iteration or epoch); it has a, b\n");
  const auto id = show(place, "lightning").at("id").get<std::string>();
  CHECK(place.run({"resume", "lightning"}).err ==
        "error: run " + id + " cannot be resumed: it was imported from csv (" +
            (place.path() / "lightning.csv").string() +
            "), without the files of its folder. Its settings and metrics are in the ledger\n");
}

// Needs a Python with pyarrow, as above.
TEST_CASE("expectation 34: Parquet has the same rows", "[.foreign]") {
  Workplace place;
  const auto id = add_run(place.home(), "a", 30);
  const auto result = place.run({"export", "a", "--metrics", "parquet", "-o", "points.parquet"});
  if (result.err.find("scripts/setup --parquet") != std::string::npos) SKIP(result.err);
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto read = json::parse(python(place, "read-parquet", place.path() / "points.parquet"));
  CHECK(read.at("run").size() == 60);
  CHECK(read.at("run")[0] == id);
  CHECK(read.at("metric")[0] == "loss");
  for (size_t i = 0; i < 30; ++i) {
    CHECK(read.at("step")[i] == i + 1);
    CHECK(read.at("value")[i].get<double>() == 1.0 / static_cast<double>(i + 1));
  }
}
