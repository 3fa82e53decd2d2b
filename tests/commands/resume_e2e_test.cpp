// SIGKILL, Ctrl-C and SIGTERM, then a resume: the end is bit-equal to an undisturbed run.
#include <fmt/format.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "tests/commands/resume_support.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using nlohmann::json;

namespace {

/// Optimizer state and parameters are in a file, several tiles long.
const std::string states_on_nvme =
    "[strategy]\nname = \"deepspeed_stage_3_offload_nvme\"\nnvme_path = \".\"\nmax_in_cpu = 0\n"
    "stage3_param_persistence_threshold = 200\nsub_group_size = 4096\n";
/// Whether the process has ended. It stays a zombie until finish(), so its pid is not reused.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/// Kills a run at a random moment. Returns false if the run had finished before.
bool interrupt(const Workplace& place, std::mt19937& random) {
  pid_t pid = place.start({"run", "tiny.toml", "--json", "--set", "train.max_steps=40"});
  int after = 1 + static_cast<int>(random() % 12);
  REQUIRE(wait_until([&] { return has_checkpoint(place, after) || has_ended(pid); }, 30));
  std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));
  ::kill(pid, SIGKILL);
  place.finish(pid);
  auto runs = place.run({"ls", "--json"}).json().at("runs");
  REQUIRE(runs.size() == 1);
  auto status = runs[0].at("status").get<std::string>();
  INFO("killed after " << after << " checkpoints");
  CHECK((status == "lost" || status == "finished"));
  return status != "finished";
}

}  // namespace

TEST_CASE("killed at random moments, a resumed run ends bit-equal", "[e2e]") {
  auto [strategy, rounds] = GENERATE(std::pair(fsdp, 10), std::pair(states_on_nvme, 3));
  if (!all_combinations()) rounds = rounds == 10 ? 2 : 1;
  End expected = undisturbed(strategy);
  std::mt19937 random(5);
  int interrupted = 0;
  for (int round = 0; interrupted < rounds; ++round) {
    REQUIRE(round < 3 * rounds);
    INFO("round " << round);
    Workplace place;
    write_tiny_recipe(place, strategy + checkpoints);
    if (!interrupt(place, random)) continue;
    ++interrupted;
    check_end(place, place.run({"resume", "last", "--json"}), expected);
  }
}

TEST_CASE("a killed rank stops the run within seconds, with the cause; with max_restarts it ends bit-equal", "[e2e]") {
  End expected = undisturbed();
  for (std::string restarts : {"0", "1"}) {
    Workplace place;
    write_tiny_recipe(place, fsdp + checkpoints);
    pid_t pid = place.start(
        {"run", "tiny.toml", "--json", "--set", "train.max_steps=40", "--set", "train.max_restarts=" + restarts});
    REQUIRE(wait_until([&] { return has_checkpoint(place, 3); }, 30));
    auto workers = children_of(pid);
    REQUIRE(workers.size() == 2);
    auto killed = std::chrono::steady_clock::now();
    ::kill(workers[1], SIGKILL);
    auto result = place.finish(pid);
    auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count();
    INFO(result.err);
    if (restarts == "0") {
      CHECK(result.code == 1);
      CHECK(seconds < 10);
      CHECK(result.err.find("rank 1 was killed by signal 9 (SIGKILL)") != std::string::npos);
      CHECK_THAT(result.err, EndsWith("\ncontinue with: runner resume " +
                                      fs::path(only_run_dir(place)).filename().string() + "\n"));
      result = place.run({"resume", "--json"});
    } else {
      CHECK(result.err.find("restart 1: ") != std::string::npos);
      CHECK(place.run({"show", "last", "--json"}).json().at("attempts").size() == 2);
    }
    check_end(place, result, expected);
  }
}

TEST_CASE("expectation 6: Ctrl-C and SIGTERM write a checkpoint at the next step, and the resumed run is bit-equal",
          "[e2e]") {
  struct Row {
    int signal, code;
    const char* status;
  };
  for (const auto& row : {Row{SIGINT, 130, "interrupted"}, Row{SIGTERM, 3, "preempted"}}) {
    Workplace place;
    write_tiny_recipe(place, fsdp + checkpoints);
    pid_t pid = place.start({"run", "tiny.toml", "--json", "--set", "train.max_steps=100000"});
    REQUIRE(wait_until([&] { return has_checkpoint(place, 3); }, 30));
    ::kill(pid, row.signal);
    auto stopped = place.finish(pid);
    INFO(stopped.err);
    REQUIRE(stopped.code == row.code);
    CHECK(stopped.json().at("status") == row.status);
    int64_t reached = stopped.json().at("steps");
    CHECK(fs::path(runner::list_checkpoints(fs::path(only_run_dir(place)) / "checkpoints").back()).filename() ==
          runner::checkpoint_name(reached));
    auto resumed = place.run({"resume", "--json", "--set", "train.max_steps=" + std::to_string(reached + 5)});
    check_end(place, resumed, undisturbed(fsdp, reached + 5));
  }
}

