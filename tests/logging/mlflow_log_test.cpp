// A run that is followed on an MLflow server, which may be dead, hang or come back.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "runner/ledger/sqlite.hpp"
#include "runner/logging/mlflow_log.hpp"
#include "tests/logging/logged_run.hpp"
#include "tests/report/capture.hpp"
#include "tests/support/mlflow_server.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using runner::testing::LoggedRun;
using runner::testing::MlflowServer;
using runner::testing::wait_until;

namespace {

const Outcome finished_run{.code = ExitCode::done, .status = "finished", .first_cause = ""};

Recipe::Logging settings_for(const MlflowServer& server, const std::string& experiment) {
  Recipe::Logging settings;
  settings.mlflow_uri = server.uri();
  settings.mlflow_experiment = experiment + "-" + std::to_string(::getpid());
  return settings;
}

void log_steps(MlflowLog& log, LoggedRun& logged, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step)
    log.points(logged.group({{"loss", step, 1.0 / static_cast<double>(step)}, {"lr/a:b", step, 0.5}}));
}

json losses_until(int64_t last) {
  auto points = json::array();
  for (int64_t step = 1; step <= last; ++step) points.push_back({step, 1.0 / static_cast<double>(step)});
  return points;
}

/// Waits until the server has the loss of a step.
bool has_step(const MlflowServer& server, const std::string& run, const std::string& experiment, int64_t step) {
  return wait_until(
      [&] {
        const json runs = server.runs(run, experiment);
        return !runs.empty() && runs[0]["metrics"].contains("loss") && runs[0]["metrics"]["loss"].back()[0] >= step;
      },
      60);
}

}  // namespace

TEST_CASE("MLflow gets params, tags, every point once, and the status") {
  LoggedRun logged;
  logged.row.config = {{"optimizer", {{"lr", 0.25}, {"betas", {0.9, 0.95}}}},
                       {"run", {{"notes", std::string(9000, 'n')}}}};
  for (int i = 0; i < 150; ++i) logged.row.config["model"]["key_" + std::to_string(i)] = i;
  logged.row.tags = {"a", "b"};
  logged.row.group = "baselines";
  const MlflowServer server(logged.folder.path);
  const auto settings = settings_for(server, "points");
  MlflowLog log(settings);
  CHECK(log.place() == "MLflow at " + server.uri() + ", experiment " + *settings.mlflow_experiment);
  log.begin(logged.attempt());
  for (int64_t step = 1; step <= 3; ++step) log.points(logged.group({{"loss", step, step == 2 ? std::nan("") : 0.5}}));
  // More than one request can have.
  std::vector<MetricPoint> many;
  for (int i = 0; i < 2500; ++i) many.push_back({"hook/" + std::to_string(i), 4, 0.5});
  log.points(logged.group(many));
  log.end({.outcome = finished_run});
  const json runs = server.runs(logged.run, *settings.mlflow_experiment);
  REQUIRE(runs.size() == 1);
  CHECK(runs[0]["status"] == "FINISHED");
  CHECK(runs[0]["metrics"]["loss"] == json::parse(R"([[1, 0.5], [2, "NaN"], [3, 0.5]])"));
  CHECK(runs[0]["metrics"].size() == 2501);
  CHECK(runs[0]["params"].size() == 153);
  CHECK(runs[0]["params"]["optimizer.lr"] == "0.25");
  CHECK(runs[0]["params"]["optimizer.betas"] == "[0.9,0.95]");
  CHECK(runs[0]["params"]["run.notes"].get<std::string>().size() == 500);
  CHECK(runs[0]["tags"]["runner.run"] == logged.run);
  CHECK(runs[0]["tags"]["runner.tags"] == "a, b");
  CHECK(runs[0]["tags"]["runner.tag.a"] == "true");
  CHECK(runs[0]["tags"]["runner.tag.b"] == "true");
  CHECK(runs[0]["tags"]["runner.group"] == "baselines");
}

