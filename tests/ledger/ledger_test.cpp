// Writing and reading back: rows, points to the last bit, attempts, artifacts, and the JSON that scripts rely on.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <numbers>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "support.hpp"

using namespace runner;
using nlohmann::json;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

int64_t count(const LedgerFolder& folder, const std::string& table) {
  return folder.raw().integer("SELECT count(*) FROM " + table);
}

}  // namespace

TEST_CASE("a missing ledger reads as empty, and reading creates no file") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::read);
  CHECK(ledger.runs().empty());
  CHECK_FALSE(fs::exists(folder.home()));
  CHECK(error_of([&] { ledger.find_run("x"); }) == "2: there is no run \"x\": there is no ledger " +
                                                       folder.file().string() +
                                                       "; RUNNER_HOME=FOLDER names another ledger");
  CHECK(error_of([&] { ledger.show("x"); }) == "2: there is no run x in " + folder.file().string());
}

TEST_CASE("a new run is in the file before its first step, with all its data") {
  LedgerFolder folder;
  Ledger writer(folder.home(), Ledger::Mode::write);
  const double before = wall_seconds();
  const std::string id = writer.begin_run(new_run(folder));
  CHECK(fs::is_directory(folder.home() + "/runs/" + id));
  CHECK(read_file(folder.home() + "/.gitignore") == "*\n");

  Ledger reader(folder.home(), Ledger::Mode::read);
  REQUIRE(reader.runs().size() == 1);
  const RunRow row = reader.runs()[0];
  CHECK(row.id == id);
  CHECK(row.status == "running");
  CHECK(row.started >= before);
  CHECK_FALSE(row.ended);
  CHECK_FALSE(row.final_loss);
  CHECK(keys_of(to_json(row)) == std::vector<std::string>{"archived", "deleted", "ended", "final_loss", "group", "id",
                                                          "metric", "metric_value", "name", "run_dir_exists", "started",
                                                          "status", "steps", "strategy", "tags", "why"});

  const json all = reader.show(id);
  const NewRun given = new_run(folder);
  CHECK(all["name"] == "llm_fsdp");
  CHECK(all["tags"] == json(given.tags));
  CHECK(all["recipe"] == given.recipe_source);
  CHECK(all["resolved"] == given.resolved);
  CHECK(all["config"] == given.config);
  CHECK(all["origins"] == given.origins);
  CHECK(all["plan"] == given.plan);
  CHECK(all["argv"] == json(given.argv));
  CHECK(all["git"] == given.git);
  CHECK(all["host"] == given.host);
  CHECK(all["world_size"] == 2);
  CHECK(all["working_directory"] == fs::current_path().string());
  CHECK(all["run_dir"] == folder.home() + "/runs/" + id);
  CHECK(all["attempts"][0]["pid"] == ::getpid());
  for (const char* key : {"ended", "exit_code", "message", "predicted", "measured", "final_loss"})
    CHECK(all[key].is_null());
  for (const char* key : {"checkpoints", "artifacts", "events"}) CHECK(all[key] == json::array());
  CHECK(all["metrics"] == json::object());
}

TEST_CASE("equal texts of several runs are stored once") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  for (int i = 0; i < 5; ++i) ledger.begin_run(new_run(folder));
  CHECK(count(folder, "run") == 5);
  CHECK(count(folder, "config") == 5);  // recipe, resolved, config, origins, plan
}

TEST_CASE("the folder of a ledger can be moved") {
  LedgerFolder folder;
  std::string id;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    id = ledger.begin_run(new_run(folder));
    NewRun elsewhere = new_run(folder);
    elsewhere.run_dir_root = folder.path / "other";
    const std::string outside = ledger.begin_run(elsewhere);
    CHECK(ledger.run_dir(outside) == folder.path / "other" / outside);
  }
  fs::rename(folder.home(), folder.path / "moved");
  Ledger ledger(folder.path / "moved", Ledger::Mode::read);
  CHECK(ledger.run_dir(id) == folder.path / "moved" / "runs" / id);
}

