// Bundles: what a ledger records of a run arrives whole in another one, once, and conflicts are named.
#include "runner/ledger/bundle.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/base/files.hpp"
#include "runner/ledger/merge.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/trash.hpp"
#include "support.hpp"

using namespace runner;
using Outcome = MergedRun::Outcome;

namespace {

std::string add_run(const LedgerFolder& folder, const std::string& name, int64_t points,
                    const std::string& parent = "") {
  Ledger ledger(folder.home(), Ledger::Mode::write);
  auto run = new_run(folder, name);
  run.parent = parent;
  run.parent_kind = "evaluated";
  const auto id = ledger.begin_run(run);
  ledger.begin_attempt(id, "start");
  for (int64_t step = 1; step <= points; ++step)
    ledger.metrics(id, {{"loss", step, 1.0 / static_cast<double>(step)}, {"nan", step, std::nan("")}});
  ledger.metrics(id, {{"val_loss", points, 0.25, /*at_end=*/true}});
  ledger.event(id, "note", {{"step", 1}, {"text", "one"}});
  ledger.event(id, "note", {{"step", 2}, {"text", "two"}});
  const fs::path run_dir = ledger.run_dir(id);
  ledger.artifact(id, "checkpoint", (run_dir / "checkpoints/step-000002").string(), {{"step", 2}});
  ledger.annotate(id, "predicted", {{"memory", 5}});
  write_file_atomic(run_dir / "recipe.toml", "[run]\n");
  for (const char* sub : {"logs", "checkpoints/step-000002", "checkpoints/.step-000004.1.tmp"})
    fs::create_directories(run_dir / sub);
  write_file_atomic(run_dir / "logs/rank-0.log", "a line\n");
  write_file_atomic(run_dir / "checkpoints/step-000002/manifest.json", std::string(20 << 20, '\0') + "end");
  write_file_atomic(run_dir / "checkpoints/.step-000004.1.tmp/rank", "half");
  ledger.annotate(id, "scripts", {{"a.lua", ledger.keep("a script")}});
  ledger.finish_run(id, "finished", 0, "");
  return id;
}

/// Everything that `show` and the points say, without what depends on the place.
nlohmann::json record_of(const LedgerFolder& folder, const std::string& id) {
  Ledger ledger(folder.home(), Ledger::Mode::read);
  auto record = ledger.show(id);
  record.erase("run_dir");
  for (auto& list : {"checkpoints", "artifacts"})
    for (auto& one : record[list]) one.erase("exists");
  record.erase("run_dir_exists");
  for (const auto& name : ledger.metric_names(id))
    for (const auto& [step, value] : ledger.points(id, name))
      record["points"][name].push_back({step, json_number(value)});
  return record;
}

fs::path bundle_of(const LedgerFolder& folder, const std::vector<std::string>& ids,
                   const std::string& name = "a.bundle", BundledFiles files = BundledFiles::settings) {
  fs::remove(folder.path / name);
  write_bundle(folder.home(), ids, folder.path / name, files);
  return folder.path / name;
}

}  // namespace

TEST_CASE("expectation 35: a bundle keeps ids and records, and merging it twice changes nothing") {
  LedgerFolder here, there;
  add_run(there, "other", 3);  // row numbers and metric names differ there
  const auto a = add_run(here, "a", 500), b = add_run(here, "b", 3, a);
  const auto file = bundle_of(here, {a, b}, "a.bundle", BundledFiles::all);
  auto merged = merge_bundle(there.home(), file);
  REQUIRE(merged.size() == 2);
  CHECK((merged[0].outcome == Outcome::added && merged[1].outcome == Outcome::added));
  for (const auto& id : {a, b}) CHECK(record_of(there, id) == record_of(here, id));
  CHECK(record_of(there, a).at("points").at("loss").size() == 500);
  CHECK(Ledger(there.home(), Ledger::Mode::read).kept(record_of(here, a).at("scripts").at("a.lua")) == "a script");
  CHECK(record_of(there, b).at("parents").at(0).at("id") == a);
  const fs::path folder = fs::path(there.home()) / "runs" / a;
  CHECK(read_file(folder / "checkpoints/step-000002/manifest.json") == std::string(20 << 20, '\0') + "end");
  CHECK(read_file(folder / "logs/rank-0.log") == "a line\n");
  CHECK_FALSE(fs::exists(folder / "checkpoints/.step-000004.1.tmp"));
  CHECK_FALSE(fs::exists(folder / ".importing"));
  CHECK(there.raw().text("PRAGMA integrity_check") == "ok");
  CHECK(there.raw().integer("SELECT count(*) FROM pragma_foreign_key_check") == 0);

  const auto before = there.raw().integer("SELECT (SELECT count(*) FROM metric) + (SELECT count(*) FROM event)");
  for (int again = 0; again < 2; ++again)
    for (const auto& run : merge_bundle(there.home(), file)) CHECK(run.outcome == Outcome::unchanged);
  CHECK(there.raw().integer("SELECT (SELECT count(*) FROM metric) + (SELECT count(*) FROM event)") == before);
  // Also on the machine that wrote it.
  for (const auto& run : merge_bundle(here.home(), file)) CHECK(run.outcome == Outcome::unchanged);
}

