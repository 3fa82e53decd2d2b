// Checkpoints in a second place: which are stored and when, what is removed, what a kill leaves, and what is brought back.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <condition_variable>

#include "runner/checkpoint/background_store.hpp"
#include "runner/checkpoint/manifest.hpp"
#include "support.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

using Names = std::vector<std::string>;

/// What a test does to a FolderIO, and what the FolderIO was asked for.
struct Talk {
  Names calls;
  std::string failing;  ///< the function that fails
  std::function<void(const std::string&call)> before = [](const std::string&) {}, after = before;
};

/// Keeps checkpoints below a folder.
class FolderIO final : public parts::CheckpointIO {
 public:
  FolderIO(fs::path root, std::shared_ptr<Talk> talk) : root_(std::move(root)), talk_(std::move(talk)) {}
  void save(const std::string& run, const std::string& name, const fs::path& folder) override {
    begin("save", name);
    fs::remove_all(root_ / run / name);
    fs::create_directories(root_ / run);
    fs::copy(folder, root_ / run / name, fs::copy_options::recursive);
    talk_->after("save " + name);
  }
  void load(const std::string& run, const std::string& name, const fs::path& folder) override {
    begin("load", name);
    fs::copy(root_ / run / name, folder, fs::copy_options::recursive);
  }
  void remove(const std::string& run, const std::string& name) override {
    begin("remove", name);
    fs::remove_all(root_ / run / name);
    talk_->after("remove " + name);
  }
  Names names(const std::string& run) override {
    begin("names", "");
    return fs::exists(root_ / run) ? names_in(root_ / run) : Names();
  }

 private:
  void begin(const std::string& function, const std::string& name) {
    const std::string call = name.empty() ? function : function + " " + name;
    talk_->calls.push_back(call);
    talk_->before(call);
    if (talk_->failing == function) throw std::runtime_error("the disk is gone");
  }
  fs::path root_;
  std::shared_ptr<Talk> talk_;
};

/// A run's folder and a store.
struct Place {
  Folder folder;
  std::shared_ptr<Talk> talk = std::make_shared<Talk>();
  Retention rule{.keep_last = 2, .monitor = "val_loss", .attempts = {}};
  fs::path run_dir = folder / "r1", checkpoints = run_dir / "checkpoints", kept = folder / "kept/r1";

  /// A store as the next process of the run makes it.
  std::shared_ptr<CheckpointStore> store() {
    fs::create_directories(run_dir);
    auto made = std::make_shared<CheckpointStore>(std::make_unique<FolderIO>(folder / "kept", talk), "libkeep.so");
    made->open_run("r1", run_dir, "val_loss");
    return made;
  }
  void publish(int64_t step, float first = 0, nlohmann::json state = nlohmann::json::object()) {
    publish_small(checkpoints, step, first, state);
    retain(checkpoints, rule);
  }
  CheckpointStore::Pass pass(CheckpointStore& store) {
    return store.store_missing(
        rule, [](const std::string&) {}, [] { return false; });
  }
  Names stored() const { return fs::exists(kept) ? names_in(kept) : Names(); }
  /// Those that save or remove something.
  Names changes() const {
    Names found;
    for (const auto& call : talk->calls)
      if (call != "names") found.push_back(call);
    return found;
  }
};

/// Runs `work` in a process that kills itself in it.
void killed_in(const std::function<void()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
}

void flip_last_byte(const fs::path& checkpoint) {
  auto bytes = read_file(checkpoint / "rank-00001.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(checkpoint / "rank-00001.safetensors", bytes);
}

}  // namespace

TEST_CASE("checkpoints are stored in order, and leave the store when newer ones are in it") {
  Place place;
  const auto store = place.store();
  for (int64_t step : {10, 20, 30, 40}) {
    place.publish(step);
    const auto pass = place.pass(*store);
    CHECK(pass.failure.empty());
    CHECK(pass.newest_stored);
  }
  CHECK(place.changes() == Names{"save step-000010", "save step-000020", "save step-000030", "remove step-000010",
                                 "save step-000040", "remove step-000020"});
  CHECK(place.stored() == Names{"step-000030", "step-000040"});
  CHECK(read_small(Checkpoint(place.kept / "step-000040")) ==
        read_small(Checkpoint(place.checkpoints / "step-000040")));
  CHECK(names_in(place.checkpoints) == Names{"step-000030", "step-000040"});  // nothing temporary is left
}

TEST_CASE("the store keeps the best checkpoints, also if they are no longer in the folder") {
  Place place;
  place.rule.keep_last = 1;
  place.rule.save_top_k = 1;
  const auto store = place.store();
  const double losses[] = {0.5, 0.1, 0.3, 0.4};
  for (int i = 0; i < 4; ++i) {
    place.publish((i + 1) * 10, 0, {{"val_loss", losses[i]}});
    place.pass(*store);
  }
  CHECK(place.stored() == Names{"step-000020", "step-000040"});
  fs::remove_all(place.checkpoints / "step-000020");
  place.publish(50, 0, {{"val_loss", 0.2}});
  place.pass(*place.store());  // the next process knows the values
  CHECK(place.stored() == Names{"step-000020", "step-000050"});
}