TEST_CASE("MLflow: after a kill, a resume with the same settings continues the run, and no step is there twice") {
  LoggedRun logged;
  const MlflowServer server(logged.folder.path);
  const auto settings = settings_for(server, "same");
  {
    MlflowLog log(settings);
    log.begin(logged.attempt());
    log_steps(log, logged, 1, 6);
    REQUIRE(has_step(server, logged.run, *settings.mlflow_experiment, 6));
  }  // without end(), as after kill -9
  logged.ledger.begin_attempt(logged.run, "resume", 4);
  MlflowLog log(settings);
  log.begin(logged.attempt(4));
  log_steps(log, logged, 5, 9);
  log.end({.outcome = {.code = ExitCode::preempted, .status = "preempted", .first_cause = ""}});
  const json runs = server.runs(logged.run, *settings.mlflow_experiment);
  REQUIRE(runs.size() == 1);
  CHECK(runs[0]["status"] == "KILLED");
  CHECK(runs[0]["metrics"]["loss"] == losses_until(9));
  CHECK(runs[0]["metrics"]["lr/a_b"].size() == 9);
}

TEST_CASE("MLflow: params of a request that failed are sent again") {
  LoggedRun logged;
  for (int i = 0; i < 150; ++i) logged.row.config["model"]["key_" + std::to_string(i)] = i;
  const MlflowServer server(logged.folder.path, MlflowServer::Kind::stub);
  const auto settings = settings_for(server, "busy");
  const auto busy = logged.folder.path / "mlflow" / "busy";
  write_file_atomic(busy, "");
  const auto params = [&] {
    const json runs = server.runs(logged.run, *settings.mlflow_experiment);
    return runs.empty() ? 0 : runs[0]["params"].size();
  };
  MlflowLog log(settings);
  log.begin(logged.attempt());
  REQUIRE(wait_until([&] { return params() == 100; }, 60));
  fs::remove(busy);
  CHECK(wait_until([&] { return params() == 150; }, 60));
  log.end({.outcome = finished_run});
  CHECK(server.runs(logged.run, *settings.mlflow_experiment).size() == 1);
}

TEST_CASE("MLflow: the ledger has the run's id and address on the server") {
  LoggedRun logged;
  const MlflowServer server(logged.folder.path, MlflowServer::Kind::stub);
  const auto settings = settings_for(server, "recorded");
  MlflowLog log(settings, &logged.ledger);
  log.begin(logged.attempt());
  const auto recorded = [&] {
    log.tick();
    logged.ledger.flush();
    return logged.ledger.show(logged.run).value("mlflow", json());
  };
  REQUIRE(wait_until([&] { return recorded().is_object(); }, 60));
  const json there = recorded();
  CHECK(there["url"] == server.uri() + "/#/experiments/" + there["experiment"].get<std::string>() + "/runs/" +
                            there["run"].get<std::string>());
  log.end({.outcome = finished_run});
}

TEST_CASE("MLflow: with other settings, steps that it has begin a new run with all points") {
  LoggedRun logged;
  const MlflowServer server(logged.folder.path);
  const auto settings = settings_for(server, "other");
  {
    MlflowLog log(settings);
    log.begin(logged.attempt());
    log_steps(log, logged, 1, 6);
    REQUIRE(has_step(server, logged.run, *settings.mlflow_experiment, 6));
  }
  logged.ledger.begin_attempt(logged.run, "resume", 4);
  logged.row.resolved = "a = 2";
  MlflowLog log(settings);
  log.begin(logged.attempt(4));
  for (int64_t step = 5; step <= 7; ++step) log.points(logged.group({{"loss", step, 7}}));
  log.end({.outcome = {.code = ExitCode::run_failed, .status = "failed", .first_cause = ""}});
  const json runs = server.runs(logged.run, *settings.mlflow_experiment);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0]["status"] == "FAILED");
  json expected = losses_until(4);
  for (int64_t step = 5; step <= 7; ++step) expected.push_back({step, 7.0});
  CHECK(runs[0]["metrics"]["loss"] == expected);
  CHECK(runs[1]["status"] == "KILLED");
  CHECK(runs[1]["metrics"]["loss"] == losses_until(6));

  // Later steps with other settings, but none that the server has: the same run goes on.
  logged.ledger.begin_attempt(logged.run, "resume", 7);
  logged.row.resolved = "a = 3";
  MlflowLog longer(settings);
  longer.begin(logged.attempt(7));
  longer.points(logged.group({{"loss", 8, 8}}));
  longer.end({.outcome = finished_run});
  const json after = server.runs(logged.run, *settings.mlflow_experiment);
  REQUIRE(after.size() == 2);
  CHECK(after[0]["status"] == "FINISHED");
  CHECK(after[0]["metrics"]["loss"].size() == 8);
}

