// runner rm, restore, purge, gc, export and import, as commands.
#include <catch2/generators/catch_generators.hpp>
#include <csignal>

#include "runner/base/xxh3.hpp"
#include "support.hpp"
#include "tests/support/small_disk.hpp"

using namespace runner;
using namespace runner::testing;
using nlohmann::json;

TEST_CASE("expectation 33: rm hides a run, restore brings it back, purge deletes it for good") {
  Workplace place;
  const auto a = add_run(place.home(), "a"), b = add_run(place.home(), "b");
  auto result = place.run({"rm", "a"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.out == a + "\n");
  CHECK(
      result.err ==
      "1 run moved to the trash: `runner restore RUN` brings a run back, `runner purge` deletes the trash for good\n");
  CHECK(place.run({"ls"}).out.find(a) == std::string::npos);
  CHECK(place.run({"ls", "deleted:yes"}).out.find(a) != std::string::npos);
  result = place.run({"show", "a"});
  CHECK(result.code == 2);
  CHECK(result.err == "error: run " + a + " is in the trash: `runner restore " + a + "` brings it back\n");
  result = place.run({"restore", "a", "--json"});
  CHECK(result.code == 0);
  CHECK(result.json() == json{{"schema", 1}, {"runs", {a}}});
  CHECK(place.run({"rm", "--dry-run", "--json", "a"}).json() == json{{"schema", 1}, {"dry_run", true}, {"runs", {a}}});
  CHECK(place.run({"rm", "name:nobody"}).code == 2);
  CHECK(place.run({"tag", "name:nobody", "+x"}).code == 2);
  CHECK(place.run({"metrics", a, "--name", "loss", "--json"}).json().at("points").size() == 100);

  CHECK(place.run({"rm", "name:a"}).code == 0);
  result = place.run({"purge"});
  CHECK(result.code == 2);
  CHECK(result.err.find("purge deletes 1 run (") != std::string::npos);
  CHECK(result.err.find("add --yes to do that without a question") != std::string::npos);
  result = place.run({"purge", "--older-than", "1h", "--yes"});
  CHECK(result.err == "no run in the trash matches\n");
  result = place.run({"purge", "--dry-run"});
  CHECK(result.out.find((place.home() / "runs" / a).string()) != std::string::npos);
  CHECK(result.err.find("would be deleted for good") != std::string::npos);
  result = place.run({"purge", "--yes"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.err.starts_with("deleted 1 run ("));
  CHECK_FALSE(fs::exists(place.home() / "runs" / a));
  CHECK(place.run({"show", a}).err.starts_with("error: run " + a + " was deleted for good at "));
  CHECK(place.run({"show", b}).code == 0);
}

TEST_CASE(
    "expectation 33: gc --dry-run prints bytes, gc removes what the rule does not keep, and never the newest "
    "checkpoint") {
  Workplace place;
  const auto id = add_run(place.home(), "a");
  const fs::path run_dir = place.home() / "runs" / id;
  fs::create_directories(place.home() / "runs" / "orphan");
  write_file_atomic(place.home() / "runs" / "orphan" / "file", std::string(3000, 'x'));
  fs::create_directories(run_dir / "checkpoints" / ".step-000070.1.tmp");
  const auto dry =
      place.run({"gc", "--dry-run", "--json", "--keep-last", "2", "--keep-best", "1", "--keep-every", "20"}).json();
  std::vector<std::string> names;
  for (const auto& one : dry.at("checkpoints")) names.push_back(fs::path(one.at("path").get<std::string>()).filename());
  CHECK(names == std::vector<std::string>{"step-000010", ".step-000070.1.tmp"});
  CHECK(dry.at("checkpoints")[0].at("bytes").get<int64_t>() > 8000);
  CHECK(sound_checkpoints(run_dir).size() == 6);
  auto result = place.run({"gc", "--keep-best", "1"});
  CHECK(result.code == 2);
  CHECK(result.err == "  " + (run_dir / "checkpoints/step-000010").string() + "\n  " +
                          (run_dir / "checkpoints/step-000020").string() + "\n  " +
                          (run_dir / "checkpoints/step-000040").string() + "\n  " +
                          (run_dir / "checkpoints/step-000050").string() + "\n  " +
                          (run_dir / "checkpoints/.step-000070.1.tmp").string() +
                          "\nerror: gc deletes 5 checkpoints for good: add --yes to do that without a question\n");
  CHECK(sound_checkpoints(run_dir).size() == 6);
  result = place.run({"gc", "--keep-best", "1", "--yes"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(sound_checkpoints(run_dir) == std::vector<int64_t>{30, 60});
  CHECK_FALSE(fs::exists(run_dir / "checkpoints" / ".step-000070.1.tmp"));
  CHECK(result.out.find("stays; removed by --orphans") != std::string::npos);
  CHECK(fs::exists(place.home() / "runs" / "orphan"));
  CHECK(place.run({"gc", "--orphans", "--yes"}).code == 0);
  CHECK(sound_checkpoints(run_dir) == std::vector<int64_t>{60});
  CHECK(std::distance(fs::directory_iterator(place.home() / "runs"), {}) == 1);
  result = place.run({"gc", "--keep-last", "0"});
  CHECK(result.code == 2);
  CHECK(result.err == "error: --keep-last 0: the newest checkpoint of a run always stays, so this is at least 1\n");
}

TEST_CASE("gc keeps all of an archived run, unless it is named") {
  Workplace place;
  const auto id = add_run(place.home(), "a");
  const fs::path run_dir = place.home() / "runs" / id;
  REQUIRE(place.run({"archive", "a"}).code == 0);
  CHECK(place.run({"gc", "--dry-run", "--json", "--keep-last", "1"}).json().at("checkpoints").empty());
  CHECK(place.run({"gc", "--keep-last", "1", "--yes"}).code == 0);
  CHECK(sound_checkpoints(run_dir).size() == 6);
  const auto none = place.run({"gc", "--keep-last", "1", "tag:none", "name:nobody"});
  CHECK(none.code == 2);
  CHECK(none.err == "error: no run matches the filter `tag:none name:nobody`; `runner ls` lists all\n");
  CHECK(place.run({"gc", "--keep-last", "1", "a", "--yes"}).code == 0);
  CHECK(sound_checkpoints(run_dir) == std::vector<int64_t>{60});
}

TEST_CASE("a sweep whose best run is not in the ledger, as of a bundle with some of its runs, says so") {
  Workplace place;
  const auto id = add_run(place.home(), "worse");
  {
    auto database = raw(place.home());
    database.execute(
        "INSERT INTO config VALUES ('s', '{\"metric\":\"loss\"}'), ('r', '');"
        "INSERT INTO sweep (id, name, status, seed, started, heartbeat, ended, space, recipe, folder) VALUES "
        "('sweep-1', "
        "'s', 'finished', 1, 1, 50, 50, 's', 'r', 'sweeps/sweep-1');"
        "INSERT INTO trial (sweep, number, draw, status, parameters, objective, step, ended, run) SELECT 1, 1, 1, "
        "'finished', '{\"lr\":0.5}', 0.5, 10, 40, run FROM run;"
        "INSERT INTO trial (sweep, number, draw, status, parameters, objective, step, ended) VALUES (1, 2, 2, "
        "'finished', "
        "'{\"lr\":0.1}', 0.25, 10, 40)");
  }
  const auto best = place.run({"sweep", "best"});
  CHECK(best.code == 2);
  CHECK(
      best.err.starts_with("error: trial 2 of sweep sweep-1 is the best (loss 0.25 at step 10; lr = 0.1), and its run "
                           "is not in this ledger: "));
  const auto status = place.run({"sweep", "status"});
  INFO(status.err);
  CHECK(status.out.find("not in this ledger") != std::string::npos);
  CHECK(status.out.find(id) != std::string::npos);
  CHECK(status.out.find("2 of ? trials ended") != std::string::npos);
  raw(place.home())
      .execute(
          "UPDATE config SET content = '{\"metric\":5,\"method\":[],\"trials\":\"x\",\"shared\":1}' WHERE hash = 's'");
  const auto odd = place.run({"sweep", "status"});
  INFO(odd.err);
  CHECK(odd.code == status.code);
  CHECK(odd.out.find("2 of ? trials ended") != std::string::npos);
  CHECK(place.run({"sweep", "importance"}).code == 2);
}

TEST_CASE("gc leaves alone what running and unfinished runs start from") {
  Workplace place;
  const auto source = add_run(place.home(), "source"), parent = add_run(place.home(), "parent");
  const auto unfinished = add_run(place.home(), "unfinished", 10, "", "interrupted");
  const auto child = add_run(place.home(), "child", 10, parent, "running");
  const std::string start = fs::absolute(place.home() / "runs" / source / "checkpoints" / "step-000020");
  raw(place.home()).run("UPDATE run SET annotations = json_object('start', ?) WHERE id = ?", start, unfinished);
  const auto result = place.run({"gc", "--json", "--yes"}).json();
  CHECK(sound_checkpoints(place.home() / "runs" / source) == std::vector<int64_t>{20, 60});
  CHECK(sound_checkpoints(place.home() / "runs" / parent).size() == 6);
  CHECK(sound_checkpoints(place.home() / "runs" / child).size() == 6);
  CHECK(result.at("skipped").size() == 2);
}

TEST_CASE("gc frees space on a full disk") {
  Workplace place;
  const SmallDisk disk(place.path() / "disk");
  const std::map<std::string, std::string> there{{"RUNNER_HOME", (disk.path / "home").string()}};
  const auto id = add_run(disk.path / "home", "a", 10);
  const fs::path run_dir = disk.path / "home" / "runs" / id;
  disk.fill();
  const auto refused = place.run({"rm", id}, there);
  CHECK(refused.code == 4);
  CHECK(refused.err.find("the disk is full; `runner gc --dry-run --keep-last 1 --cache` shows what can be removed") !=
        std::string::npos);
  const auto dry = place.run({"gc", "--dry-run", "--json"}, there);
  INFO(dry.err);
  REQUIRE(dry.code == 0);
  CHECK(dry.json().at("checkpoints").size() == 5);
  CHECK(sound_checkpoints(run_dir).size() == 6);
  const auto result = place.run({"gc", "--yes"}, there);
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(sound_checkpoints(run_dir) == std::vector<int64_t>{60});
  CHECK(place.run({"rm", id}, there).code == 0);
  CHECK(is_whole(disk.path / "home" / "ledger.db"));
}

TEST_CASE("gc says where the files of a linked checkpoint stay") {
  Workplace place;
  const auto id = add_run(place.home(), "a");
  const fs::path linked = place.home() / "runs" / id / "checkpoints" / "step-000010", moved = place.path() / "moved";
  fs::rename(linked, moved);
  fs::create_directory_symlink(moved, linked);
  const auto result = place.run({"gc", "--yes"});
  CHECK(result.code == 0);
  CHECK(result.err.find("note: " + linked.string() + " was a link; its files stay in " + moved.string() + "\n") !=
        std::string::npos);
  CHECK(fs::exists(moved / "manifest.json"));
  CHECK_FALSE(fs::exists(fs::symlink_status(linked)));
}

TEST_CASE("expectation 35: export --bundle and import, on two machines") {
  Workplace here, there;
  const auto a = add_run(here.home(), "a", 200);
  const std::string file = (here.path() / "a.bundle").string();
  auto result = here.run({"export", "--bundle", "a", "--files", "checkpoints", "-o", file});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.out == file + "\n");
  for (const char* times : {"1 run: 1 added\n", "1 run: 1 already there\n"}) {
    result = there.run({"import", file});
    CHECK(result.code == 0);
    CHECK(result.out == a + "\n");
    CHECK(result.err == times);
  }
  CHECK(there.run({"metrics", a, "--name", "loss", "--json"}).json() ==
        here.run({"metrics", a, "--name", "loss", "--json"}).json());
  CHECK(sound_checkpoints(there.home() / "runs" / a).size() == 6);
  CHECK(there.run({"note", a, "mine"}).code == 0);
  CHECK(here.run({"note", a, "yours"}).code == 0);
  fs::remove(file);
  const auto written = here.run({"export", "--bundle", "a", "-o", file, "--json"});
  REQUIRE(written.code == 0);
  CHECK((written.json().at("output") == file && written.json().at("runs") == json{a}));
  result = there.run({"import", "bundle", file});
  CHECK(result.code == 2);
  CHECK(result.err.find("stays as it is here: it differs here in notes") != std::string::npos);
  CHECK(result.err.ends_with("1 run: 1 with a conflict (--replace takes the bundle's state of those that differ)\n"));
  // It does not help with a run in the trash.
  REQUIRE(there.run({"rm", a}).code == 0);
  CHECK(there.run({"import", file}).err.ends_with("1 run: 1 with a conflict\n"));
  REQUIRE(there.run({"restore", a}).code == 0);
  CHECK(there.run({"import", file, "--replace"}).code == 0);
  CHECK(here.run({"export", "--bundle", "a", "-o", file}).err ==
        "error: " + file + " exists: remove it, or name another file\n");
}

TEST_CASE("expectation 34: points go out as CSV and JSON lines, and come back with the same counts and values") {
  Workplace place, other;
  const auto a = add_run(place.home(), "a, quoted \"name\"", 120), b = add_run(place.home(), "b", 3);
  const std::string file = (place.path() / "points.csv").string();
  auto result = place.run({"export", a, b, "--metrics", "csv", "-o", file});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err == "246 points of 2 metrics of 2 runs\n");
  CHECK(slurp(file).starts_with("run,name,metric,step,value\n" + a + ",\"a, quoted \"\"name\"\"\",loss,1,1\n"));
  CHECK(place.run({"export", a, b, "--metrics", "csv"}).out == slurp(file));
  result = other.run({"import", file});
  INFO(result.err);
  CHECK(result.code == 0);
  const std::string read =
      "note: a table (CSV) has no status of runs: they count as finished\nread 2 runs with 246 points of 2 metrics\n";
  CHECK(result.err == read + "2 runs: 2 added\n");
  CHECK(other.run({"import", "csv", file}).err == read + "2 runs: 2 already there\n");
  for (const char* metric : {"loss", "odd, \"name\""})
    CHECK(other.run({"metrics", "a, quoted \"name\"", "--name", metric, "--json"}).json().at("points") ==
          place.run({"metrics", a, "--name", metric, "--json"}).json().at("points"));
  // JSON lines: each is valid JSON, in the same order as the CSV.
  std::istringstream lines(place.run({"export", a, "--metrics", "jsonl"}).out);
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto point = json::parse(line);
    if (point.at("metric") == "loss") CHECK(point.at("value").get<double>() == 1.0 / point.at("step").get<double>());
  }
  CHECK(count == 240);
  CHECK(place.run({"export", a, "--metrics", "cvs"}).err ==
        "error: --metrics cvs: there is no such format: did you mean csv?; there are csv, jsonl, parquet, tensorboard, "
        "mlflow\n");
  CHECK(other.run({"import", "tensorbord", file}).err ==
        "error: import tensorbord: there is no such source, did you mean tensorboard?; it is bundle, mlflow, wandb, "
        "tensorboard, csv, deepspeed, huggingface, axolotl, llamafactory, torchtitan or lightning\n");
}

TEST_CASE("the folder of an import that was killed is not used until the import is completed") {
  Workplace here, there;
  const auto a = add_run(here.home(), "a", 50);
  const std::string first = (here.path() / "first.bundle").string(), second = (here.path() / "second.bundle").string();
  const auto import = [&](const std::string& fault) {
    return there.run({"import", second, "--replace"}, {{"RUNNER_FAULT", fault}});
  };
  const auto go_on = [](const Workplace& place, const std::string& id, int64_t step) {
    publish(place.home() / "runs" / id, step, 0.5);
    raw(place.home()).run("UPDATE run SET steps = ?", step);
  };
  const fs::path folder = there.home() / "runs" / a, aside = folder.string() + ".replaced";
  REQUIRE(here.run({"export", "--bundle", "a", "--files", "checkpoints", "-o", first}).code == 0);
  REQUIRE(there.run({"import", first}).code == 0);
  go_on(here, a, 70);
  REQUIRE(here.run({"export", "--bundle", "a", "--files", "checkpoints", "-o", second}).code == 0);
  const bool replaces = GENERATE(false, true);
  if (replaces) go_on(there, a, 80);
  // Killed before the commit, it has changed nothing.
  CHECK(import("import rows").code == 128 + SIGKILL);
  CHECK(there.run({"export", "--bundle", a, "-o", "before"}).code == 0);
  CHECK(import("import committed").code == 128 + SIGKILL);
  for (const auto& command : {std::vector<std::string>{"resume", a},
                              {"generate", a, "x"},
                              {"export", a, "-o", "out"},
                              {"export", "--bundle", a, "-o", "out"}}) {
    const auto result = there.run(command);
    CHECK(result.code == 4);
    CHECK(result.err.find("an import was killed: `runner import " + second + "` completes it\n") != std::string::npos);
  }
  REQUIRE(there.run({"import", second}).code == 0);
  CHECK(sound_checkpoints(folder) == std::vector<int64_t>{10, 20, 30, 40, 50, 60, 70});
  CHECK(fs::exists(aside) == replaces);
  if (replaces) CHECK(sound_checkpoints(aside).back() == 80);
  CHECK(there.run({"export", "--bundle", a, "-o", "out"}).code == 0);
}

TEST_CASE("a recipe whose secrets a bundle does not have is not resumed without them") {
  Workplace here, there;
  const auto a = add_run(here.home(), "a", 5);
  const std::string resolved = "[logging.notify]\nwebhook = \"***\"\n";
  raw(here.home()).run("INSERT INTO config VALUES (?, ?)", xxh3_hex(resolved), resolved);
  raw(here.home())
      .run(
          "UPDATE run SET resolved = ?, annotations = json_set(annotations, '$.redacted', "
          "json('[\"logging.notify.webhook\"]'))",
          xxh3_hex(resolved));
  write_file_atomic(here.home() / "runs" / a / "resolved.toml", "the secret");
  const std::string file = (here.path() / "a.bundle").string();
  REQUIRE(here.run({"export", "--bundle", "a", "-o", file}).code == 0);
  REQUIRE(there.run({"import", file}).code == 0);
  CHECK(there.run({"resume", a}).err ==
        "error: run " + a +
            " had a secret value of logging.notify.webhook, which neither the ledger nor its folder has: give it with "
            "--set logging.notify.webhook=VALUE\n");
  CHECK(there.run({"resume", a, "--set", "logging.notify.webhook=x"}).err.find("had a secret") == std::string::npos);
}

TEST_CASE("a folder that was moved or deleted is named by the verbs that need it, and the others still work") {
  Workplace place;
  const auto id = add_run(place.home(), "a");
  const std::string folder = (place.home() / "runs" / id).string();
  fs::rename(folder, place.path() / "moved");
  CHECK(place.run({"metrics", id, "--name", "loss", "--json"}).code == 0);
  CHECK(place.run({"show", id}).out.find(folder) != std::string::npos);
  CHECK(place.run({"export", id, "--metrics", "csv"}).code == 0);
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"resume", id},
                                               {"generate", id, "x"},
                                               {"export", id, "--output", "out"},
                                               {"evaluate", id}}) {
    const auto result = place.run(verb);
    INFO(verb[0] << ": " << result.err);
    CHECK(result.code == 2);
    CHECK(result.err.find(folder) != std::string::npos);
  }
}
