// SIGKILL at random moments: listed checkpoints are complete, and published ones are not lost.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <random>
#include <thread>

#include "support.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// Saves each step twice (the second save replaces the first) and keeps three checkpoints. Writes the step to `report`
/// after each publish().
[[noreturn]] void save_forever(const fs::path& folder, int64_t step, int report) {
  for (;; ++step)
    for (float first : {1.0f, 2.0f}) {
      publish_small(folder, step, static_cast<float>(step) * 10 + first);
      retain(folder, {.keep_last = 3, .save_top_k = 0, .monitor = "", .attempts = {}});
      if (::write(report, &step, sizeof step) != sizeof step) ::_exit(1);
    }
}

/// The next reported step; nothing when the writer is dead and all reports have been read.
std::optional<int64_t> next_report(int report) {
  int64_t step = 0;
  return ::read(report, &step, sizeof step) == sizeof step ? std::optional(step) : std::nullopt;
}

}  // namespace

TEST_CASE("a replacement that was killed between its two renames is completed") {
  Folder folder, other;
  const fs::path published = publish_small(folder.path, 5, 1), replaced = folder / ".step-000005.replaced";
  fs::rename(published, replaced);
  SECTION("the new checkpoint is complete") {
    fs::rename(publish_small(other.path, 5, 2), folder / ".step-000005.2.tmp");
    REQUIRE(newest_good_checkpoint(folder.path, {}) == published);
    CHECK(read_small(Checkpoint(published))[0] == 2);
  }
  SECTION("the new checkpoint is not complete") {
    fs::rename(publish_small(other.path, 5, 2), folder / ".step-000005.2.tmp");
    fs::remove(folder / ".step-000005.2.tmp" / "rank-00001.safetensors");
    REQUIRE(newest_good_checkpoint(folder.path, {}) == published);
    CHECK(read_small(Checkpoint(published))[0] == 1);
  }
  SECTION("the old checkpoint is damaged") {
    fs::remove(replaced / "rank-00000.safetensors");
    CHECK_FALSE(newest_good_checkpoint(folder.path, {}));
    CHECK_FALSE(fs::exists(published));
  }
  SECTION("a checkpoint that has the final name stays") {
    publish_small(folder.path, 5, 3);
    REQUIRE(newest_good_checkpoint(folder.path, {}) == published);
    CHECK(read_small(Checkpoint(published))[0] == 3);
    retain(folder.path, {.keep_last = 1, .save_top_k = 0, .monitor = "", .attempts = {}});
    CHECK_FALSE(fs::exists(replaced));
  }
}

TEST_CASE("after SIGKILL at random moments every listed checkpoint verifies and the last published one exists") {
  Folder folder;
  std::mt19937 random(7);
  int64_t published = 0;
  for (int round = 0; round < 40; ++round) {
    int report[2];
    REQUIRE(::pipe(report) == 0);
    pid_t pid = ::fork();
    if (pid == 0) {
      ::close(report[0]);
      save_forever(folder.path, published + 1, report[1]);
    }
    ::close(report[1]);
    // In even rounds, kills during the first save. In odd rounds, kills during the save that replaces it, or during
    // retain().
    if (round % 2 == 1) published = next_report(report[0]).value();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 50'000));
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    while (auto step = next_report(report[0])) published = *step;
    ::close(report[0]);

    auto list = list_checkpoints(folder.path);
    for (const auto& path : list) {
      INFO(path);
      Checkpoint checkpoint(path);
      auto first = read_small(checkpoint)[0];
      auto expected = static_cast<float>(checkpoint.step()) * 10;
      CHECK((first == expected + 1 || first == expected + 2));
    }
    CHECK(list.size() <= 4);  // three, and one that retain() had not removed yet
    if (published > 0) CHECK(fs::exists(folder / checkpoint_name(published)));
  }
  CHECK(published >= 20);
  publish_small(folder.path, published + 10);
  retain(folder.path, {.keep_last = 1, .save_top_k = 0, .monitor = "", .attempts = {}});
  CHECK(names_in(folder.path) == std::vector<std::string>{checkpoint_name(published + 10)});
}