TEST_CASE("an import that was killed before it had added the files is completed by the next one") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 3);
  const auto file = bundle_of(here, {id}, "a.bundle", BundledFiles::all);
  merge_bundle(there.home(), file);
  // As after a kill between the commit of the rows and the first file.
  const fs::path runs = fs::path(there.home()) / "runs", left = runs / ("." + id + ".import");
  fs::create_directories(left);
  fs::rename(runs / id / "checkpoints", left / "checkpoints");
  const auto digest = sqlite::Database(file, sqlite::Access::existing).text("SELECT digest FROM bundled");
  write_file_atomic(left / ".importing", "another state");
  merge_bundle(there.home(), file);
  CHECK_FALSE(fs::exists(runs / id / "checkpoints/step-000002/manifest.json"));
  write_file_atomic(left / ".importing", digest);
  for (const auto& run : merge_bundle(there.home(), file)) CHECK(run.outcome == Outcome::unchanged);
  CHECK(fs::exists(runs / id / "checkpoints/step-000002/manifest.json"));
  CHECK_FALSE(fs::exists(left));
}

TEST_CASE("expectation 38: settings with secrets are not in a bundle") {
  LedgerFolder here, there;
  const std::string secret = "hunter2-hunter2";
  std::string id;
  {
    Ledger ledger(here.home(), Ledger::Mode::write);
    auto run = new_run(here, "mail");
    run.config["hooks"] = {{"mail", {{"smtp_password", secret}}}};
    run.resolved = "[hooks.mail]\nsmtp_password = \"" + secret + "\"\n";
    id = ledger.begin_run(run);
    for (const char* name : {"recipe.toml", "resolved.toml"})
      write_file_atomic(fs::path(ledger.run_dir(id)) / name, run.resolved);
    write_file_atomic(fs::path(ledger.run_dir(id)) / "plan.json", "{}");
    ledger.finish_run(id, "finished", 0, "");
  }
  const auto summary = write_bundle(here.home(), {id}, here.path / "b.bundle", BundledFiles::all);
  CHECK(summary.withheld == std::vector<std::string>{id});
  CHECK(summary.files == 1);
  CHECK(read_file(here.path / "b.bundle").find(secret) == std::string::npos);
}

TEST_CASE("a run that went on elsewhere comes back, and what is older does not replace what is newer") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto first = bundle_of(here, {id}, "first.bundle", BundledFiles::checkpoints);
  merge_bundle(there.home(), first);
  {
    Ledger ledger(there.home(), Ledger::Mode::write);
    ledger.reopen_run(id, new_run(there, "a"));
    ledger.begin_attempt(id, "resume", 5);
    ledger.metrics(id, {{"loss", 6, 0.1}});
    ledger.finish_run(id, "finished", 0, "");
  }
  fs::create_directories(fs::path(there.home()) / "runs" / id / "checkpoints/step-000006");
  write_file_atomic(fs::path(there.home()) / "runs" / id / "checkpoints/step-000006/manifest.json", "{}");
  // The older bundle changes nothing there.
  CHECK(merge_bundle(there.home(), first).at(0).outcome == Outcome::unchanged);
  const auto second = bundle_of(there, {id}, "second.bundle", BundledFiles::checkpoints);
  here.raw().execute(
      "INSERT INTO config VALUES ('s', '{}'); INSERT INTO sweep (id, name, status, seed, started, space, recipe, "
      "folder) "
      "VALUES ('sweep-1', 's', 'finished', 1, 1, 's', 's', 'x'); INSERT INTO trial (sweep, number, draw, status, "
      "parameters, run) SELECT 1, 1, 1, 'finished', '{}', run FROM run");
  CHECK(merge_bundle(here.home(), second).at(0).outcome == Outcome::updated);
  CHECK(record_of(here, id).at("points").at("loss").size() == 6);
  CHECK(record_of(here, id).at("attempts").size() == 2);
  CHECK(record_of(here, id).at("sweep").at("id") == "sweep-1");  // only this ledger knows of it
  CHECK(fs::exists(fs::path(here.home()) / "runs" / id / "checkpoints/step-000006/manifest.json"));
  CHECK(merge_bundle(here.home(), first).at(0).outcome == Outcome::unchanged);
}

