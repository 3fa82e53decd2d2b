// Names that MLflow accepts, and addresses of servers as people may see them.
#include <catch2/catch_test_macros.hpp>

#include "runner/http/http.hpp"
#include "runner/ledger/new_points.hpp"
#include "runner/logging/mlflow_api.hpp"
#include "tests/logging/logged_run.hpp"

using namespace runner;
using runner::testing::LoggedRun;

TEST_CASE("names are changed to those that MLflow accepts") {
  for (const char* name : {"loss", "lr/head", "a-b_c.d e", "\xc3\xa4"}) CHECK(mlflow_name(name) == name);
  CHECK(mlflow_name("a:b,c\"d") == "a_b_c_d");
  CHECK(mlflow_name("/a//b/") == "_a__b_");
  CHECK(mlflow_name("../a") == "_._a");
  CHECK(mlflow_name(std::string(300, 'x')).size() == 250);
}

TEST_CASE("what is shown of a URL has no user, path or query") {
  CHECK(origin_of_url("https://localhost:80/secret?x=1") == "https://localhost:80");
  CHECK(origin_of_url("http://user:password@localhost") == "http://localhost");
  CHECK(origin_of_url("http://localhost#x") == "http://localhost");
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
}