TEST_CASE("on resume the ranks together read the checkpoint once", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  uint64_t whole = 0;
  for (const auto& [name, bytes] : final_state(only_run_dir(place))) whole += bytes.size();
  REQUIRE(place.run({"resume", "--set", "train.max_steps=13"}).code == 0);
  auto resumed = events_of(place, "resumed");
  REQUIRE(resumed.size() == 2);
  for (const auto& event : resumed) CHECK(event.at("step") == 12);
  CHECK(resumed[0].at("bytes_read").get<uint64_t>() + resumed[1].at("bytes_read").get<uint64_t>() == whole);
}

TEST_CASE("a rank that fails reports it while its last checkpoint is not yet published", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + "[checkpoint]\nsave_top_k = 0\nevery_n_steps = 200\n");
  pid_t pid = place.start({"run", "tiny.toml", "--json", "--set", "train.max_steps=100000"});
  REQUIRE(wait_until([&] { return fs::exists(place.home() / "runs") && !only_run_dir(place).empty(); }, 30));
  // Publishing reads the manifests of the other checkpoints. It blocks on this pipe, which has no writer.
  auto folder = fs::path(only_run_dir(place)) / "checkpoints";
  fs::create_directories(folder / "step-999999");
  REQUIRE(::mkfifo((folder / "step-999999" / "manifest.json").c_str(), 0600) == 0);
  REQUIRE(wait_until([&] { return fs::exists(folder / ".step-000200.1.tmp" / "rank-00000.safetensors"); }, 60));
  auto workers = children_of(pid);
  REQUIRE(workers.size() == 2);
  ::kill(workers[1], SIGKILL);
  auto result = place.finish(pid);
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK(result.err.find("rank 1 was killed by signal 9 (SIGKILL)") != std::string::npos);
  fs::remove_all(folder / "step-999999");  // `runner show` reads all manifests
  auto failed = events_of(place, "failed");
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].at("rank") == 0);
  CHECK(failed[0].at("message").get<std::string>().starts_with("rank 1 (pid "));
}

TEST_CASE("a run continues with another strategy and number of ranks", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  auto whole = place.run(
      {"run", "tiny.toml", "--json", "--set", "devices=4", "--set", "train.max_steps=24", "--set", "model.dropout=0"});
  REQUIRE(whole.code == 0);
  Workplace other;
  write_tiny_recipe(other, "[strategy]\nname = \"fsdp\"\n");
  REQUIRE(other.run({"run", "tiny.toml", "--set", "devices=4", "--set", "model.dropout=0"}).code == 0);
  auto more =
      other.run({"resume", "--json", "--set", "strategy=ddp", "--set", "devices=3", "--set", "train.max_steps=24"});
  INFO(more.err);
  REQUIRE(more.code == 0);
  auto shown = other.run({"show", "--json"}).json();
  CHECK(shown.at("strategy") == "ddp");
  CHECK(shown.at("world_size") == 3);
  CHECK(shown.at("config").at("strategy").at("name") == "ddp");
  CHECK(shown.at("origins").at("strategy.name") == "--set strategy=ddp");
  CHECK(shown.at("plan").at("strategy") == "ddp");
  CHECK(shown.at("predicted").at("memory_bytes_per_rank") == shown.at("plan").at("memory_bytes_per_rank"));
  CHECK(shown.at("argv").at(1) == "resume");
  CHECK(shown.at("attempts").at(0).at("strategy") == "fsdp");
  CHECK(shown.at("attempts").at(0).at("world_size") == 4);
  CHECK(shown.at("attempts").at(1).at("strategy") == "ddp");
  CHECK(other.run({"ls", "--json"}).json().at("runs").at(0).at("strategy") == "ddp");
  double a = whole.json().at("final_loss"), b = more.json().at("final_loss");
  CHECK(std::abs(a - b) < 1e-4 * a);
}