TEST_CASE("points are read back to the last bit, with NaN and infinities") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  const std::vector<double> values = {0.1,
                                      std::numbers::pi * 1e-300,
                                      std::numeric_limits<double>::denorm_min(),
                                      -0.0,
                                      1.7976931348623157e308,
                                      nan_value,
                                      infinity,
                                      -infinity};
  for (size_t i = 0; i < values.size(); ++i) ledger.metrics(id, {{"loss", static_cast<int64_t>(i) + 1, values[i]}});
  ledger.flush();
  const auto points = ledger.points(id, "loss");
  REQUIRE(points.size() == values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(points[i].first == static_cast<int64_t>(i) + 1);
    if (std::isnan(values[i]))
      CHECK(std::isnan(points[i].second));
    else
      CHECK(points[i].second == values[i]);
  }
  const json loss = ledger.show(id)["metrics"]["loss"];
  CHECK(loss == json{{"last", "-Infinity"}, {"min", "-Infinity"}, {"max", "Infinity"}});
  CHECK(json_number(nan_value) == "NaN");
  CHECK(json_number(0.1).dump() == "0.1");
  CHECK(ledger.runs()[0].final_loss == -infinity);
}

TEST_CASE("the last, least and greatest values are right for any order of the points") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  auto loss = [&] { return ledger.show(id)["metrics"]["loss"]; };
  ledger.metrics(id, {{"loss", 1, nan_value}});
  ledger.flush();
  CHECK(loss() == json{{"last", "NaN"}, {"min", "NaN"}, {"max", "NaN"}});
  ledger.metrics(id, {{"loss", 2, 5.0}, {"loss", 3, 7.0}, {"val_loss", 3, 1.0}});
  ledger.metrics(id, {{"loss", 4, 6.0}});
  ledger.flush();
  CHECK(loss() == json{{"last", 6.0}, {"min", 5.0}, {"max", 7.0}});
  ledger.metrics(id, {{"loss", 3, 1.0}});  // replaces the point of step 3, which had the greatest value
  ledger.flush();
  CHECK(loss() == json{{"last", 6.0}, {"min", 1.0}, {"max", 6.0}});
  CHECK(ledger.points(id, "loss").size() == 4);
  CHECK(ledger.metric_names(id) == std::vector<std::string>{"loss", "val_loss"});
  CHECK(ledger.runs()[0].steps == 4);
}

TEST_CASE("a restart drops the points that it will compute again") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  CHECK(ledger.begin_attempt(id, "start") == 1);
  for (int64_t step = 1; step <= 10; ++step) ledger.metrics(id, {{"loss", step, 100.0 - static_cast<double>(step)}});
  ledger.metrics(id, {{"val_loss", 8, 3.0}});
  CHECK(ledger.begin_attempt(id, "rank 1 was killed by signal 9", 6) == 2);
  CHECK(ledger.points(id, "loss").size() == 6);
  CHECK(ledger.runs()[0].steps == 6);
  json all = ledger.show(id);
  CHECK(all["metrics"] == json{{"loss", {{"last", 94.0}, {"min", 94.0}, {"max", 99.0}}}});
  ledger.metrics(id, {{"loss", 7, 50.0}});
  ledger.flush();
  CHECK(ledger.points(id, "loss").back() == std::pair<int64_t, double>(7, 50.0));

  all = ledger.show(id);
  REQUIRE(all["attempts"].size() == 2);
  CHECK(keys_of(all["attempts"][0]) == std::vector<std::string>{"argv", "build_id", "config", "ended", "from_step",
                                                                "git", "heartbeat", "host", "number", "pid", "reason",
                                                                "started", "strategy", "world_size"});
  CHECK(all["attempts"][0]["reason"] == "start");
  CHECK(all["attempts"][0]["ended"].is_number());
  CHECK(all["attempts"][1]["reason"] == "rank 1 was killed by signal 9");
  CHECK(all["attempts"][1]["from_step"] == 6);
  CHECK(all["attempts"][1]["ended"].is_null());
}

