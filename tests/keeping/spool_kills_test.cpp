// A training whose ledger is deleted, and whose process is killed then: its record, which is beside the run, comes back whole, also if
// the commands that add it are killed.
#include <csignal>

#include "runner/ledger/spool.hpp"
#include "support.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// A worker that reports a step every 20 ms until it is killed.
const char* endless_worker = R"(if [ "$RANK" = 0 ]; then
  emit '{"event":"ready","rank":0}'
  step=0
  while [ ! -e stop ]; do
    step=$((step + 1))
    emit "{\"event\":\"step\",\"rank\":0,\"step\":$step,\"loss\":2.5,\"lr\":0.1,\"grad_norm\":1.0,\"seconds\":0.1,\"tokens\":10,\"rows\":1,\"epoch\":0,\"data_wait_s\":0,\"memory_bytes\":100}"
    sleep 0.02
  done
fi
while [ ! -e stop ]; do sleep 0.05; done)";

int64_t count_of(const fs::path& file) {
  return sqlite::Database(file, sqlite::Access::existing)
      .integer("SELECT count(*) FROM metric JOIN key USING (key) WHERE name = 'loss'");
}

}  // namespace

TEST_CASE("expectation 12: a killed training whose ledger was deleted has its record in the next ledger", "[kills]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker(endless_worker);
  const bool at_once = GENERATE(true, false);  // killed when the record beside the run begins, or later
  const pid_t run = place.start(
      {"run", "tiny.toml", "--set", "train.max_steps=100000"}, "run",
      at_once ? std::map<std::string, std::string>{{"RUNNER_FAULT", "spool:1"}} : std::map<std::string, std::string>{});
  const fs::path file = place.home() / "ledger.db";
  REQUIRE(wait_until(
      [&] {
        return fs::exists(file) && place.run({"metrics", "--json"}).out.find("2.5") != std::string::npos;
      },
      60));
  for (const char* end : {"", "-wal", "-shm"}) fs::remove(file.string() + end);
  fs::path spool;
  REQUIRE(wait_until(
      [&] {
        for (const auto& folder : fs::directory_iterator(place.home() / "runs")) spool = spool_in(folder.path());
        return fs::exists(spool);
      },
      60));
  if (!at_once) {
    const int64_t before = count_of(spool);
    REQUIRE(wait_until([&] { return count_of(spool) > before + 20; }, 60));
    ::kill(run, SIGKILL);
  }
  place.write("stop", "");
  CHECK(place.finish(run, "run").code == 128 + SIGKILL);
  fs::remove(file);  // the process may have made a new one
  for (const char* end : {"-wal", "-shm"}) fs::remove(file.string() + end);
  const int64_t recorded = count_of(spool);
  REQUIRE(recorded > 0);
  const std::vector<std::string> any_command =
      at_once ? std::vector<std::string>{"gc", "-n"} : std::vector<std::string>{"ls"};
  CHECK(place.run(any_command, {{"RUNNER_FAULT", "spool merge:1"}}).code == 128 + SIGKILL);
  CHECK(count_of(spool) == recorded);
  CHECK(place.run({"ls"}, {{"RUNNER_FAULT", "spool merged:1"}}).code == 128 + SIGKILL);
  const auto shown = place.run({"metrics", "last", "--name", "loss", "--json"});
  CHECK(std::ssize(shown.json().at("points")) == recorded);
  CHECK(place.run({"ls", "--json"}).json().at("runs").size() == 1);
  CHECK_FALSE(fs::exists(spool));
}
