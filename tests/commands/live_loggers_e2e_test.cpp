// MLflow, Weights & Biases and notifications of a run that goes on, is killed and resumed, while servers are there, dead or hanging.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>

#include "tests/commands/resume_support.hpp"
#include "tests/support/mlflow_server.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

std::string id_of_run(const Workplace& place) { return fs::path(only_run_dir(place)).filename().string(); }

std::string logging_section(const std::string& lines) { return fsdp + checkpoints + "[logging]\n" + lines; }

int64_t count_of(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Every metric of the ledger is on the server: the same steps, once, with the same values.
void check_mlflow_points(const Workplace& place, const json& on_server) {
  const json shown = place.run({"show", "last", "--json"}).json();
  for (const auto& [name, last] : shown.at("metrics").items()) {
    INFO(name);
    REQUIRE(on_server.at("metrics").contains(name));
    const json there = on_server.at("metrics").at(name), here = place.points(name);
    REQUIRE(there.size() == here.size());
    for (size_t i = 0; i < here.size(); ++i) {
      CHECK(there[i][0] == here[i][0]);
      // Times of steps that were trained twice differ.
      if (name == "loss" || name == "lr" || name == "val_loss" || name == "tokens") CHECK(there[i][1] == here[i][1]);
    }
  }
}

}  // namespace

TEST_CASE("MLflow has the ledger's points once, the recipe and the status, also after kill -9 and resume",
          "[e2e][loggers]") {
  Workplace place;
  const MlflowServer server(place.path());
  const std::string experiment = "runner-test-" + std::to_string(::getpid());
  write_tiny_recipe(
      place, logging_section(fmt::format("loggers = [\"mlflow\"]\nmlflow_uri = \"{}\"\nmlflow_experiment = \"{}\"\n",
                                         server.uri(), experiment)));
  const pid_t run = place.start({"run", "tiny.toml", "--set", "train.max_steps=3000", "train.val_check_interval=5"});
  REQUIRE(wait_until([&] { return has_checkpoint(place, 3); }, 60));
  const auto id = id_of_run(place);
  REQUIRE(
      wait_until([&] { return slurp(place.path() / "command.err").find("run in MLflow: ") != std::string::npos; }, 60));
  REQUIRE(wait_until(
      [&] {
        const json runs = server.runs(id, experiment);
        return !runs.empty() && runs[0].at("metrics").contains("loss");
      },
      60));
  ::kill(run, SIGKILL);
  place.finish(run);
  CHECK(server.runs(id, experiment)[0].at("status") == "RUNNING");

  const auto reached = place.points("loss").back()[0].get<int64_t>();
  const auto resumed = place.run({"resume", "--set", fmt::format("train.max_steps={}", reached + 10)});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  const json runs = server.runs(id, experiment);
  CHECK(runs[0].at("status") == "FINISHED");
  CHECK(runs[0].at("params").at("model.dim") == "32");
  CHECK(runs[0].at("tags").at("runner.run") == id);
  check_mlflow_points(place, runs[0]);
  // max_steps differs. If the server had later steps than the checkpoint, there are two runs.
  if (runs.size() == 2) CHECK(runs[1].at("status") == "KILLED");
  CHECK(runs.size() <= 2);
}

TEST_CASE("MLflow: a resume with the same settings continues the same run, and no step is there twice",
          "[e2e][loggers]") {
  Workplace place;
  const MlflowServer server(place.path());
  const std::string experiment = "runner-same-" + std::to_string(::getpid());
  write_tiny_recipe(
      place, logging_section(fmt::format("loggers = [\"mlflow\"]\nmlflow_uri = \"{}\"\nmlflow_experiment = \"{}\"\n",
                                         server.uri(), experiment)));
  // Large batches, so that the run takes some seconds. It is killed when the server has later steps than the checkpoint.
  const pid_t run = place.start({"run", "tiny.toml", "--set", "train.max_steps=60", "train.global_batch_size=240",
                                 "checkpoint.every_n_steps=20"});
  REQUIRE(wait_until([&] { return has_checkpoint(place, 1); }, 120));
  const auto last_step = [&] {
    const json runs = server.runs(id_of_run(place), experiment);
    return runs.empty() || !runs[0].at("metrics").contains("loss")
               ? int64_t{0}
               : runs[0].at("metrics").at("loss").back()[0].get<int64_t>();
  };
  REQUIRE(wait_until([&] { return last_step() > 20; }, 120));
  ::kill(run, SIGKILL);
  place.finish(run);
  const auto id = id_of_run(place);
  const auto resumed = place.run({"resume"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  const json runs = server.runs(id, experiment);
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].at("status") == "FINISHED");
  check_mlflow_points(place, runs[0]);
}