TEST_CASE("the end, events, artifacts and annotations of a run are shown as scripts expect them") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start");
  fs::create_directories(ledger.run_dir(id) + "/checkpoints/step-000050");
  ledger.artifact(id, "checkpoint", "checkpoints/step-000050", {{"step", 50}, {"bytes", 1024}});
  ledger.artifact(id, "checkpoint", "checkpoints/step-000100", {{"step", 100}});
  ledger.artifact(id, "checkpoint", ledger.run_dir(id) + "/checkpoints/step-000100", {{"step", 100}, {"bytes", 7}});
  ledger.artifact(id, "export", "hf", {{"format", "hf"}});
  ledger.event(id, "nonfinite", {{"step", 101}, {"message", "loss is \xff NaN"}});
  ledger.annotate(id, "predicted", {{"memory_bytes", 12}, {"step_seconds", 0.125}, {"why", nullptr}});
  ledger.annotate(id, "measured", {{"old", 1}});
  ledger.annotate(id, "measured", {{"tokens_per_s", 0.1}});
  ledger.finish_run(id, "failed", 1, "loss became NaN at step 101");

  const json all = ledger.show(id);
  CHECK(all["status"] == "failed");
  CHECK(all["exit_code"] == 1);
  CHECK(all["message"] == "loss became NaN at step 101");
  CHECK(all["steps"] == 101);
  CHECK(all["ended"] >= all["started"]);
  CHECK(all["attempts"][0]["ended"] == all["ended"]);
  CHECK(all["predicted"] == json{{"memory_bytes", 12}, {"step_seconds", 0.125}, {"why", nullptr}});
  CHECK(all["measured"] == json{{"tokens_per_s", 0.1}});
  REQUIRE(all["checkpoints"].size() == 2);
  CHECK(all["checkpoints"][0]["path"] == "checkpoints/step-000050");
  CHECK(all["checkpoints"][0]["exists"] == true);
  CHECK(all["checkpoints"][0]["bytes"] == 1024);
  CHECK(all["checkpoints"][1]["exists"] == false);
  CHECK(all["checkpoints"][1]["bytes"] == 7);
  CHECK(all["checkpoints"][1]["path"] == "checkpoints/step-000100");
  REQUIRE(all["artifacts"].size() == 1);
  CHECK(all["artifacts"][0]["kind"] == "export");
  REQUIRE(all["events"].size() == 1);
  CHECK(all["events"][0]["event"] == "nonfinite");
  CHECK(all["events"][0]["message"] == "loss is \xef\xbf\xbd NaN");
  CHECK(all["events"][0]["time"].is_number());
}

TEST_CASE("a run that ended can be reopened, and a running one cannot") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start");
  char host[256];
  ::gethostname(host, sizeof host);
  Ledger other(folder.home(), Ledger::Mode::write);
  CHECK(error_of([&] { other.reopen_run(id, new_run(folder)); }) ==
        fmt::format("2: run {} is still running, as process {} on {}: stop it first", id, ::getpid(), host));
  ledger.finish_run(id, "preempted", 3, "SIGTERM");
  NewRun stale = new_run(folder);
  stale.last_attempt = 0;
  CHECK(error_of([&] { other.reopen_run(id, stale); }) ==
        fmt::format("2: another process has continued run {0} in the meantime: `runner show {0}` shows its state", id));
  stale.last_attempt = 1;
  other.reopen_run(id, stale);
  CHECK(other.begin_attempt(id, "resume", 0) == 2);
  const json all = other.show(id);
  CHECK(all["status"] == "running");
  CHECK(all["ended"].is_null());
  CHECK(all["exit_code"].is_null());
  CHECK(all["message"].is_null());
  other.finish_run(id, "finished", 0, "");
  CHECK(other.runs()[0].status == "finished");
}

