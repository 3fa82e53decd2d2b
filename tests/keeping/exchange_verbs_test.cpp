// `runner import` and `runner export` with other programs: secrets and texts, what the verbs say of imported runs, and files they leave.
#include <algorithm>

#include "runner/exchange/import_runs.hpp"
#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using nlohmann::json;

TEST_CASE("parameters and notes of other programs keep no secrets") {
  Workplace place;
  place.write("mlruns/7/meta.yaml", "experiment_id: '7'\nname: e\n");
  place.write("mlruns/7/r1/meta.yaml", "run_id: r1\nrun_name: one\nstatus: 3\nstart_time: 1000\n");
  place.write("mlruns/7/r1/metrics/loss", "1 0.5 3\n");
  place.write("mlruns/7/r1/params/api_key", "sk-secret-123456");
  place.write("mlruns/7/r1/params/command", "train --token=abc-secret-9");
  place.write("mlruns/7/r1/params/lr", "0.25");
  place.write("mlruns/7/r1/tags/mlflow.note.content", "it was sk-secret-123456");
  place.write("mlruns/7/r1/tags/db_password", "two words");
  place.write("mlruns/7/r1/tags/runner.group", "of sk-secret-123456");
  const auto result = place.run({"import", "mlruns"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.find("note: one: secret values are left out: api_key, command\n") != std::string::npos);
  const auto shown = place.run({"show", "one", "--json"}).json();
  CHECK(shown.at("config") == json{{"api_key", "***"}, {"command", "train --token=***"}, {"lr", 0.25}});
  CHECK(shown.at("notes") == "it was ***");
  CHECK(shown.at("tags") == json{"db_password=***"});
  CHECK(shown.at("group") == "of ***");
}

TEST_CASE("texts of other programs can be shown: bytes that are not UTF-8 and control characters are written out") {
  Workplace place;
  place.write("t.csv", "step,run,l\xff\x1b[31m\n1,n\xfe,2\n");
  REQUIRE(place.run({"import", "t.csv"}).code == 0);
  CHECK(place.run({"metrics", "last", "--name", "l\\xFF\\x1B[31m", "--json"}).json().at("points") == json{{1, 2.0}});
  const auto lines = place.run({"export", "last", "--metrics", "jsonl"});
  CHECK(lines.code == 0);
  CHECK(lines.json().at("metric") == "l\\xFF\\x1B[31m");
  CHECK(lines.json().at("name") == "n\\xFE");
}

TEST_CASE("a run that was imported and is in the trash is named") {
  Workplace place;
  place.write("t.csv", "step,loss\n1,2\n");
  REQUIRE(place.run({"import", "t.csv"}).code == 0);
  const std::string id = raw(place.home()).text("SELECT id FROM run");
  REQUIRE(place.run({"rm", "last"}).code == 0);
  const auto result = place.run({"import", "t.csv"});
  CHECK(result.code == 2);
  CHECK(result.err.find(id + " (t) stays as it is here: it is in the trash here: `runner restore " + id) !=
        std::string::npos);
  CHECK(result.err.ends_with("1 run: 1 with a conflict\n"));
}

TEST_CASE("an imported run has no folder, and every verb says where it came from") {
  Workplace place;
  place.write("t.csv", "step,loss\n1,2\n");
  REQUIRE(place.run({"import", "t.csv"}).code == 0);
  const std::string id = raw(place.home()).text("SELECT id FROM run"),
                    source = "csv (" + (place.path() / "t.csv").string() + ")";
  CHECK(place.run({"ls"}).out.find("imported from csv") != std::string::npos);
  CHECK(place.run({"ls"}).out.find("missing") == std::string::npos);
  CHECK(place.run({"show", "last"}).out.find("none here: imported from " + source) != std::string::npos);
  CHECK(place.run({"logs", "last"}).err ==
        "error: run " + id + " has no logs here: it was imported from " + source + "\n");
  CHECK(place.run({"rerun", "last"}).err ==
        "error: run " + id + " cannot be trained again: it was imported from " + source + ", and has no recipe\n");
}

TEST_CASE("an export replaces no file of the user, and two exports do not share a temporary one") {
  Workplace place;
  add_run(place.home(), "a", 20);
  place.write("a.csv.tmp", "mine");
  REQUIRE(place.run({"export", "a", "--metrics", "csv", "-o", "a.csv"}).code == 0);
  CHECK(slurp(place.path() / "a.csv.tmp") == "mine");
  std::map<std::string, pid_t> both;
  for (const char* name : {"one", "two"})
    both[name] = place.start({"export", "a", "--metrics", "csv", "-o", "same.csv"}, name);
  int done = 0;
  for (const auto& [name, pid] : both) {
    const auto result = place.finish(pid, name);
    INFO(result.err);
    CHECK(result.err.find("bug") == std::string::npos);
    if (result.code == 0) ++done;
  }
  CHECK(done >= 1);
  CHECK(slurp(place.path() / "same.csv") == slurp(place.path() / "a.csv"));
}

TEST_CASE("event files that are exported have the times of the training, and the start and the end of the run") {
  Workplace place;
  const std::string id = add_run(place.home(), "a", 5);
  auto database = raw(place.home());
  database.execute("INSERT INTO key (name) VALUES ('seconds')");
  database.execute(
      "INSERT INTO metric (run, key, step, value) SELECT run, (SELECT key FROM key WHERE name = 'seconds'), 1, 90 FROM "
      "run; INSERT INTO metric_last (run, key, step, value, min, max) SELECT run, (SELECT key FROM key WHERE name = "
      "'seconds'), 1, 90, 90, 90 FROM run; UPDATE run SET started = 1000, ended = 1100, name = '" +
      std::string(300, 'n') + "'");
  REQUIRE(place.run({"export", id, "--metrics", "tensorboard", "-o", "tb/"}).code == 0);
  const auto found = read_tensorboard_runs(place.path() / "tb");
  REQUIRE(found.runs.size() == 1);
  CHECK(found.runs[0].name.size() == 200);
  CHECK(found.runs[0].started == 1000);
  CHECK(found.runs[0].ended == 1100);
  CHECK(std::ranges::distance(fs::directory_iterator(place.path() / "tb")) == 1);
}

TEST_CASE("gc removes the temporary files of imports that were killed") {
  Workplace place;
  add_run(place.home(), "a", 3);
  const fs::path left = place.home() / ".import.999999999.tmp", users = place.home() / "thesis.999999999.tmp";
  fs::create_directories(place.home() / "papers");
  for (const auto& file : {left, users, place.home() / "papers/a.999999999.tmp"}) {
    write_file_atomic(file, "x");
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(file == left ? 0 : 120));
  }
  REQUIRE(place.run({"gc", "--yes"}).code == 0);
  CHECK(fs::exists(left));  // another machine may write it
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));
  REQUIRE(place.run({"gc", "--yes"}).code == 0);
  CHECK_FALSE(fs::exists(left));
  // RUNNER_HOME may be a folder with other files of the user.
  CHECK(fs::exists(users));
  CHECK(fs::exists(place.home() / "papers/a.999999999.tmp"));
}