TEST_CASE("a conflict is named, and changes nothing unless it is replaced") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  merge_bundle(there.home(), bundle_of(here, {id}));
  there.raw().execute("UPDATE run SET notes = 'mine'");
  here.raw().execute("UPDATE run SET notes = 'yours'; DELETE FROM metric WHERE step = 5");
  const auto file = bundle_of(here, {id});
  const auto merged = merge_bundle(there.home(), file).at(0);
  CHECK(merged.outcome == Outcome::conflict);
  CHECK(merged.why == "it differs here in notes, metric (11 rows here, 8 there)");
  CHECK(there.raw().text("SELECT notes FROM run") == "mine");
  CHECK(merge_bundle(there.home(), file, /*replace=*/true).at(0).outcome == Outcome::updated);
  CHECK(there.raw().text("SELECT notes FROM run") == "yours");
  // In the trash, it stays there.
  Trash(there.home()).remove({id});
  here.raw().execute("UPDATE run SET notes = 'later'");
  CHECK(merge_bundle(there.home(), bundle_of(here, {id}), true).at(0).why ==
        "it is in the trash here: `runner restore " + id + "` brings it back");
}

TEST_CASE("a run that goes on is bundled as it is now, as lost") {
  LedgerFolder here, there;
  std::string id;
  Ledger ledger(here.home(), Ledger::Mode::write);
  id = ledger.begin_run(new_run(here));
  ledger.begin_attempt(id, "start");
  ledger.metrics(id, {{"loss", 1, 1.0}});
  ledger.flush();
  const auto file = bundle_of(here, {id});
  merge_bundle(there.home(), file);
  CHECK(Ledger(there.home(), Ledger::Mode::read).runs().at(0).status == "lost");
  CHECK(Ledger(here.home(), Ledger::Mode::read).runs().at(0).status == "running");
  CHECK(merge_bundle(here.home(), file, true).at(0).why.starts_with("it is running, as process "));
}

TEST_CASE("files that are no bundles, damaged or newer ones are refused, and hostile paths too") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto file = bundle_of(here, {id}, "a.bundle", BundledFiles::logs);
  CHECK(error_of([&] { merge_bundle(there.home(), here.file()); }) ==
        "2: " + here.file().string() + " is not a bundle of runner (runner export --bundle RUN -o FILE writes one)");
  const auto spoil = [&](const std::string& sql) {
    const fs::path copy = here.path / "spoiled.bundle";
    fs::copy_file(file, copy, fs::copy_options::overwrite_existing);
    sqlite::Database(copy, sqlite::Access::existing).execute(sql);
    return error_of([&] { merge_bundle(there.home(), copy); });
  };
  const std::string name = (here.path / "spoiled.bundle").string();
  CHECK(spoil("UPDATE bundled_part SET content = CAST('b line' AS BLOB) WHERE file = 1 AND part = 0") ==
        "4: the bundle " + name + " is damaged: the content of rank-0.log does not have its digest");
  for (const char* path : {"../../../evil", "/evil", "a/../../evil"})
    CHECK(spoil(fmt::format("UPDATE bundled_file SET path = '{}' WHERE file = 1", path)) ==
          fmt::format("4: the bundle {} is damaged: it has a file \"{}\"", name, path));
  CHECK(spoil("UPDATE bundled SET id = '../x'; UPDATE run SET id = '../x'") ==
        "4: the bundle " + name + " is damaged: it has a run \"../x\"");
  CHECK(spoil("PRAGMA user_version = 99")
            .starts_with("4: the bundle " + name + " has schema 99, and this runner knows schemas up to"));
  CHECK(Ledger(there.home(), Ledger::Mode::read).runs().empty());
  CHECK_FALSE(fs::exists(fs::path(there.home()) / "runs" / id));
  CHECK_FALSE(fs::exists(there.path / "evil"));
}