TEST_CASE("the time that a run took is the sum of its attempts, without the pauses between them") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start");
  ledger.finish_run(id, "preempted", 3, "SIGTERM");
  ledger.reopen_run(id, new_run(folder, "renamed"));
  ledger.begin_attempt(id, "resume", 0);
  CHECK(ledger.find_run("renamed") == id);
  auto file = folder.raw();
  file.run("UPDATE run SET started = 100");
  file.run("UPDATE attempt SET started = 100, ended = 160 WHERE number = 1");
  file.run("UPDATE attempt SET started = 1000 WHERE number = 2");
  CHECK(seconds_taken(ledger.runs()[0], 1007) == 67);
  ledger.finish_run(id, "finished", 0, "");
  file.run("UPDATE run SET ended = 1030");
  file.run("UPDATE attempt SET ended = 1030 WHERE number = 2");
  CHECK(seconds_taken(ledger.runs()[0], 5000) == 90);
  CHECK(file.integer("SELECT seconds FROM runs") == 90);
  file.run("UPDATE run SET started = 0");  // its source does not say it
  CHECK(file.integer("SELECT seconds IS NULL FROM runs") == 1);
}

TEST_CASE("a run whose clock was set back took the time of its steps") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start");
  folder.raw().execute("UPDATE run SET started = started + 3600; UPDATE attempt SET started = started + 3600");
  CHECK(seconds_taken(ledger.row(id), wall_seconds()) == 0);
  CHECK(folder.raw().integer("SELECT seconds = 0 FROM runs") == 1);
  ledger.finish_run(id, "finished", 0, "");
  const RunRow run = ledger.row(id);
  CHECK(seconds_taken(run, wall_seconds()) > 0);
  CHECK(*run.ended > run.started);
}

TEST_CASE("settle() answers when all earlier writes are in the file") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start", 0);
  for (int64_t step = 1; step <= 3; ++step) {
    ledger.metrics(id, {{"loss", step, 1.0}});
    std::atomic<int64_t> points = 0;
    ledger.settle(id, [&] { points = folder.raw().integer("SELECT count(*) FROM metric"); });
    while (points == 0) ::usleep(1000);
    CHECK(points == step);
  }
  // settle() also answers if the ledger cannot be written.
  auto raw = folder.raw();
  raw.execute("CREATE TRIGGER full BEFORE INSERT ON metric BEGIN SELECT RAISE(FAIL, 'disk full'); END");
  std::atomic<bool> answered = false;
  ledger.metrics(id, {{"loss", 4, 1.0}});
  ledger.settle(id, [&] { answered = true; });
  while (!answered) ::usleep(1000);
  CHECK(raw.integer("SELECT count(*) FROM metric") == 3);
  raw.execute("DROP TRIGGER full");
  ledger.flush();
  CHECK(raw.integer("SELECT count(*) FROM metric") == 4);
}

TEST_CASE("with unless_known, a known artifact is not recorded again") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start");
  ledger.artifact(id, "checkpoint", "checkpoints/4", {{"step", 4}, {"seconds", 1.5}}, /*unless_known=*/true);
  ledger.artifact(id, "checkpoint", "checkpoints/4", {{"step", 4}}, /*unless_known=*/true);
  ledger.flush();
  CHECK(folder.raw().integer("SELECT count(*) FROM artifact") == 1);
  CHECK(ledger.show(id)["checkpoints"][0]["seconds"] == 1.5);
}