TEST_CASE("a run that continues beyond its schedule reports the jump of the learning rate", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints + "[lr_scheduler]\nname = \"cosine\"\nwarmup_steps = 2\nwarmup = \"log\"\n");
  auto first = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=4"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  auto again = place.run({"resume", "last", "--set", "train.max_steps=8"});
  INFO(again.err);
  CHECK(again.code == 0);
  CHECK_THAT(again.err, ContainsSubstring("note: the learning rate goes from 0 at step 4 to ") &&
                            ContainsSubstring("because of train.max_steps = 8 instead of 4: the cosine schedule"));
  auto rates = place.points("lr");
  REQUIRE(rates.size() == 8);
  CHECK(rates[0][1] == 0.0);   // ln 1
  CHECK(rates[1][1] == 1e-3);  // ln 2 / ln 2
}

TEST_CASE("a run by epochs that continues with other batches and ranks ends after the same data", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 4\n");
  const std::vector<std::string> by_epochs{"--unset", "train.max_steps", "--set", "train.max_epochs=2"};
  auto words = [&](std::vector<std::string> first, const std::string& set) {
    first.insert(first.end(), by_epochs.begin(), by_epochs.end());
    first.insert(first.end(), {"--set", set});
    return first;
  };
  place.run(words({"run", "tiny.toml"}, "train.global_batch_size=120"), {{"RUNNER_FAULT", "published:1"}});
  REQUIRE(has_checkpoint(place, 1));
  auto whole = place.run(
      {"resume", "--json", "--set", "train.global_batch_size=240", "--set", "devices=1", "--set", "strategy=single"});
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  const auto last = runner::list_checkpoints(fs::path(only_run_dir(place)) / "checkpoints").back();
  runner::Checkpoint checkpoint(last);
  CHECK(checkpoint.state().at("data").at("epoch") == 2);
  CHECK(checkpoint.state().at("data").at("sample") == 0);
  CHECK(checkpoint.step() == whole.json().at("steps"));
  CHECK(events_of(place, "ready").back().at("steps") == checkpoint.step());

  const std::string at_end =
      fmt::format(": the run continues from step {} ({}), which is after 2 epochs and 0 samples.", checkpoint.step(),
                  last.string());
  auto shorter = place.run({"resume", "--set", "train.max_epochs=1"});
  CHECK(shorter.code == 2);
  CHECK_THAT(shorter.err, ContainsSubstring("error: train.max_epochs = 1" + at_end));
  auto no_step = place.run(words({"run", "tiny.toml", "--checkpoint", last.string()}, "run.name=more"));
  CHECK(no_step.code == 2);
  CHECK_THAT(no_step.err, ContainsSubstring("error: train.max_epochs = 2" + at_end));
  CHECK(place.run({"ls", "--json"}).json().at("runs").size() == 1);
}

TEST_CASE("a run that was killed right after its row was written can be resumed", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  CHECK(place.run({"run", "tiny.toml"}, {{"RUNNER_FAULT", "committed:1"}}).code != 0);
  auto resumed = place.run({"resume", "last", "--json"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(resumed.json().at("steps") == 12);
}

TEST_CASE("a run without a checkpoint tells which data have changed since it began", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  REQUIRE(place.run({"run", "tiny.toml", "--set", "optimizer.lr=1e30"}).code == 1);
  const auto resume = [&] { return place.run({"resume", "last", "--set", "optimizer.lr=1e-3", "train.max_steps=2"}); };
  place.write("text.txt", slurp(place.path() / "text.txt") + "one more line of text\n");
  const auto resumed = resume();
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("the data have changed since the run began: ") &&
                              ContainsSubstring("text.txt") && ContainsSubstring("all its steps are of the new data"));
}

TEST_CASE("a run whose folder was deleted cannot be resumed, and the error gives this reason", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker("exit 1");
  place.run({"run", "tiny.toml"});
  auto run = place.run({"show", "--json"}).json();
  fs::remove_all(run.at("run_dir").get<std::string>());
  auto result = place.run({"resume"});
  CHECK(result.code == 2);
  CHECK(result.err == "error: run " + run.at("id").get<std::string>() + " cannot be resumed: its folder " +
                          run.at("run_dir").get<std::string>() +
                          " was moved or deleted, and its checkpoints with it. Its settings, metrics and events are "
                          "still in the ledger; a folder that "
                          "was moved works again when it is back in its place\n");
}

TEST_CASE("the error of a resumed run whose data were moved says how to name them anew", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  place.run({"run", "tiny.toml"}, {{"RUNNER_FAULT", "step:5"}});
  fs::rename(place.path() / "text.txt", place.path() / "moved.txt");
  auto refused = place.run({"resume"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("a run keeps absolute paths") && ContainsSubstring("--set 'data.train=["));
  CHECK(place.run({"resume", "--set", "data.train=[\"moved.txt\"]"}).code == 0);
}