TEST_CASE("what is stored is not stored again by the next process, but a checkpoint that replaced another one is") {
  Place place;
  place.publish(10, 1);
  place.pass(*place.store());
  place.pass(*place.store());
  CHECK(place.changes() == Names{"save step-000010"});
  place.publish(10, 2);
  place.pass(*place.store());
  CHECK(place.changes() == Names{"save step-000010", "save step-000010"});
  CHECK(read_small(Checkpoint(place.kept / "step-000010"))[0] == 2);
  fs::remove_all(place.kept / "step-000010");  // somebody has removed it from the store
  place.pass(*place.store());
  CHECK(place.stored() == Names{"step-000010"});
  write_text(place.run_dir / "stored.json", "{ damaged");
  place.pass(*place.store());
  CHECK(place.changes().size() == 4);
}

TEST_CASE("a killed process has stored a checkpoint or the next one does, and none is lost in between") {
  for (const std::string at :
       {"before save step-000020", "after save step-000020", "before remove step-000010", "after remove step-000010"}) {
    CAPTURE(at);
    Place place;
    place.rule.keep_last = 1;
    place.publish(10);
    place.pass(*place.store());
    place.publish(20);
    const auto kill = [&](const std::string& when) {
      return [&, when](const std::string& call) {
        if (when + call == at) ::raise(SIGKILL);
      };
    };
    killed_in([&] {
      place.talk->before = kill("before ");
      place.talk->after = kill("after ");
      place.pass(*place.store());
    });
    CHECK_FALSE(place.stored().empty());
    const auto pass = place.pass(*place.store());
    CHECK(pass.failure.empty());
    CHECK(place.stored() == Names{"step-000020"});
    CHECK(names_in(place.checkpoints) == Names{"step-000020"});
  }
}

TEST_CASE("a checkpoint that retention removes while it is stored is stored whole") {
  Place place;
  place.rule.keep_last = 1;
  const auto store = place.store();
  place.publish(10);
  const auto bytes = read_small(Checkpoint(place.checkpoints / "step-000010"));
  place.talk->before = [&](const std::string& call) {
    if (call != "save step-000010") return;
    place.publish(20, 5);
    REQUIRE_FALSE(fs::exists(place.checkpoints / "step-000010"));
  };
  CHECK(place.pass(*store).failure.empty());
  CHECK(read_small(Checkpoint(place.kept / "step-000010")) == bytes);
  place.pass(*store);
  CHECK(place.stored() == Names{"step-000020"});
}

TEST_CASE("a failure names the plug-in, the function, the run and the checkpoint, and nothing is removed then") {
  Place place;
  const auto store = place.store();
  place.publish(10);
  place.talk->failing = "save";
  auto pass = place.pass(*store);
  CHECK(pass.failure == "libkeep.so: save(r1, step-000010) failed: the disk is gone");
  CHECK_FALSE(pass.newest_stored);
  place.talk->failing = "names";
  pass = place.pass(*store);
  CHECK(pass.failure == "libkeep.so: names(r1) failed: the disk is gone");
  CHECK_FALSE(pass.newest_stored);
  place.talk->failing = "";
  CHECK(place.pass(*store).newest_stored);
  for (int64_t step : {20, 30}) place.publish(step);
  place.talk->failing = "remove";
  pass = place.pass(*store);
  CHECK(pass.failure == "libkeep.so: remove(r1, step-000010) failed: the disk is gone");
  CHECK(pass.newest_stored);
  CHECK(place.stored() == Names{"step-000010", "step-000020", "step-000030"});
}

TEST_CASE("checkpoints that the run has given up are not stored, and those in the store go when a newer one is there") {
  Place place;
  const auto store = place.store();
  for (int64_t step : {10, 20}) place.publish(step, 0, {{"attempt", 1}});
  place.pass(*store);
  place.rule.attempts = {{1, 0}, {2, 10}};
  place.pass(*store);
  CHECK(place.stored() == Names{"step-000010", "step-000020"});
  CHECK_FALSE(store->bring_newer(10, place.rule.attempts, [](const std::string&) {}));
  CHECK(place.talk->calls.back() != "load step-000020");
  place.publish(15, 0, {{"attempt", 2}});
  place.pass(*store);
  CHECK(place.stored() == Names{"step-000010", "step-000015"});
}