TEST_CASE("a resumed run shows its new settings, and each attempt shows its settings at that time") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const NewRun first = new_run(folder);
  const std::string id = ledger.begin_run(first);
  ledger.begin_attempt(id, "start");
  ledger.annotate(id, "predicted", {{"memory_bytes_per_rank", 100}});
  ledger.annotate(id, "measured", {{"memory_bytes_per_rank", 90}});
  ledger.finish_run(id, "preempted", 3, "SIGTERM");

  NewRun again = new_run(folder, "renamed");
  again.strategy = "ddp";
  again.world_size = 3;
  again.resolved = "[strategy]\nname = \"ddp\"\n";
  again.config = {{"strategy", {{"name", "ddp"}}}};
  again.origins = {{"strategy.name", "--set"}};
  again.plan = {{"strategy", "ddp"}, {"reason", "the recipe names `ddp`"}};
  again.argv = {"runner", "resume", "--set", "strategy=ddp"};
  again.build_id = "0.2.0";
  again.git = nullptr;
  again.host = {{"name", "other"}};
  ledger.reopen_run(id, again);
  ledger.begin_attempt(id, "resume", 0);
  ledger.begin_attempt(id, "rank 1 was killed by signal 9", 0);

  CHECK(ledger.runs()[0].strategy == "ddp");
  const json all = ledger.show(id);
  CHECK(all["name"] == "renamed");
  CHECK(all["recipe"] == first.recipe_source);
  CHECK(all["world_size"] == 3);
  CHECK(all["resolved"] == again.resolved);
  CHECK(all["config"] == again.config);
  CHECK(all["origins"] == again.origins);
  CHECK(all["plan"] == again.plan);
  CHECK(all["argv"] == json(again.argv));
  CHECK(all["build_id"] == "0.2.0");
  CHECK(all["git"].is_null());
  CHECK(all["host"] == again.host);
  CHECK(all["predicted"] == json{{"memory_bytes_per_rank", 100}});
  CHECK(all["measured"].is_null());
  REQUIRE(all["attempts"].size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const NewRun& ran = i == 0 ? first : again;
    const json& attempt = all["attempts"][i];
    CHECK(attempt["strategy"] == ran.strategy);
    CHECK(attempt["world_size"] == ran.world_size);
    CHECK(attempt["argv"] == json(ran.argv));
    CHECK(attempt["build_id"] == ran.build_id);
    CHECK(attempt["git"] == ran.git);
    CHECK(attempt["config"] == ran.config);
  }
}

TEST_CASE("a resume that ends before its attempt begins leaves the settings with which the run was trained") {
  LedgerFolder folder;
  const NewRun first = new_run(folder);
  NewRun again = first;
  again.config["optimizer"] = {{"lr", 0.5}};
  again.resolved += "lr = 0.5\n";
  again.annotations["redacted"] = {"x"};
  std::string id;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    id = ledger.begin_run(first);
    ledger.begin_attempt(id, "start");
    ledger.finish_run(id, "interrupted", 130, "");
    const json before = ledger.show(id);
    ledger.reopen_run(id, again);
    const json now = ledger.show(id);
    for (const char* key : {"config", "resolved", "name", "argv"}) CHECK(now[key] == before[key]);
    CHECK(now["attempts"][1]["config"] == first.config);
    CHECK(now["status"] == "running");
    ledger.finish_run(id, "failed", 4, "");
  }
  Ledger ledger(folder.home(), Ledger::Mode::write);
  ledger.reopen_run(id, first);
  ledger.begin_attempt(id, "resume", 0);
  CHECK(ledger.show(id)["resolved"] == first.resolved);
}

TEST_CASE("an artifact can be added to a run that has ended, without changing its status") {
  LedgerFolder folder;
  std::string id;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    id = ledger.begin_run(new_run(folder));
    ledger.finish_run(id, "finished", 0, "");
  }
  folder.raw().execute("UPDATE run SET status = 'lost'");
  Ledger ledger(folder.home(), Ledger::Mode::write);
  ledger.artifact(id, "export", "hf", {});
  ledger.flush();
  CHECK(ledger.show(id)["artifacts"].size() == 1);
  CHECK(ledger.runs()[0].status == "lost");
  CHECK_THROWS_AS(ledger.heartbeat(id), std::logic_error);
  CHECK_THROWS_AS(Ledger(folder.home(), Ledger::Mode::read).flush(), std::logic_error);
}