TEST_CASE("MLflow: a server that comes back gets all points, and a dead or hanging one does not hold up the end") {
  LoggedRun logged;
  std::string port;
  Recipe::Logging settings;
  {
    const MlflowServer server(logged.folder.path, MlflowServer::Kind::stub);
    port = server.port();
    settings = settings_for(server, "back");
  }
  {
    MlflowLog log(settings);
    const auto begun = std::chrono::steady_clock::now();
    log.begin(logged.attempt());
    log_steps(log, logged, 1, 3);
    log.end({.outcome = finished_run});
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(30));
  }
  MlflowLog log(settings);
  log.begin(logged.attempt(3));
  log_steps(log, logged, 4, 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  {
    const MlflowServer server(logged.folder.path, MlflowServer::Kind::stub, port);
    REQUIRE(has_step(server, logged.run, *settings.mlflow_experiment, 5));
    CHECK(server.runs(logged.run, *settings.mlflow_experiment)[0]["metrics"]["loss"] == losses_until(5));
  }
  const MlflowServer hanging(logged.folder.path, MlflowServer::Kind::hanging, port);
  log_steps(log, logged, 6, 7);
  const auto begun = std::chrono::steady_clock::now();
  log.end({.outcome = finished_run});
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(30));
}

TEST_CASE("MLflow: a resume with other settings tags what has changed, and what the ledger has replaced") {
  LoggedRun logged;
  logged.row.config = {{"optimizer", {{"lr", 0.25}, {"name", "adamw"}}}, {"train", {{"max_steps", 4}}}};
  const MlflowServer server(logged.folder.path);
  const auto settings = settings_for(server, "changed");
  {
    MlflowLog log(settings);
    log.begin(logged.attempt());
    log_steps(log, logged, 1, 4);
    log.points(logged.group({{"a:cc", 4, 1010}}));
    log.points(logged.group({{"final", 4, 1}}));
    log.end({.outcome = finished_run});
  }
  logged.ledger.begin_attempt(logged.run, "resume", 4);
  logged.group({{"a:cc", 4, 10}});
  logged.row.resolved = "a = 2";
  logged.row.config["optimizer"]["lr"] = 0.5;
  logged.row.config["train"]["max_steps"] = 5;
  {
    sqlite::Database database(fs::path(logged.home) / "ledger.db", sqlite::Access::existing);
    database.run("DELETE FROM metric WHERE key = (SELECT key FROM key WHERE name = 'final')");
  }
  MlflowLog log(settings);
  log.begin(logged.attempt(4));
  log_steps(log, logged, 5, 5);
  log.end({.outcome = finished_run});
  json runs = server.runs(logged.run, *settings.mlflow_experiment);
  REQUIRE(runs.size() == 1);
  CHECK(runs[0]["params"]["optimizer.lr"] == "0.25");
  CHECK(runs[0]["tags"]["runner.changed.optimizer.lr"] == "0.5");
  CHECK(runs[0]["tags"]["runner.changed.train.max_steps"] == "5");
  CHECK_FALSE(runs[0]["tags"].contains("runner.changed.optimizer.name"));
  CHECK(runs[0]["tags"]["runner.replaced"] == "a_cc at step 4, final at step 4");
  CHECK(runs[0]["metrics"]["a_cc"] == json::parse("[[4, 10.0], [4, 1010.0]]"));
  CHECK(runs[0]["metrics"]["loss"] == losses_until(5));

  // The first settings again.
  logged.ledger.begin_attempt(logged.run, "resume", 5);
  logged.row.resolved = "a = 1";
  logged.row.config["optimizer"]["lr"] = 0.25;
  MlflowLog back(settings);
  back.begin(logged.attempt(5));
  back.end({.outcome = finished_run});
  runs = server.runs(logged.run, *settings.mlflow_experiment);
  CHECK(runs[0]["tags"]["runner.changed.optimizer.lr"] == "0.25");
  CHECK(runs[0]["metrics"]["a_cc"].size() == 2);
}

