// plugins.checkpoint_io, end to end: checkpoints are kept a second time by a library that is built outside of the tree and by a Lua file,
// and a run whose folder has lost its checkpoints continues from them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "runner/checkpoint/checkpoint.hpp"
#include "tests/commands/resume_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

using Names = std::vector<std::string>;

const std::string every_second = "[checkpoint]\nevery_n_steps = 2\n";

std::string store_example(const std::string& name) { return slurp(RUNNER_SOURCE_DIR "/tests/plugin/parts/" + name); }

/// Builds FOLDER/libfolder_store.so from `source`, against the headers as `cmake --install` puts them.
void build_store(const fs::path& folder, const std::string& source) {
  const fs::path include = folder / "include/runner/plugins";
  fs::create_directories(include);
  for (const char* header : {"options.hpp", "parts.hpp"})
    fs::copy_file(fs::path(RUNNER_SOURCE_DIR "/runner/plugins") / header, include / header,
                  fs::copy_options::overwrite_existing);
  std::ofstream(folder / "folder_store.cpp") << source;
  const std::string command = std::string(PLUGIN_COMPILER) + " -std=c++20 -O1 -fPIC -shared -I" +
                              (folder / "include").string() + " -o " + (folder / "libfolder_store.so").string() + " " +
                              (folder / "folder_store.cpp").string();
  REQUIRE(std::system(command.c_str()) == 0);
}

/// The library of the example, built once for all tests of this program.
const fs::path& store_library() {
  static const TemporaryFolder folder;
  static const fs::path library = [] {
    build_store(folder.path, store_example("folder_store.cpp"));
    return folder.path / "libfolder_store.so";
  }();
  return library;
}

/// A recipe with a store in PLACE/stored. `form`: "library" or "lua".
void write_stored_recipe(const Workplace& place, const std::string& form, const std::string& extra = every_second) {
  const std::string file = form == "lua" ? "store.lua" : "libfolder_store.so";
  const std::string options = "options = { root = \"" + (place.path() / "stored").string() + "\" }\n";
  write_tiny_recipe(place, (form == "lua" ? "[hooks]\ntrusted = true\n" : "") + extra +
                               "[plugins]\ncheckpoint_io = \"" + file + "\"\n" + options);
  if (form == "lua") place.write("store.lua", store_example("store.lua"));
  if (form != "lua" && !fs::exists(place.path() / file)) fs::copy_file(store_library(), place.path() / file);
}

Names listed(const fs::path& checkpoints) {
  Names names;
  for (const auto& path : runner::list_checkpoints(checkpoints)) names.push_back(path.filename().string());
  return names;
}

fs::path folder_of_run(const Workplace& place) { return only_run_dir(place); }

Names stored(const Workplace& place) {
  if (!fs::exists(place.home() / "runs")) return {};
  const fs::path run = folder_of_run(place);
  return run.empty() ? Names() : listed(place.path() / "stored" / run.filename());
}

std::string refused_store(const Workplace& place, const Names& settings = {}) {
  Names arguments = {"check", "tiny.toml"};
  if (!settings.empty()) arguments.emplace_back("--set");
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  const auto result = place.run(arguments);
  INFO(result.err);
  CHECK(result.code == 2);
  return result.out + result.err;
}

/// The example in Lua with another text.
std::string lua_with(const std::string& from, const std::string& to) {
  std::string text = store_example("store.lua");
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a killed run whose checkpoints were deleted resumes from its store to the same state") {
  const std::vector<std::string> run = {"run", "tiny.toml", "--json", "--set", "train.max_steps=40"};
  Workplace calm;
  write_tiny_recipe(calm, every_second);
  const auto expected = calm.run(run);
  INFO(expected.err);
  REQUIRE(expected.code == 0);
  for (const std::string form : {"library", "lua"}) {
    CAPTURE(form);
    Workplace place;
    write_stored_recipe(place, form);
    const pid_t supervisor = place.start(run);
    REQUIRE(wait_until([&] { return stored(place).size() >= 2; }, 60));
    const auto workers = children_of(supervisor);
    ::kill(supervisor, SIGKILL);
    for (const pid_t worker : workers) ::kill(worker, SIGKILL);
    place.finish(supervisor);
    fs::remove_all(folder_of_run(place) / "checkpoints");
    const auto resumed = place.run({"resume", "--json"});
    check_end(place, resumed, {expected.json().at("final_loss"), final_state(expected.json().at("run_dir"))});
    CHECK_THAT(resumed.err, ContainsSubstring("loading checkpoint step-") && !ContainsSubstring("from the beginning"));
    CHECK(losses(place) == losses(calm));
    CHECK(stored(place) == listed(folder_of_run(place) / "checkpoints"));
  }
}

