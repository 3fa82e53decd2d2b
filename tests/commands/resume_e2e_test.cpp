// SIGKILL, Ctrl-C and SIGTERM, then a resume: the end is bit-equal to an undisturbed run.
#include <fmt/format.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "runner/checkpoint/checkpoint.hpp"
#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using nlohmann::json;

namespace {

/// Every tensor of a run's last checkpoint, byte for byte.
std::map<std::string, std::string> final_state(const std::string& run_dir) {
  auto list = runner::list_checkpoints(fs::path(run_dir) / "checkpoints");
  REQUIRE_FALSE(list.empty());
  runner::Checkpoint checkpoint(list.back());
  std::map<std::string, std::string> state;
  for (const auto& name : checkpoint.tensors()) {
    int64_t count = 1;
    for (int64_t size : checkpoint.shape(name)) count *= size;
    std::string bytes(static_cast<size_t>(count * runner::dtype_bytes(checkpoint.dtype(name))), '\0');
    checkpoint.read(name, 0, count, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    state[name] = std::move(bytes);
  }
  return state;
}

std::string only_run_dir(const Workplace& place) {
  for (const auto& entry : fs::directory_iterator(place.home() / "runs")) return entry.path().string();
  return "";
}

bool has_checkpoint(const Workplace& place, int count) {
  if (!fs::exists(place.home() / "runs")) return false;
  auto dir = only_run_dir(place);
  return !dir.empty() && fs::exists(fs::path(dir) / "checkpoints") &&
         static_cast<int>(runner::list_checkpoints(fs::path(dir) / "checkpoints").size()) >= count;
}

struct End {
  double loss;
  std::map<std::string, std::string> state;
};

const std::string fsdp = "[strategy]\nname = \"fsdp\"\n";
/// Optimizer state and parameters are in a file, several tiles long.
const std::string on_nvme =
    "[strategy]\nname = \"deepspeed_stage_3_offload_nvme\"\nnvme_path = \".\"\nmax_in_cpu = 0\n"
    "stage3_param_persistence_threshold = 200\nsub_group_size = 4096\n";
const std::string checkpoints = "[checkpoint]\nevery_n_steps = 2\nkeep_last = 0\n";

End undisturbed(const std::string& strategy = fsdp, int64_t steps = 40) {
  Workplace place;
  write_tiny_recipe(place, strategy + checkpoints);
  auto result = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=" + std::to_string(steps)});
  INFO(result.err);
  REQUIRE(result.code == 0);
  return {result.json().at("final_loss"), final_state(result.json().at("run_dir"))};
}

void check_end(const Workplace& place, const CommandResult& result, const End& expected) {
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("final_loss").get<double>() == expected.loss);
  CHECK(final_state(only_run_dir(place)) == expected.state);
}

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

json events_of(const Workplace& place, const std::string& kind) {
  json run = place.run({"show", "last", "--json"}).json(), events = json::array();
  for (const auto& event : run.at("events"))
    if (event.at("event") == kind) events.push_back(event);
  return events;
}

}  // namespace

TEST_CASE("killed at random moments ten times, a resumed run ends bit-equal", "[e2e]") {
  auto [strategy, rounds] = GENERATE(std::pair(fsdp, 10), std::pair(on_nvme, 3));
  End expected = undisturbed(strategy);
  std::mt19937 random(5);
  int interrupted = 0;
  for (int round = 0; interrupted < rounds; ++round) {
    REQUIRE(round < 3 * rounds);
    INFO("round " << round);
    Workplace place;
    write_tiny_recipe(place, strategy + checkpoints);
    bool was_running = interrupt(place, random);
    for (const auto& entry : fs::directory_iterator(place.path()))
      CHECK(entry.path().filename().string().rfind(".runner-swap", 0) == std::string::npos);
    if (!was_running) continue;
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

TEST_CASE("Ctrl-C and SIGTERM write a checkpoint at the next step, and the resumed run is bit-equal", "[e2e]") {
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

TEST_CASE("numbers that are not finite end a run without a restart", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto result =
      place.run({"run", "tiny.toml", "--json", "--set", "optimizer.lr=1e30", "--set", "train.max_restarts=2"});
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK(result.err.find("the loss or a gradient is not finite at step 2 (loss nan, gradient norm nan); "
                        "train.on_nonfinite = \"skip\" would skip such steps") != std::string::npos);
  CHECK(place.run({"show", "last", "--json"}).json().at("attempts").size() == 1);
  CHECK(events_of(place, "failed").size() == 2);
}

TEST_CASE("a rank that fails reports it while its last checkpoint is not yet published", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + "[checkpoint]\nevery_n_steps = 200\n");
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
  auto failed = events_of(place, "failed");
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].at("rank") == 0);
  CHECK(failed[0].at("message").get<std::string>().starts_with("rank 1 (pid "));
}

