// Below the MLflow logger: names that MLflow accepts, addresses as people may see them, replies of servers, and new points of a ledger.
#include <catch2/catch_test_macros.hpp>

#include "runner/http/http.hpp"
#include "runner/ledger/new_points.hpp"
#include "runner/ledger/sqlite.hpp"
#include "runner/logging/mlflow_api.hpp"
#include "tests/logging/logged_run.hpp"
#include "tests/support/mlflow_server.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using runner::testing::LoggedRun;

TEST_CASE("names are changed to those that MLflow accepts") {
  for (const char* name : {"loss", "lr/head", "a-b_c.d e", "\xc3\xa4"}) CHECK(mlflow_name(name) == name);
  CHECK(mlflow_name("a:b,c\"d") == "a_b_c_d");
  CHECK(mlflow_name("/a//b/") == "_/a/_/b/_");
  CHECK(mlflow_name("../a/./b/..") == "_/a/_/b/_");
  CHECK(mlflow_name("x/.") == "x/_");
  CHECK(mlflow_name("..a/..b") == "_.a/..b");
  CHECK(mlflow_name("") == "_");
  CHECK(mlflow_name(std::string(300, 'x')).size() == 230);
  std::string umlauts = "x";
  for (int i = 0; i < 200; ++i) umlauts += "\xc3\xa4";
  CHECK(mlflow_name(umlauts).size() == 229);  // no half of a character
  CHECK(mlflow_name(std::string(229, 'x') + "/y") == std::string(229, 'x'));
}

TEST_CASE("metrics whose names become the same have different names on the server, also after a resume") {
  MlflowNames names;
  CHECK(names.of("loss") == "loss");
  CHECK(names.take_new_tags().empty());
  CHECK(names.of("a@b") == "a_b");
  const auto other = names.of("a#b");
  CHECK(other.size() == 3 + 1 + 8);
  CHECK(other.starts_with("a_b_"));
  CHECK(names.of("a_b") != "a_b");
  const auto tags = names.take_new_tags();
  CHECK(tags.at("runner.metric.a_b") == "a@b");
  CHECK(tags.size() == 3);
  CHECK(names.take_new_tags().empty());
  MlflowNames again;
  again.restore(tags);
  CHECK(again.of("a#b") == other);  // in another order
  CHECK(again.of("a@b") == "a_b");
  CHECK(again.metric_of("a_b") == "a@b");
  CHECK(again.metric_of("loss") == "loss");
  CHECK(again.take_new_tags().empty());
}

TEST_CASE("what is shown of a URL has no user, path or query") {
  CHECK(origin_of_url("https://localhost:80/secret?x=1") == "https://localhost:80");
  CHECK(origin_of_url("http://user:password@localhost") == "http://localhost");
  CHECK(origin_of_url("http://localhost#x") == "http://localhost");
  CHECK(page_of_url("https://user:p@localhost:80/mlflow/a@b?x=1#y") == "https://localhost:80/mlflow/a@b");
  const std::string scheme = "http:/";
  CHECK(page_of_url(scheme + "/user:p/w@localhost/x") == "http://localhost/x");
  CHECK(origin_of_url(scheme + "/user:p/w@localhost/x") == "http://localhost");
  CHECK(page_of_url("http://localhost") == "http://localhost");
}

TEST_CASE("a server that is not there is a problem, not an error") {
  HttpClient client;
  const auto reply = client.send({.url = "http://127.0.0.1:1/"});
  CHECK(reply.status == 0);
  CHECK(reply.may_recover());
  CHECK_FALSE(reply.problem.empty());
  client.stop();
  CHECK(client.send({.url = "http://127.0.0.1:1/"}).problem == "stopped");
}

TEST_CASE("a reply that is too long is a problem, not a part of a reply") {
  const TemporaryFolder folder;
  const runner::testing::MlflowServer server(folder.path, runner::testing::MlflowServer::Kind::too_long);
  HttpClient client;
  const auto reply = client.send({.method = "GET", .url = server.uri() + "/"});
  CHECK(reply.status == 0);
  CHECK(reply.problem == "the reply is longer than 16 MiB");
  CHECK(reply.body.empty());
}

TEST_CASE("new points are those since the last look, and after the steps that are skipped") {
  LoggedRun logged;
  for (int64_t step = 1; step <= 5; ++step) logged.group({{"loss", step, 0.5}, {"lr", step, 0.1}});
  NewPoints points(logged.home, logged.run);
  points.skip("lr", 3);
  auto first = points.next(100);
  CHECK(first.size() == 5 + 2);
  CHECK(points.next(100).empty());
  logged.group({{"loss", 6, 0.25}, {"val_loss", 4, 7}});
  auto second = points.next(1);
  REQUIRE(second.size() == 1);
  CHECK((second[0].name == "loss" && second[0].step == 6 && second[0].value == 0.25));
  second = points.next(1);
  REQUIRE(second.size() == 1);
  CHECK((second[0].name == "val_loss" && second[0].step == 4));
  CHECK(points.next(1).empty());
  // A run that continues from step 2 records steps again. They were read already.
  logged.ledger.begin_attempt(logged.run, "resume", 2);
  logged.group({{"loss", 3, 0.5}});
  CHECK(points.next(100).empty());
  CHECK_THROWS(NewPoints(logged.home, "no-such-run"));
  CHECK(points.value("loss", 3) == 0.5);
  CHECK_FALSE(points.value("loss", 99));
}

TEST_CASE("new points of a ledger that was replaced follow those that were read") {
  LoggedRun logged, other;
  for (int64_t step = 1; step <= 5; ++step) logged.group({{"loss", step, 0.5}});
  NewPoints points(logged.home, logged.run);
  CHECK(points.next(100).size() == 5);
  const auto file = fs::path(logged.home) / "ledger.db", kept = logged.folder.path / "kept.db";
  {
    sqlite::Database ledger(file, sqlite::Access::existing);
    ledger.execute("VACUUM INTO '" + kept.string() + "'");
    sqlite::Database longer(kept, sqlite::Access::existing);
    longer.run("INSERT INTO metric (run, key, step, value) SELECT run, key, 6, 0.25 FROM metric WHERE step = 5");
    longer.run("UPDATE metric_last SET step = 6");
  }
  // A file without the run, as a new ledger before the record beside the run is merged.
  const auto remove_ledger = [&] {
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(file.string() + suffix);
  };
  remove_ledger();
  CHECK(points.next(100).empty());
  fs::copy_file(fs::path(other.home) / "ledger.db", file);
  CHECK(points.next(100).empty());
  remove_ledger();
  fs::copy_file(kept, file);
  const auto next = points.next(100);
  REQUIRE(next.size() == 1);
  CHECK((next[0].step == 6 && next[0].value == 0.25));
}