TEST_CASE("a checkpoint that a killed run has published but not stored is stored by the resumed one") {
  for (const std::string fault : {"store:2", "stored:2", "store retention:1"}) {
    CAPTURE(fault);
    Workplace place;
    write_stored_recipe(place, "library");
    const auto killed = place.run({"run", "tiny.toml"}, {{"RUNNER_FAULT", fault}});
    INFO(killed.err);
    REQUIRE(killed.code == 128 + SIGKILL);
    REQUIRE(wait_until([&] { return place.run({"resume", "--json"}).code == 0; }, 60));
    CHECK(stored(place) == listed(folder_of_run(place) / "checkpoints"));
    CHECK(stored(place) == Names{"step-000010", "step-000012"});
  }
}

TEST_CASE("a run that was killed while it loaded a stored checkpoint resumes") {
  Workplace place;
  write_stored_recipe(place, "library");
  REQUIRE(place.run({"run", "tiny.toml", "--set", "train.max_steps=6"}).code == 0);
  fs::remove_all(folder_of_run(place) / "checkpoints");
  const Names resume = {"resume", "--set", "train.max_steps=12"};
  CHECK(place.run(resume, {{"RUNNER_FAULT", "loaded"}}).code == 128 + SIGKILL);
  const auto resumed = place.run(resume);
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(losses(place).size() == 12);
}