TEST_CASE("MLflow: a failed run is FAILED, and a stopped one is KILLED", "[e2e][loggers]") {
  Workplace place;
  const MlflowServer server(place.path());
  const std::string experiment = "runner-ends-" + std::to_string(::getpid());
  write_tiny_recipe(
      place, logging_section(fmt::format("loggers = [\"mlflow\"]\nmlflow_uri = \"{}\"\nmlflow_experiment = \"{}\"\n",
                                         server.uri(), experiment)));
  CHECK(place.run({"run", "tiny.toml", "--set", "optimizer.lr=1e30"}).code == 1);
  const auto id = id_of_run(place);
  CHECK(server.runs(id, experiment)[0].at("status") == "FAILED");
  Workplace other;
  write_tiny_recipe(
      other, logging_section(fmt::format("loggers = [\"mlflow\"]\nmlflow_uri = \"{}\"\nmlflow_experiment = \"{}\"\n",
                                         server.uri(), experiment)));
  const pid_t run = other.start({"run", "tiny.toml", "--set", "train.max_steps=100000"});
  REQUIRE(wait_until([&] { return has_checkpoint(other, 2); }, 60));
  ::kill(run, SIGTERM);
  CHECK(other.finish(run).code == 3);
  CHECK(server.runs(id_of_run(other), experiment)[0].at("status") == "KILLED");
}

