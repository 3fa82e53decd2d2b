// Sweeps in the ledger: rows, owners, names, and the state of a trial during its run.
#include "runner/ledger/sweeps.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/base/files.hpp"
#include "support.hpp"

using namespace runner;
using nlohmann::json;

namespace {

NewSweep new_sweep(const std::string& name = "lr") { return {name, 7, {{"metric", "loss"}}, "[run]\n"}; }

}  // namespace

TEST_CASE("the ledger has a sweep's recipe without secrets, and only the user can read the file") {
  LedgerFolder folder;
  std::string id;
  fs::path file;
  {
    Sweeps store(folder.home(), Ledger::Mode::write);
    NewSweep sweep = new_sweep();
    sweep.recipe = "[hooks.mail]\npassword = \"hunter2-hunter2\"\n";
    sweep.recorded_recipe = "[hooks.mail]\npassword = \"***\"\n";
    sweep.space["source"] = "set = ***";
    sweep.source = "set = hunter2-hunter2";
    id = store.begin(sweep);
    CHECK(store.find(id).space["source"] == sweep.source);
    file = fs::path(store.find(id).folder) / "recipe.toml";
  }
  CHECK(read_file(file).find("hunter2-hunter2") != std::string::npos);
  for (const auto& one : {file, file.parent_path() / "source"})
    CHECK(fs::status(one).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(read_file(folder.file()).find("hunter2-hunter2") == std::string::npos);
}

TEST_CASE("a sweep's trials are stored with their history and their runs") {
  LedgerFolder folder;
  Sweeps store(folder.home(), Ledger::Mode::write);
  const std::string id = store.begin(new_sweep());
  CHECK(read_file(fs::path(store.find(id).folder) / "recipe.toml") == "[run]\n");
  store.propose(id, 0, {{"optimizer.lr", 0.5}}, {{"kind", "proposed"}});
  CHECK(store.trial(id, 0).status == "waiting");
  store.start(id, 0, "cpu:0");
  CHECK(store.trial(id, 0).tries == 1);
  std::string run_id;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    NewRun run = new_run(folder);
    run.sweep = id;
    run_id = ledger.begin_run(run);
    ledger.metrics(run_id, {{"loss", 1, 3.0}, {"loss", 2, 1.5}, {"loss", 3, 2.0}});
    ledger.finish_run(run_id, "finished", 0, "");
    CHECK(ledger.show(run_id)["sweep"] == json{{"id", id}, {"name", "lr"}, {"trial", 0}});
    CHECK(ledger.show(ledger.begin_run(new_run(folder)))["sweep"].is_null());
  }
  auto trial = store.trial(id, 0);
  CHECK(trial.run == run_id);
  CHECK(trial.run_status == "finished");
  CHECK(trial.run_exit_code == 0);
  const auto metrics = store.summaries(run_id);
  REQUIRE(metrics.size() == 1);
  const auto& metric = metrics.at("loss");
  CHECK(metric.step == 3);
  CHECK(metric.last == 2.0);
  CHECK(metric.min == 1.5);
  CHECK(metric.max == 3.0);
  store.report(id, 0, {{"kind", "reported"}});
  store.finish(id, 0, {"finished", 2.0, 3, "", ""}, {{"kind", "ended"}});
  trial = store.trials(id).at(0);
  CHECK(trial.status == "finished");
  CHECK(trial.value == 2.0);
  CHECK(trial.parameters == json{{"optimizer.lr", 0.5}});
  std::vector<std::string> kinds;
  for (const auto& [number, entry] : store.history(id)) kinds.push_back(entry.at("kind"));
  CHECK(kinds == std::vector<std::string>{"proposed", "reported", "ended"});
  store.propose(id, 1, json::object(), {{"kind", "proposed"}});
  store.start(id, 1, "cpu:0");
  store.end(id, "interrupted", "stopped", 12.5);
  CHECK(store.trial(id, 1).status == "waiting");
  CHECK(store.find(id).status == "interrupted");
  CHECK(store.find(id).seconds == 12.5);
}

TEST_CASE("a sweep has one owner, and is lost when the owner is gone") {
  LedgerFolder folder;
  Sweeps store(folder.home(), Ledger::Mode::write);
  const std::string id = store.begin(new_sweep());
  CHECK(store.find(id).status == "running");
  CHECK(error_of([&] { store.claim(id); }) ==
        fmt::format("2: sweep {0} is still running, as process {1} on {2}: stop it "
                    "first (runner sweep stop {0})",
                    id, ::getpid(), this_process().host));
  folder.raw().execute("UPDATE sweep SET process_start = process_start - 1");  // the pid now belongs to another process
  CHECK(store.find(id).status == "lost");
  const std::string stops = fmt::format("4: process {} on {} has continued sweep {}; this process stops", ::getpid(),
                                        this_process().host, id);
  CHECK(error_of([&] { store.heartbeat(id, 1); }) == stops);
  CHECK(error_of([&] { store.propose(id, 0, json::object(), {{"kind", "proposed"}}); }) == stops);
  CHECK(error_of([&] { store.end(id, "finished", "", 1); }) == stops);
  CHECK(store.trials(id).empty());
  store.claim(id);
  store.heartbeat(id, 1);
  CHECK(store.find(id).status == "running");
}

TEST_CASE("a sweep is found in the same ways as a run") {
  LedgerFolder folder;
  CHECK(error_of([&] { Sweeps(folder.home(), Ledger::Mode::read).find("last"); }) ==
        "2: there is no sweep \"last\": there is no ledger " + folder.file().string() +
            "; RUNNER_HOME=FOLDER names another ledger");
  Sweeps store(folder.home(), Ledger::Mode::write);
  const std::string first = store.begin(new_sweep("width")), second = store.begin(new_sweep("depth"));
  CHECK(store.find("last").id == second);
  CHECK(store.find("width").id == first);
  CHECK(store.find(first.substr(first.size() - 4)).id == first);
  CHECK(
      error_of([&] { store.find("widht"); }) ==
      "2: there is no sweep \"widht\" in " + folder.file().string() +
          ": did you mean \"width\"?; `runner sweep status --all` lists them, RUNNER_HOME=FOLDER names another ledger");
  CHECK(store.sweeps().size() == 2);
}

TEST_CASE("the sweeps of a write-protected ledger can be read, and an error names the folder") {
  LedgerFolder folder;
  {
    Sweeps store(folder.home(), Ledger::Mode::write);
    store.propose(store.begin(new_sweep()), 0, json::object(), {{"kind", "proposed"}});
  }
  CHECK(holds_write_protected(folder, [&] {
    const Sweeps store(folder.home(), Ledger::Mode::read);
    return store.trials(store.find("lr").id).size() == 1;
  }));
  CHECK(holds_write_protected(folder, [&] {
    return error_of([&] { Ledger(folder.home(), Ledger::Mode::write); })
        .ends_with(" (" + folder.home() + ": Permission denied)");
  }));
}