TEST_CASE("the latest stored checkpoint that verifies is brought back, and others are reported") {
  Place place;
  place.rule.keep_last = 0;
  for (int64_t step : {10, 20, 30, 40, 50}) place.publish(step, static_cast<float>(step));
  place.pass(*place.store());
  fs::remove_all(place.checkpoints);
  flip_last_byte(place.kept / "step-000050");
  fs::rename(place.kept / "step-000010", place.kept / "step-000040.away");
  fs::remove_all(place.kept / "step-000040");
  fs::rename(place.kept / "step-000040.away", place.kept / "step-000040");
  write_text(place.kept / "readme.txt", "a file of somebody else");
  Names notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  const auto store = place.store();
  store->set_note(note);
  const auto path = store->bring_newer(-1, {}, note);
  REQUIRE(path);
  CHECK(*path == place.checkpoints / "step-000030");
  CHECK(read_small(Checkpoint(*path))[0] == 30);
  CHECK(names_in(place.checkpoints) == Names{"step-000030"});
  REQUIRE(notes.size() == 3);
  CHECK(notes[0].find("names(r1) returned \"readme.txt\", which is not the name of a checkpoint") != std::string::npos);
  CHECK(notes[1].find("skipping the stored checkpoint step-000050: ") == 0);
  CHECK(notes[1].find("is corrupted") != std::string::npos);
  CHECK(notes[2].find("libkeep.so: load(r1, step-000040) wrote the checkpoint of step 10") != std::string::npos);
  CHECK_FALSE(store->bring_newer(50, {}, note));
}

TEST_CASE("a checkpoint of another run is not used, and a damaged one in the folder is replaced") {
  Place place;
  place.publish(10, 1, {{"run", "r1"}});
  place.pass(*place.store());
  flip_last_byte(place.checkpoints / "step-000010");
  Names notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  const auto path = place.store()->bring_newer(-1, {}, note);
  REQUIRE(path);
  CHECK(read_small(Checkpoint(*path))[0] == 1);
  CHECK(notes.empty());

  const fs::path other = publish_small(place.folder / "other", 20, 1, {{"run", "r2"}});
  fs::copy(other, place.kept / "step-000020", fs::copy_options::recursive);
  CHECK_FALSE(place.store()->bring_newer(10, {}, note));
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("wrote a checkpoint of another run") != std::string::npos);
  CHECK(names_in(place.checkpoints) == Names{"step-000010"});
}

TEST_CASE("all checkpoints of a run are removed from the store, and no others") {
  Place place;
  place.publish(10);
  place.publish(20);
  place.pass(*place.store());
  fs::create_directories(place.folder / "kept/r2/step-000010");
  CHECK(place.store()->remove_all() == 2);
  CHECK(place.stored().empty());
  CHECK(fs::exists(place.folder / "kept/r2/step-000010"));
}

TEST_CASE("storing does not hold up who asks for it, and a checkpoint that came meanwhile follows") {
  Place place;
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  place.talk->before = [&](const std::string& call) {
    std::unique_lock lock(mutex);
    if (call.starts_with("save")) changed.wait(lock, [&] { return open; });
  };
  BackgroundStore background(place.store(), /*stop_on_error=*/false);
  CHECK_FALSE(background.busy());
  place.publish(10);
  background.begin(place.rule);
  REQUIRE(wait_until([&] { return background.busy() == "step-000010"; }, 10));
  place.publish(20);
  background.begin(place.rule);
  std::atomic<bool> idle{false};
  background.when_idle([&] { idle = true; });
  CHECK_FALSE(idle);
  CHECK(place.stored().empty());
  {
    const std::lock_guard lock(mutex);
    open = true;
  }
  changed.notify_all();
  REQUIRE(wait_until([&] { return idle.load(); }, 10));
  CHECK_FALSE(background.busy());
  CHECK(place.stored() == Names{"step-000010", "step-000020"});
  CHECK(background.missing().empty());
  CHECK(background.take_notes().empty());
  bool at_once = false;
  background.when_idle([&] { at_once = true; });
  CHECK(at_once);
}

TEST_CASE("a store that fails causes few notes, is tried again, and ends the run only if the recipe says so") {
  for (const bool stop : {false, true}) {
    CAPTURE(stop);
    Place place;
    place.talk->failing = "save";
    BackgroundStore background(place.store(), stop);
    const auto pass = [&](int64_t step) {
      place.publish(step);
      background.begin(place.rule);
      REQUIRE(wait_until([&] { return !background.busy(); }, 10));
    };
    pass(10);
    const std::string failure = "libkeep.so: save(r1, step-000010) failed: the disk is gone";
    CHECK(background.missing() == failure);
    if (stop) {
      CHECK(message_of([&] { background.check(); }) == failure);
      CHECK(background.take_notes().empty());
      continue;
    }
    CHECK_NOTHROW(background.check());
    for (int64_t step : {20, 30, 40, 50}) pass(step);
    const auto notes = background.take_notes();
    REQUIRE(notes.size() == 3);  // after one, two and four failures
    CHECK(notes[0].find(failure + "; training continues") == 0);
    CHECK(notes[2].find("storing checkpoints failed 4 times in a row") == 0);
    place.talk->failing = "";
    pass(60);
    CHECK(background.missing().empty());
    CHECK(background.take_notes() == Names{"checkpoints can be stored with libkeep.so again"});
    CHECK(place.stored() == Names{"step-000050", "step-000060"});
  }
}