TEST_CASE("MLflow: points of a ledger that was deleted during the run arrive, and those that it lacks give a warning") {
  LoggedRun logged;
  const MlflowServer server(logged.folder.path, MlflowServer::Kind::stub);
  const auto settings = settings_for(server, "deleted");
  const auto remove_ledger = [&] {
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(logged.home + "/ledger.db" + suffix);
  };
  MlflowLog log(settings);
  log.begin(logged.attempt());
  log_steps(log, logged, 1, 4);
  REQUIRE(has_step(server, logged.run, *settings.mlflow_experiment, 4));
  remove_ledger();
  log_steps(log, logged, 5, 8);
  const auto merged = [&] {
    logged.ledger.heartbeat(logged.run);
    logged.ledger.flush();
    return fs::exists(logged.home + "/ledger.db") && !NewPoints(logged.home, logged.run).next(1).empty();
  };
  REQUIRE(wait_until(
      [&] {
        try {
          return merged();
        } catch (const Error&) {
          return false;
        }
      },
      60));
  REQUIRE(has_step(server, logged.run, *settings.mlflow_experiment, 8));
  // A point that no file has.
  log.points({.from = PointGroup::From::step, .step = 9, .points = {{"loss", 9, 0.5}}, .event = logged.event});
  Capture text(2);
  log.end({.outcome = finished_run});
  CHECK(text.text() == "warning: MLflow at " + server.uri() +
                           " lacks the last points of this run: the ledger cannot be read; `runner export " +
                           logged.run + " --metrics mlflow -o FOLDER` writes the whole run for MLflow\n");
  const json runs = server.runs(logged.run, *settings.mlflow_experiment);
  CHECK(runs[0]["status"] == "FINISHED");
  CHECK(runs[0]["metrics"]["loss"] == losses_until(8));
}

TEST_CASE("MLflow: a metric that it refuses is left out, and the others arrive") {
  LoggedRun logged;
  const MlflowServer server(logged.folder.path, MlflowServer::Kind::stub);
  const auto settings = settings_for(server, "refused");
  MlflowLog log(settings);
  Capture text(2);
  log.begin(logged.attempt());
  log.points(logged.group({{"x/.", 1, 1}, {"refused", 1, 2}, {"", 1, 3}, {"loss", 1, 4}}));
  REQUIRE(has_step(server, logged.run, *settings.mlflow_experiment, 1));
  log.points(logged.group({{"refused", 2, 2}, {"loss", 2, 4}}));
  log.end({.outcome = finished_run});
  const json runs = server.runs(logged.run, *settings.mlflow_experiment);
  CHECK(runs[0]["status"] == "FINISHED");
  CHECK(runs[0]["metrics"]["loss"].size() == 2);
  CHECK(runs[0]["metrics"]["x/_"].size() == 1);
  CHECK(runs[0]["metrics"]["_"].size() == 1);
  CHECK_FALSE(runs[0]["metrics"].contains("refused"));
  const auto said = text.text();
  CHECK_THAT(said, ContainsSubstring("warning: MLflow at " + server.uri() +
                                     " does not take the metric \"refused\", which is left out there: runs/log-batch: "
                                     "status 400: Invalid metric name: 'refused'\n"));
  CHECK(said.find("warning") == said.rfind("warning"));
}

TEST_CASE("MLflow: a signal at the end ends the wait for a server") {
  LoggedRun logged;
  const MlflowServer server(logged.folder.path, MlflowServer::Kind::hanging);
  MlflowLog log(settings_for(server, "signal"), &logged.ledger);
  log.begin(logged.attempt());
  log_steps(log, logged, 1, 2);
  const auto begun = std::chrono::steady_clock::now();
  log.end({.outcome = finished_run, .patience = {.stop = [] { return true; }}});
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(5));
  logged.ledger.flush();
  const json events = logged.ledger.show(logged.run).at("events");
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("event") == "undelivered");
  CHECK(events[0].at("message") ==
        "MLflow at " + server.uri() + " does not answer in time: it lacks the last points and the end of this run; " +
            "`runner export " + logged.run + " --metrics mlflow -o FOLDER` writes the whole run for MLflow");
}

TEST_CASE("MLflow: an address that is no server is refused, without its password") {
  const Variable address("MLFLOW_TRACKING_URI", "postgresql://me:secretpw1@db/x");
  CHECK_THROWS_WITH(MlflowLog(Recipe::Logging()), ContainsSubstring("postgresql://me:***@db/x, which is no server"));
}