TEST_CASE("a stored checkpoint that is damaged is skipped, and without a good one the resume is refused") {
  Workplace place;
  write_stored_recipe(place, "library");
  REQUIRE(place.run({"run", "tiny.toml", "--set", "train.max_steps=6"}).code == 0);
  REQUIRE(stored(place) == Names{"step-000004", "step-000006"});
  fs::remove_all(folder_of_run(place) / "checkpoints");
  const fs::path kept = place.path() / "stored" / folder_of_run(place).filename();
  fs::resize_file(kept / "step-000006/rank-00000.safetensors", 100);
  const auto resumed = place.run({"resume", "--set", "train.max_steps=8"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK_THAT(resumed.err,
             ContainsSubstring("skipping the stored checkpoint step-000006") && ContainsSubstring("step-000004"));
  fs::remove_all(folder_of_run(place) / "checkpoints");
  fs::remove_all(kept);
  const auto lost = place.run({"resume", "--set", "train.max_steps=10"});
  CHECK(lost.code == 4);
  CHECK_THAT(lost.err, ContainsSubstring("and none is stored with libfolder_store.so"));
}

TEST_CASE("a run fails at its end if its last checkpoint could not be stored, and a resume stores it") {
  Workplace place;
  write_stored_recipe(place, "lua");
  place.write("bad.lua",
              lua_with("return os.execute(\"rm -rf \" .. partial", "return os.execute(\"false \" .. partial"));
  const auto failed = place.run({"run", "tiny.toml", "--set", "plugins.checkpoint_io=bad.lua"});
  CHECK(failed.code == 4);
  CHECK_THAT(failed.err, ContainsSubstring("bad.lua: save(" + folder_of_run(place).filename().string() + ", step-") &&
                             ContainsSubstring("failed: it returned nil; it returns true if it has succeeded") &&
                             ContainsSubstring("it was the last checkpoint of this run"));
  CHECK(losses(place).size() == 12);
  const auto resumed = place.run({"resume", "--set", "plugins.checkpoint_io=store.lua"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(stored(place) == Names{"step-000010", "step-000012"});

  Workplace strict;
  write_stored_recipe(strict, "lua", every_second + "on_error = \"stop\"\n");
  strict.write("store.lua", lua_with("return os.execute(\"rm -rf \" .. partial",
                                     "error(\"no room\") return os.execute(\"rm -rf \" .. partial"));
  const auto stopped = strict.run({"run", "tiny.toml", "--set", "train.max_steps=4000"});
  CHECK(stopped.code == 4);
  CHECK_THAT(stopped.err, ContainsSubstring("no room"));
}

TEST_CASE("with checkpoint.async = false, training waits until each checkpoint is stored") {
  Workplace place;
  write_stored_recipe(place, "lua", every_second + "keep_last = 1\nasync = false\n");
  place.write("store.lua",
              lua_with("return os.execute(\"rm -rf \" .. partial",
                       "return os.execute(\"sleep 0.2; echo \" .. name .. \" >>saves; rm -rf \" .. partial"));
  const auto result = place.run({"run", "tiny.toml"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(slurp(place.path() / "saves") ==
        "step-000002\nstep-000004\nstep-000006\nstep-000008\nstep-000010\nstep-000012\n");
  CHECK(stored(place) == Names{"step-000012"});
}

TEST_CASE("a run says that it waits for its store, and Ctrl-C ends the wait and the run") {
  Workplace place;
  write_stored_recipe(place, "lua");
  place.write("store.lua", lua_with("return os.execute(\"rm -rf \" .. partial",
                                    "return os.execute(\"exec sleep 30 </dev/null >/dev/null 2>&1\") and "
                                    "os.execute(\"rm -rf \" .. partial"));
  const pid_t run = place.start({"run", "tiny.toml"});
  const auto output = [&] { return slurp(place.path() / "command.err"); };
  const bool told = wait_until([&] { return output().find("storing checkpoint step-") != std::string::npos; }, 60);
  ::kill(run, SIGINT);
  const auto ended = place.finish(run);
  INFO(ended.err);
  REQUIRE(told);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("with store.lua: waiting for") && ContainsSubstring("Ctrl-C ends the wait") &&
                            ContainsSubstring("they are complete in the run's folder"));
  CHECK(stored(place).empty());
  place.write("store.lua", store_example("store.lua"));
  CHECK(place.run({"resume", "--set", "train.max_steps=14"}).code == 0);
  CHECK(stored(place) == Names{"step-000012", "step-000014"});
}

TEST_CASE("a restart within a run continues from the store if the folder has lost its checkpoints") {
  Workplace place;
  write_stored_recipe(place, "library");
  const pid_t run = place.start({"run", "tiny.toml", "--json", "--set", "train.max_steps=100", "train.max_restarts=1"});
  REQUIRE(wait_until([&] { return stored(place).size() == 2; }, 60));
  const auto workers = children_of(run);
  REQUIRE_FALSE(workers.empty());
  for (const pid_t worker : workers) ::kill(worker, SIGSTOP);
  REQUIRE(wait_until(
      [&] {
        std::error_code busy;  // a checkpoint may be stored now
        fs::remove_all(folder_of_run(place) / "checkpoints", busy);
        return runner::list_checkpoints(folder_of_run(place) / "checkpoints").empty();
      },
      10));
  for (const pid_t worker : workers) ::kill(worker, SIGKILL);
  const auto result = place.finish(run);
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("loading checkpoint step-"));
}

TEST_CASE("purge removes stored checkpoints if it is asked to") {
  Workplace place;
  write_stored_recipe(place, "library");
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path kept = place.path() / "stored" / folder_of_run(place).filename();
  REQUIRE(listed(kept).size() == 2);
  REQUIRE(place.run({"rm", "last"}).code == 0);
  const auto purged = place.run({"purge", "--yes", "--stored"});
  INFO(purged.err);
  CHECK(purged.code == 0);
  CHECK_THAT(purged.err, ContainsSubstring("removed 2 stored checkpoints"));
  CHECK(listed(kept).empty());
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  REQUIRE(place.run({"rm", "last"}).code == 0);
  CHECK_THAT(place.run({"purge", "--yes"}).err, ContainsSubstring("--stored removes them too"));
}

TEST_CASE("mistakes of plugins.checkpoint_io are reported with the place in the recipe") {
  Workplace place;
  write_stored_recipe(place, "library");
  CHECK_THAT(refused_store(place, {"plugins.checkpoint_io=libno.so"}),
             ContainsSubstring("plugins.checkpoint_io: there is no file") && ContainsSubstring("libno.so"));
  CHECK_THAT(refused_store(place, {"plugins.options={ root = 3 }"}),
             ContainsSubstring("the option `root` must be a string"));
  place.write("libtext.so", "no library");
  CHECK_THAT(refused_store(place, {"plugins.checkpoint_io=libtext.so"}),
             ContainsSubstring("plugins.checkpoint_io: cannot load"));
  const std::string source = store_example("folder_store.cpp"),
                    exported = source.substr(0, source.find("RUNNER_PARTS("));
  build_store(place.path(), exported + "RUNNER_PARTS(.version = 99)\n");
  CHECK_THAT(refused_store(place),
             ContainsSubstring("libfolder_store.so was built for version 99 of the interface of parts"));
  build_store(place.path(), exported + "RUNNER_PARTS()\n");
  CHECK_THAT(refused_store(place), ContainsSubstring("libfolder_store.so has no checkpoint_io"));
  build_store(place.path(), exported);
  CHECK_THAT(refused_store(place), ContainsSubstring("exports no parts"));

  write_stored_recipe(place, "lua");
  CHECK_THAT(refused_store(place, {"hooks.trusted=false"}), ContainsSubstring("set hooks.trusted = true"));
  CHECK_THAT(refused_store(place, {"plugins.options={ root = 3 }"}),
             ContainsSubstring("root") && ContainsSubstring("string"));
  place.write("store.lua", lua_with("names =", "nammes ="));
  CHECK_THAT(refused_store(place), ContainsSubstring("`nammes` is not part of a checkpoint store") &&
                                       ContainsSubstring("did you mean `names`?"));
  place.write("store.lua", lua_with("remove =", "-- remove ="));
  CHECK_THAT(refused_store(place), ContainsSubstring("has no function `remove`"));
}