TEST_CASE("a dead MLflow server gives one warning, and the training goes on", "[e2e][loggers]") {
  Workplace place;
  write_tiny_recipe(place, logging_section("loggers = [\"mlflow\"]\nmlflow_uri = \"http://127.0.0.1:1\"\n"));
  const auto result = place.run({"run", "tiny.toml"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(count_of(result.err, "warning: MLflow at http://127.0.0.1:1: ") == 1);
  const std::string way = "it lacks the last points and the end of this run; `runner export " + id_of_run(place) +
                          " --metrics mlflow -o FOLDER` writes the whole run for MLflow";
  CHECK_THAT(result.err, ContainsSubstring(way));
  CHECK(losses(place).size() == 12);
  const auto shown = place.run({"show", "last"}).out;
  CHECK_THAT(shown, ContainsSubstring("undelivered"));
}

TEST_CASE("a hanging MLflow server does not hold up the training, and its end for at most some seconds",
          "[e2e][loggers]") {
  Workplace place;
  const MlflowServer server(place.path(), MlflowServer::Kind::hanging);
  write_tiny_recipe(place, logging_section(fmt::format("loggers = [\"mlflow\"]\nmlflow_uri = \"{}\"\n", server.uri())));
  const auto begun = std::chrono::steady_clock::now();
  const auto result = place.run({"run", "tiny.toml"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(count_of(result.err, "warning: MLflow at ") == 1);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(60));
  CHECK(losses(place).size() == 12);
}

TEST_CASE("points are sent when an MLflow server comes back", "[e2e][loggers]") {
  Workplace place;
  std::string port;
  {
    const MlflowServer server(place.path(), MlflowServer::Kind::stub);
    port = server.port();
  }
  write_tiny_recipe(
      place, logging_section(fmt::format("loggers = [\"mlflow\"]\nmlflow_uri = \"http://127.0.0.1:{}\"\n", port)));
  const pid_t run = place.start({"run", "tiny.toml", "--set", "train.max_steps=100000"});
  REQUIRE(wait_until([&] { return has_checkpoint(place, 2); }, 60));
  REQUIRE(
      wait_until([&] { return slurp(place.path() / "command.err").find("warning: MLflow") != std::string::npos; }, 30));
  const MlflowServer server(place.path(), MlflowServer::Kind::stub, port);
  REQUIRE(
      wait_until([&] { return slurp(place.path() / "command.err").find("answers again") != std::string::npos; }, 60));
  ::kill(run, SIGTERM);
  const auto result = place.finish(run);
  INFO(result.err);
  CHECK(result.code == 3);
  CHECK(count_of(result.err, "warning: MLflow") == 1);
  check_mlflow_points(place, server.runs(id_of_run(place), "Default")[0]);
}

TEST_CASE("an answer that is no JSON names the server, and the training goes on", "[e2e][loggers]") {
  Workplace place;
  const MlflowServer server(place.path(), MlflowServer::Kind::not_json);
  write_tiny_recipe(place, logging_section(fmt::format("loggers = [\"mlflow\"]\nmlflow_uri = \"{}\"\n", server.uri())));
  const auto result = place.run({"run", "tiny.toml"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring(fmt::format("warning: MLflow at {}: experiments/get-by-name is not answered "
                                                       "with JSON: this is no MLflow server; the training continues "
                                                       "without MLflow",
                                                       server.uri())));
  CHECK(count_of(result.err, "warning: ") == 1);
  CHECK(losses(place).size() == 12);
}

TEST_CASE("an address that is no server's is refused", "[e2e][loggers]") {
  Workplace place;
  write_tiny_recipe(place, logging_section("loggers = [\"mlflow\"]\nmlflow_uri = \"ftp://localhost\"\n"));
  const auto result = place.run({"run", "tiny.toml"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err,
             ContainsSubstring("`mlflow_uri` cannot be \"ftp://localhost\": it begins with http:// or https://"));
}

TEST_CASE("W&B: its classes read the ledger's values from the offline file, alive, after kill -9 and after resume",
          "[e2e][loggers]") {
  const std::string deps = RUNNER_SOURCE_DIR "/.deps/";
  const std::string python = fmt::format("PYTHONPATH={0}wandb:{0}transformers /usr/bin/python3", deps);
  if (std::system((python + " -c 'import wandb.proto.wandb_internal_pb2' 2>/dev/null").c_str()) != 0)
    SKIP("wandb's classes are missing: scripts/setup --tests");
  Workplace place;
  write_tiny_recipe(place, logging_section("loggers = \"wandb\"\nwandb_project = \"tests\"\n"));
  const auto read = [&] {
    const auto command = fmt::format("{} {}/tests/support/read_wandb.py {}/wandb >{}/read", python, RUNNER_SOURCE_DIR,
                                     only_run_dir(place), place.path().string());
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0);
    return json::parse(slurp(place.path() / "read"));
  };
  const auto losses_of = [](const json& wandb) {
    auto points = json::array();
    for (const auto& row : wandb.at("history"))
      if (row.contains("loss")) points.push_back({row.at("_step"), row.at("loss")});
    return points;
  };
  const pid_t run = place.start({"run", "tiny.toml", "--set", "train.max_steps=3000", "train.val_check_interval=5"});
  REQUIRE(wait_until([&] { return has_checkpoint(place, 3); }, 60));
  const json ledger = place.points("loss");  // first, because the file may have later values
  const json alive = losses_of(read());
  for (size_t i = 0; i < std::min(alive.size(), ledger.size()); ++i) CHECK(alive[i] == ledger[i]);
  CHECK(alive.size() + 1 >= ledger.size());
  ::kill(run, SIGKILL);
  place.finish(run);
  CHECK(read().at("exit").is_null());

  const auto reached = place.points("loss").back()[0].get<int64_t>();
  const auto resumed = place.run({"resume", "--set", fmt::format("train.max_steps={}", reached + 10)});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  const json end = read();
  CHECK(losses_of(end) == place.points("loss"));
  CHECK(end.at("exit") == 0);
  CHECK(end.at("run").at("project") == "tests");
  CHECK(end.at("run").at("name") == place.run({"show", "last", "--json"}).json().at("name"));
  CHECK(end.at("run").at("config").at("model").at("dim") == 32);
  CHECK(end.at("summary").at("loss") == place.points("loss").back()[1]);
  json numbers = json::array();
  for (size_t i = 1; i <= end.at("numbers").size(); ++i) numbers.push_back(i);
  CHECK(end.at("numbers") == numbers);
  CHECK_THAT(resumed.err, ContainsSubstring("metrics also in "));
}

TEST_CASE("the key run.loggers of older runs is read as logging.loggers", "[e2e][loggers]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto result = place.run({"run", "tiny.toml", "--set", "run.loggers=csv"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("note: `loggers`: read as logging.loggers = \"csv\""));
  CHECK(fs::exists(fs::path(only_run_dir(place)) / "metrics.csv"));
}

TEST_CASE("expectation 38: the end of a run is told to a command, and a secret is in no record", "[e2e][loggers]") {
  Workplace place;
  const std::string secret = "s3cret-token";
  write_tiny_recipe(place,
                    logging_section("notify = [{ on = \"end\", command = \"cat >said.json\" },\n"
                                    "  { on = [\"end\"], webhook = \"http://127.0.0.1:1/${env:HOOK_TOKEN}\" }]\n"));
  const auto result = place.run({"run", "tiny.toml"}, {{"HOOK_TOKEN", secret}});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const json said = json::parse(slurp(place.path() / "said.json"));
  CHECK(said.at("kind") == "end");
  CHECK(said.at("status") == "finished");
  CHECK(said.at("run") == id_of_run(place));
  CHECK(said.at("steps") == 12);
  CHECK(count_of(result.err,
                 "warning: a notification could not be delivered to the webhook at http://127.0.0.1:1 (5 tries): ") ==
        1);
  for (const auto& entry : fs::recursive_directory_iterator(place.home())) {
    INFO(entry.path());
    if (entry.is_regular_file()) CHECK(slurp(entry.path()).find(secret) == std::string::npos);
  }
  CHECK(result.err.find(secret) == std::string::npos);
  CHECK_THAT(place.run({"show", "last", "--json"}).out, ContainsSubstring("${env:HOOK_TOKEN}"));

  // Without the variable, no training starts, and everything else works.
  for (const char* verb : {"run", "check"}) {
    const auto missing = place.run({verb, "tiny.toml"});
    CHECK(missing.code == 2);
    CHECK_THAT(missing.err, ContainsSubstring("the environment variable `HOOK_TOKEN` is not set"));
  }
  CHECK(place.run({"check", "tiny.toml", "--unset", "logging.notify"}).code == 0);
  CHECK(place.run({"print", "tiny.toml"}).code == 0);
  const auto generated = place.run({"generate", "last", "a", "--max-new-tokens", "2"});
  INFO(generated.err);
  CHECK(generated.code == 0);
}

TEST_CASE("a signal ends the wait for notifications and servers at the end", "[e2e][loggers]") {
  Workplace place;
  const MlflowServer server(place.path(), MlflowServer::Kind::hanging);
  write_tiny_recipe(place, logging_section(fmt::format("loggers = [\"mlflow\"]\nmlflow_uri = \"{}\"\n"
                                                       "notify = {{ on = \"end\", command = \"sleep 100\" }}\n",
                                                       server.uri())));
  const pid_t run = place.start({"run", "tiny.toml"});
  const auto says = [&](const std::string& text) {
    return wait_until([&] { return slurp(place.path() / "command.err").find(text) != std::string::npos; }, 60);
  };
  REQUIRE(says("waiting for the last points to reach MLflow"));
  const auto begun = std::chrono::steady_clock::now();
  ::kill(run, SIGINT);
  const auto result = place.finish(run);
  INFO(result.err);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(5));
  CHECK(result.code == 0);  // the run has finished
  CHECK_THAT(result.err, ContainsSubstring("1 notification could not be delivered to the command `sleep 100` in time"));
}

TEST_CASE("a run that fails before its first attempt is told, and its loggers are not written", "[e2e][loggers]") {
  Workplace place;
  write_tiny_recipe(place, logging_section("loggers = [\"csv\", \"wandb\"]\n"
                                           "notify = { on = \"failure\", command = \"cat >said.json\" }\n"));
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const auto plan = fs::path(only_run_dir(place)) / "plan.json";
  fs::remove(plan);
  fs::create_directory(plan);
  const auto result = place.run({"resume", "--set", "train.max_steps=20"});
  INFO(result.err);
  CHECK(result.code == 4);
  CHECK(count_of(result.err, "warning: ") == 0);
  const json said = json::parse(slurp(place.path() / "said.json"));
  CHECK(said.at("kind") == "failure");
  CHECK(said.at("run") == id_of_run(place));
}