TEST_CASE("a queue that cannot be written keeps its entries, reports an error, and writes them later") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  folder.raw().execute("CREATE TRIGGER full BEFORE INSERT ON metric BEGIN SELECT raise(ABORT, 'no room'); END");
  ledger.metrics(id, {{"loss", 1, 1.0}});
  CHECK(error_of([&] { ledger.flush(); }) == "4: ledger " + folder.file().string() + ": no room");
  ledger.metrics(id, {{"loss", 2, 2.0}});
  CHECK_THROWS_AS(ledger.flush(), Error);
  folder.raw().execute("DROP TRIGGER full");
  ledger.flush();
  CHECK(ledger.points(id, "loss") == std::vector<std::pair<int64_t, double>>{{1, 1.0}, {2, 2.0}});
}

TEST_CASE("the end of a run waits until the ledger can be written") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  folder.raw().execute("CREATE TRIGGER full BEFORE INSERT ON metric BEGIN SELECT raise(ABORT, 'no room'); END");
  ledger.metrics(id, {{"loss", 1, 1.0}});
  CHECK_THROWS_AS(ledger.finish_run(id, "finished", 0, ""), Error);
  std::jthread later([&] {
    ::usleep(300'000);
    folder.raw().execute("DROP TRIGGER full");
  });
  ledger.finish_run(id, "finished", 0, "", /*patience=*/std::chrono::seconds(30));
  CHECK(ledger.runs()[0].status == "finished");
  CHECK(ledger.points(id, "loss").size() == 1);
}

TEST_CASE("while another process holds the ledger's lock, a training run does not wait for it, and can end") {
  LedgerFolder folder;
  auto ledger = std::make_unique<Ledger>(folder.home(), Ledger::Mode::write);
  const std::string id = ledger->begin_run(new_run(folder));
  ledger->begin_attempt(id, "start");
  auto other = folder.raw();
  other.execute("BEGIN IMMEDIATE");
  std::atomic<bool> returned = false, locked = true;
  std::jthread holder([&] {  // longer than a heartbeat may take, and shorter than SQLite's own wait
    for (int i = 0; i < 200 && !returned; ++i) ::usleep(100'000);
    locked = !returned;
  });
  for (int i = 0; i < 15; ++i) {  // the writer has begun to wait for the lock after half a second
    ledger->metrics(id, {{"loss", i, 1.0}});
    ledger->heartbeat(id);
    ::usleep(100'000);
  }
  returned = true;
  holder.join();
  CHECK_FALSE(locked);
  ledger->finish_run(id, "preempted", 3, "stopped by SIGTERM");
  CHECK(other.text("SELECT status FROM run") == "running");
  other.execute("COMMIT");
  ledger.reset();
  const Ledger next(folder.home(), Ledger::Mode::read);
  CHECK(next.row(id).status == "preempted");
  CHECK(next.points(id, "loss").size() == 15);
}

TEST_CASE("a run that cannot be written leaves no folder") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  folder.raw().execute("CREATE TRIGGER full BEFORE INSERT ON run BEGIN SELECT raise(ABORT, 'no room'); END");
  CHECK_THROWS_AS(ledger.begin_run(new_run(folder)), Error);
  CHECK(fs::is_empty(folder.home() + "/runs"));
  std::ofstream(folder.path / "taken") << "x";
  NewRun blocked = new_run(folder);
  blocked.run_dir_root = folder.path / "taken";
  CHECK(error_of([&] { ledger.begin_run(blocked); }) ==
        "4: cannot create a run's folder in " + (folder.path / "taken").string() + ": Not a directory");
}