TEST_CASE("a run continues with another strategy and number of ranks", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  REQUIRE(place.run({"run", "tiny.toml", "--set", "devices=4"}).code == 0);
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
  auto rates = place.run({"metrics", "last", "--name", "lr", "--json"}).json().at("points");
  REQUIRE(rates.size() == 8);
  CHECK(rates[0][1] == 0.0);   // ln 1
  CHECK(rates[1][1] == 1e-3);  // ln 2 / ln 2
}

TEST_CASE("resume --checkpoint uses that checkpoint, and refuses a wrong one before changing the record", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path folder = fs::path(only_run_dir(place)) / "checkpoints";
  const fs::path damaged = folder / "step-000004" / "rank-00000.safetensors";
  const auto size = fs::file_size(damaged);
  fs::resize_file(damaged, size - 1);
  const auto before = place.run({"show", "--json"}).json();
  const std::string newest = "; the newest one there is " + (folder / "step-000012").string();
  struct Row {
    std::string checkpoint;
    int code;
    std::string words;
  };
  for (const auto& row : {Row{"nowhere/step-000002", 2,
                              (place.path() / "nowhere/step-000002").string() + ": there is no such checkpoint"},
                          Row{(folder / "step-000007/").string(), 2,
                              (folder / "step-000007").string() + ": there is no such checkpoint" + newest},
                          Row{folder.string(), 2,
                              folder.string() + ": this is not a checkpoint folder, it has no manifest.json" + newest},
                          Row{(folder / "step-000004").string(), 4,
                              damaged.string() + " is truncated: " + std::to_string(size - 1) + " of " +
                                  std::to_string(size) + " bytes; the previous good checkpoint is step-000002"}}) {
    auto refused = place.run({"resume", "--checkpoint", row.checkpoint});
    CHECK(refused.code == row.code);
    CHECK_THAT(refused.err, EndsWith("error: " + row.words + "\n"));
    CHECK(place.run({"show", "--json"}).json() == before);
  }

  fs::copy(folder / "step-000002", place.path() / "kept");
  int64_t attempts = 1;
  struct Start {
    std::string checkpoint;
    fs::path named;
    int step;
  };
  for (const auto& [checkpoint, named, step] : {Start{(folder / "step-000006/").string(), folder / "step-000006", 6},
                                                Start{"kept", place.path() / "kept", 2}}) {
    auto result = place.run({"resume", "--checkpoint", checkpoint, "--set", "train.max_steps=14"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK_THAT(result.err, ContainsSubstring("\ncontinuing from " + named.string() + "\n"));
    auto shown = place.run({"show", "--json"}).json();
    CHECK(shown.at("steps") == 14);
    REQUIRE(shown.at("attempts").size() == static_cast<size_t>(++attempts));
    CHECK(shown.at("attempts").back().at("reason") == "resume from " + named.string());
    CHECK(shown.at("attempts").back().at("from_step") == step);
  }
}

TEST_CASE("after resume --checkpoint a restart uses that checkpoint until there is a newer one", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path folder = fs::path(only_run_dir(place)) / "checkpoints";
  const std::string real_worker = RUNNER_BINARY_DIR "/bin/runner-worker";
  // The first two workers fail at once. The third trains to step 8 and then fails. The fourth finishes.
  place.replace_worker("echo \"$@\" >> started\ncount=$(wc -l < started)\n[ $count -lt 3 ] && exit 1\n" + real_worker +
                       " \"$@\" || exit\n[ $count != 3 ]");
  fs::remove(place.path() / "started");
  auto result = place.run({"resume", "--checkpoint", (folder / "step-000004").string(), "--json", "--set", "devices=1",
                           "--set", "train.max_restarts=3", "--set", "train.max_steps=8"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  std::istringstream started(slurp(place.path() / "started"));
  for (const char* step : {"step-000004", "step-000004", "step-000004", "step-000008"}) {
    std::string arguments;
    REQUIRE(std::getline(started, arguments));
    CHECK_THAT(arguments, EndsWith(" --resume " + (folder / step).string()));
  }
  auto shown = place.run({"show", "--json"}).json();
  std::vector<int64_t> from;
  for (const auto& attempt : shown.at("attempts")) from.push_back(attempt.at("from_step"));
  CHECK(from == std::vector<int64_t>{0, 4, 4, 4, 8});
  CHECK(result.json().at("restarts") == 3);
  CHECK_THAT(result.err, ContainsSubstring(" and 3 restarts: val_loss "));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("\n  restarts  3\n"));
}

TEST_CASE("a run resumed from an earlier checkpoint continues from there after a kill", "[e2e]") {
  End expected = undisturbed(fsdp, 12);
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path early = fs::path(only_run_dir(place)) / "checkpoints" / "step-000004";
  auto killed =
      place.finish(place.start({"resume", "--checkpoint", early.string()}, "command", {{"RUNNER_FAULT", "step:1"}}));
  CHECK(killed.code == 128 + SIGKILL);
  CHECK_THAT(place.run({"export", "last", "--output", "weights"}).err, ContainsSubstring(" at step 4, "));
  auto resumed = place.run({"resume", "--json"});
  CHECK_THAT(resumed.err, ContainsSubstring("\ncontinuing from " + early.string() + "\n"));
  check_end(place, resumed, expected);
  CHECK(place.run({"metrics", "last", "--name", "loss", "--json"}).json().at("points").size() == 12);
}

TEST_CASE("a resume with other data is refused with the differences, and continues if they are accepted", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const auto before = place.run({"show", "--json"}).json();
  const std::string newest = (fs::path(only_run_dir(place)) / "checkpoints" / "step-000012").string();
  const std::string text = slurp(place.path() / "text.txt"), file = (place.path() / "text.txt").string();
  struct Row {
    std::vector<std::string> set;
    std::string text, words;
  };
  for (const auto& row : {Row{{"data.seq_len=16"}, text, "data.seq_len was 32 and is 16"},
                          Row{{"run.seed=4"}, text, "run.seed was 3 and is 4"},
                          Row{{"data.shuffle=false"}, text, "data.shuffle was true and is false"},
                          Row{{}, "L" + text.substr(1), "the content of " + file + " has changed"}}) {
    place.write("text.txt", row.text);
    std::vector<std::string> arguments{"resume", "--set", "train.max_steps=14"};
    for (const auto& set : row.set) arguments.insert(arguments.end(), {"--set", set});
    auto refused = place.run(arguments);
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err,
               EndsWith("error: the training data have changed since " + newest +
                        " was written, so its data position now has another meaning: " + row.words +
                        ". Restore the data, start a new run, or continue anyway with --accept-changed-data\n"));
    CHECK(place.run({"show", "--json"}).json() == before);
  }
  // The text is still changed.
  auto accepted = place.run({"resume", "--set", "train.max_steps=14", "--accept-changed-data"});
  INFO(accepted.err);
  REQUIRE(accepted.code == 0);
  auto notes = events_of(place, "note");
  REQUIRE_FALSE(notes.empty());
  CHECK(notes[0].at("message") ==
        "continues with changed training data (--accept-changed-data): the content of " + file + " has changed");
  // What is accepted once is known to the next checkpoint. Other steps and other ranks move no position.
  auto more = place.run({"resume", "--set", "train.max_steps=16", "--set", "devices=1", "--set", "strategy=single",
                         "--set", "train.global_batch_size=24"});
  INFO(more.err);
  CHECK(more.code == 0);
  CHECK_THAT(more.err, ContainsSubstring("a step now takes 24 sequences instead of 12"));
}

TEST_CASE("another model or optimizer, or no step left, is refused before anything is recorded", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path run_dir = only_run_dir(place);
  const std::string newest = (run_dir / "checkpoints" / "step-000012").string();
  const auto before = place.run({"show", "--json"}).json();
  const std::string recipe = slurp(run_dir / "recipe.toml");
  struct Row {
    std::string set, words;
  };
  const auto more = "train.max_steps=14";
  for (const auto& row : {Row{"model.n_layers=1", "\n  model.n_layers = 1, the checkpoint's is 2\n"},
                          Row{"model.n_heads=4", "\n  model.n_heads = 4, the checkpoint's is 2\n"},
                          Row{"model.dim=64", "\n  model.dim = 64, the checkpoint's is 32\n"},
                          Row{"optimizer.name=sgd", "\n  optimizer.name = \"sgd\", the checkpoint's is \"adamw\"\n"}}) {
    auto resumed = place.run({"resume", "--set", more, row.set});
    CHECK(resumed.code == 2);
    CHECK_THAT(resumed.err, ContainsSubstring("error: the recipe cannot continue from " + newest + ":" + row.words));
    auto started = place.run({"run", "tiny.toml", "--checkpoint", newest, "--set", more, row.set});
    CHECK(started.code == 2);
    CHECK_THAT(started.err, ContainsSubstring(row.words));
  }
  auto ended = place.run({"run", "tiny.toml", "--checkpoint", newest});
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, ContainsSubstring("error: train.max_steps = 12: the checkpoint " + newest +
                                          " is of step 12, so there is no step left to train."));
  CHECK(place.run({"show", "--json"}).json() == before);
  CHECK(place.run({"ls", "--json"}).json().at("runs").size() == 1);
  CHECK(slurp(run_dir / "recipe.toml") == recipe);

  auto other = place.run({"resume", "--set", more, "strategy=ddp", "devices=1", "precision=bf16-mixed",
                          "model.dropout=0", "optimizer.lr=1e-4", "optimizer.name=adam"});
  INFO(other.err);
  CHECK(other.code == 0);
  CHECK_THAT(other.err,
             ContainsSubstring("note: optimizer.name = \"adam\", the checkpoint's is \"adamw\"; it continues "
                               "with the same moments\n"));
}

TEST_CASE("a resume that fails before its first step leaves the run's settings as they were", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  place.write("bad.lua", "return {on_train_start = function(ctx) error('broken') end}");
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path run_dir = only_run_dir(place);
  const std::string recipe = slurp(run_dir / "recipe.toml"), resolved = slurp(run_dir / "resolved.toml");
  auto failed = place.run({"resume", "--set", "train.max_steps=14", "hooks.files=[\"bad.lua\"]", "optimizer.lr=0.5"});
  INFO(failed.err);
  CHECK(failed.code != 0);
  CHECK_THAT(failed.err, ContainsSubstring("\ncontinue with: runner resume ") &&
                             EndsWith("\nthe settings of this attempt are not kept, because it made no step\n"));
  CHECK(slurp(run_dir / "recipe.toml") == recipe);
  CHECK(slurp(run_dir / "resolved.toml") == resolved);
  auto resumed = place.run({"resume", "--set", "train.max_steps=14"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(resumed.err.find("learning rate") == std::string::npos);
}

TEST_CASE("a resume notes that the recipe's file has changed", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("more.toml", "extends = \"tiny.toml\"\n[optimizer]\nlr = 2e-3\n");
  REQUIRE(place.run({"run", "more.toml", "--set", "train.max_steps=2"}).code == 0);
  auto same = place.run({"resume", "--set", "train.max_steps=3"});
  CHECK(same.code == 0);
  CHECK(same.err.find("has changed") == std::string::npos);
  place.write("more.toml", "extends = \"tiny.toml\"\n[optimizer]\nlr = 3e-3\n");
  auto changed = place.run({"resume", "--set", "train.max_steps=4"});
  CHECK(changed.code == 0);
  CHECK_THAT(changed.err,
             ContainsSubstring("note: more.toml has changed since the run began; the run keeps its own copy "
                               "(--set changes it)\n"));
  CHECK(changed.err.find("tiny.toml has changed") == std::string::npos);
  CHECK(place.run({"show", "--json"}).json().at("config").at("optimizer").at("lr") == 2e-3);
}

TEST_CASE("a run whose checkpoints are all damaged starts again only with --from-beginning", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  REQUIRE(place.run({"run", "tiny.toml", "--set", "train.max_steps=3"}).code == 0);
  const fs::path folder = fs::path(only_run_dir(place)) / "checkpoints";
  const auto before = place.run({"show", "--json"}).json();
  auto refused = [&] {
    auto result = place.run({"resume", "--set", "train.max_steps=4"});
    CHECK(result.code == 4);
    CHECK_THAT(result.err, ContainsSubstring(" has no good checkpoint left in " + folder.string() + ": ") &&
                               EndsWith("with --from-beginning\n"));
  };
  fs::resize_file(folder / "step-000003" / "rank-00000.safetensors", 100);
  refused();
  fs::remove_all(folder);
  refused();
  auto after = place.run({"show", "--json"}).json();
  CHECK(after.at("attempts") == before.at("attempts"));
  auto again = place.run({"resume", "--from-beginning", "--set", "train.max_steps=4"});
  INFO(again.err);
  CHECK(again.code == 0);
  CHECK_THAT(again.err, ContainsSubstring("\nstarting from the beginning\n"));
  auto shown = place.run({"show", "--json"}).json();
  CHECK(shown.at("attempts").back().at("from_step") == 0);
  CHECK(shown.at("steps") == 4);
}

TEST_CASE("steps that are skipped because they are not finite are counted", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto result = place.run({"run", "tiny.toml", "--set", "optimizer.lr=1e30", "train.on_nonfinite=skip"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err,
             ContainsSubstring("note: step 2 was skipped (train.on_nonfinite = \"skip\"): loss ") &&
                 ContainsSubstring("warning: 11 of 12 steps were skipped, because their loss or a gradient was "
                                   "not finite (train.on_nonfinite = \"skip\")\n"));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("\n  skipped   11 of 12 steps (train.on_nonfinite)\n"));
  auto skipped = events_of(place, "skipped");
  REQUIRE(skipped.size() == 4);  // the counts are powers of two
  CHECK(skipped[0].at("step") == 2);
  CHECK(skipped[3].at("total") == 8);
  auto more = place.run({"resume", "--set", "train.max_steps=14"});
  CHECK_THAT(more.err, ContainsSubstring("warning: 13 of 14 steps were skipped"));
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

TEST_CASE("a run that a hook stopped, killed before it had ended, does not train on", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 4\n[hooks]\nfiles = [\"probe.lua\"]\n");
  place.write("probe.lua", R"(return {
    on_train_batch_end = function(ctx) if ctx.step == 6 then ctx:stop("enough") end end,
    on_train_end = function(ctx) ctx:log("end", ctx.step) end})");
  place.run({"run", "tiny.toml"}, {{"RUNNER_FAULT", "published:2"}});
  REQUIRE(has_checkpoint(place, 2));
  auto resumed = place.run({"resume", "--json"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(resumed.json().at("steps") == 6);
  CHECK(place.run({"show", "--json"}).json().at("why") == "stopped at step 6 by hook probe: enough");
  CHECK(events_of(place, "stopping").size() == 1);

  // A larger max_steps continues the run. The record of on_train_end then has one point, that of the new end.
  REQUIRE(place.run({"resume", "--set", "train.max_steps=10"}).code == 0);
  auto ends = place.run({"metrics", "last", "--name", "end", "--json"}).json().at("points");
  REQUIRE(ends.size() == 1);
  CHECK(ends[0][0] == 10);

  place.write("probe.lua", "return {on_train_start = function(ctx) ctx:stop('at once') end}");
  auto none = place.run({"run", "tiny.toml"});
  CHECK(none.code == 0);
  CHECK_THAT(none.err, ContainsSubstring("\nfinished after 0 steps") && !ContainsSubstring("loss 0.0000"));
}

TEST_CASE("a run that started from another run's checkpoint, killed before it wrote one, starts from it again",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  REQUIRE(place.run({"run", "tiny.toml"}).code == 0);
  const fs::path other = fs::path(only_run_dir(place)) / "checkpoints" / "step-000012";
  fs::rename(other, place.path() / "kept");
  const std::vector<std::string> longer = {"run", "tiny.toml", "--checkpoint", "kept", "--set", "train.max_steps=16"};
  auto whole = place.run(longer);
  REQUIRE(whole.code == 0);
  const auto expected = place.run({"show", "last", "--json"}).json().at("metrics").at("loss");

  place.run(longer, {{"RUNNER_FAULT", "step:1"}});
  auto resumed = place.run({"resume", "last"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("continuing from " + (place.path() / "kept").string()));
  CHECK(place.run({"show", "last", "--json"}).json().at("metrics").at("loss") == expected);

  place.run(longer, {{"RUNNER_FAULT", "step:1"}});
  fs::rename(place.path() / "kept", place.path() / "gone");
  auto refused = place.run({"resume", "last"});
  CHECK(refused.code == 4);
  CHECK_THAT(refused.err, ContainsSubstring("started from " + (place.path() / "kept").string() +
                                            " and has no checkpoint since then. That checkpoint cannot be used: "));
}

TEST_CASE("a run whose folder was moved continues from its own checkpoints", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, checkpoints);
  place.run({"run", "tiny.toml"}, {{"RUNNER_FAULT", "step:5"}});
  place.run({"resume"}, {{"RUNNER_FAULT", "step:1"}});  // its second attempt writes no checkpoint
  const fs::path moved = place.path() / "moved";
  fs::rename(place.home(), moved);
  auto resumed = place.run({"resume", "--json"}, {{"RUNNER_HOME", moved.string()}});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(resumed.json().at("steps") == 12);
  CHECK_THAT(resumed.err, ContainsSubstring("continuing from " + moved.string()));
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

TEST_CASE("resuming a finished run starts nothing and explains how to train longer", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 4\n[lr_scheduler]\nname = \"cosine\"\n");
  auto whole = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=8"});
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  CHECK_THAT(whole.err, ContainsSubstring("finished after 8 steps: val_loss ") && ContainsSubstring(", loss "));
  auto id = whole.json().at("run").get<std::string>();
  const std::string done = "run " + id +
                           " has finished after 8 steps: nothing is left to do\nto train further: runner resume " + id +
                           " --set train.max_steps=N\n";
  for (const auto& words : {std::vector<std::string>{"resume"}, {"resume", "--set", "train.max_steps=8"}}) {
    auto again = place.run(words);
    CHECK(again.code == 0);
    CHECK(again.err == done);
  }
  CHECK(place.run({"resume", "--json"}).json().at("final_loss") == whole.json().at("final_loss"));
  CHECK(place.run({"show", "--json"}).json().at("attempts").size() == 1);

  auto shorter = place.run({"resume", "--set", "train.max_steps=6"});
  CHECK(shorter.code == 2);
  CHECK_THAT(shorter.err, ContainsSubstring("error: train.max_steps = 6: the run continues from step 8 (") &&
                              ContainsSubstring("step-000008), which is later."));
  CHECK(place.run({"show", "--json"}).json().at("status") == "finished");

  auto longer = place.run({"resume", "--set", "train.max_steps=10"});
  CHECK(longer.code == 0);
  CHECK_THAT(longer.err, ContainsSubstring("finished after 10 steps"));
}

TEST_CASE("ls, show and resume give the reason of a run that a hook stopped; it continues without the hook", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto first = place.run({"run", "tiny.toml", "--set", "train.val_check_interval=2",
                          "train.early_stopping={patience=1, "
                          "min_delta=100.0}"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  const std::string why = "stopped at step 4 by hook early_stopping: val_loss has not improved on ";
  auto run = place.run({"show", "--json"}).json();
  CHECK_THAT(run.at("why").get<std::string>(), StartsWith(why));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("\n  why       " + why));
  CHECK_THAT(place.run({"ls"}).out, ContainsSubstring("  " + why));
  auto again = place.run({"resume"});
  CHECK(again.code == 0);
  CHECK_THAT(again.err, ContainsSubstring("has finished after 4 steps (" + why) &&
                            ContainsSubstring(" --unset train.early_stopping\n"));
  auto on = place.run({"resume", "--unset", "train.early_stopping"});
  INFO(on.err);
  CHECK(on.code == 0);
  CHECK(place.run({"show", "--json"}).json().at("steps") == 12);
}

TEST_CASE("the reason of a run that train.max_time stopped is train.max_time", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  REQUIRE(place.run({"run", "tiny.toml", "--set", "train.max_time=1s", "train.max_steps=1000000"}).code == 0);
  auto run = place.run({"show", "--json"}).json();
  CHECK_THAT(run.at("why").get<std::string>(), StartsWith("stopped at step ") && EndsWith(" by train.max_time"));
  CHECK_THAT(place.run({"resume"}).err, ContainsSubstring(" --set train.max_time=LONGER\n"));
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
                          " was deleted, and its checkpoints with it. Its metrics are still in the ledger\n");
}
