// Elastic runs: nodes are killed, leave and join on 127.0.0.1, and the curve stays that of an undisturbed run.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/nodes.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::WithinRel;

namespace {

using Words = std::vector<std::string>;

/// The nodes of an elastic run, started one by one. The first leads.
class ElasticNodes {
 public:
  ElasticNodes(const Workplace& place, Words command, const Words& overrides,
               const std::map<std::string, std::string>& environment = {})
      : place_(place), command_(std::move(command)) {
    for (const auto& text : overrides) command_.insert(command_.end(), {"--set", text});
    command_.insert(command_.end(), {"--master-addr", "127.0.0.1", "--master-port", std::to_string(free_port())});
    auto leading = command_;
    leading.insert(leading.end(), {"--node-rank", "0", "--json"});
    start(leading, environment);
  }
  ~ElasticNodes() {
    for (const pid_t pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  }
  ElasticNodes(const ElasticNodes&) = delete;
  /// Returns the number of the started node, 1 for the first after the leader.
  size_t join(const std::map<std::string, std::string>& environment = {}) { return start(command_, environment); }
  pid_t pid(size_t node = 0) const { return pids_.at(node); }
  std::string said(size_t node = 0) const { return slurp(place_.path() / (name(node) + ".err")); }
  bool says(const std::string& text, size_t node = 0) const {
    return wait_until([&] { return said(node).find(text) != std::string::npos; }, 120);
  }
  void kill(size_t node) { ::kill(pid(node), SIGKILL), finish(node); }
  CommandResult finish(size_t node = 0) {
    auto result = place_.finish(pids_.at(node), name(node));
    pids_[node] = -1;
    return result;
  }

 private:
  size_t start(const Words& words, const std::map<std::string, std::string>& environment) {
    pids_.push_back(place_.start(words, name(pids_.size()), environment));
    return pids_.size() - 1;
  }
  static std::string name(size_t node) { return "node-" + std::to_string(node); }

  const Workplace& place_;
  Words command_;
  std::vector<pid_t> pids_;
};

const Words two_at_most = {"devices.min_nodes=1", "devices.max_nodes=2", "devices.num_nodes=2",
                           "devices.cpu_processes=1", "model.dropout=0"};
const std::string often = "[checkpoint]\nevery_n_steps = 5\nkeep_last = 0\n";

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

int count_of_checkpoints(const Workplace& place) {
  int count = 0;
  while (has_checkpoint(place, count + 1)) ++count;
  return count;
}

/// Waits until the run has a checkpoint more than now.
bool goes_on(const Workplace& place) {
  const int now = count_of_checkpoints(place);
  return wait_until([&] { return has_checkpoint(place, now + 1); }, 120);
}

nlohmann::json show(const Workplace& place) { return place.run({"show", "last", "--json"}).json(); }

/// Where the data of the run's last checkpoint continue: {"epoch", "sample", ...}.
nlohmann::json data_position(const Workplace& place) {
  const auto list = runner::list_checkpoints(fs::path(only_run_dir(place)) / "checkpoints");
  REQUIRE_FALSE(list.empty());
  const auto data = runner::Checkpoint(list.back()).state().at("data");
  return {{"epoch", data.at("epoch")}, {"sample", data.at("sample")}};
}

/// Every step is recorded once, with the loss of an undisturbed run, and the data end at the same sample. So each sample of the epoch
/// was used in one step that counts.
void check_curve(const Workplace& place, const std::string& strategy, const std::string& steps) {
  Workplace whole;
  write_tiny_recipe(whole, often);
  auto alone = whole.run({"run", "tiny.toml", "--set", "devices.cpu_processes=1", "--set", "model.dropout=0", "--set",
                          "strategy=" + strategy, "--set", "train.max_steps=" + steps});
  INFO(alone.err);
  REQUIRE(alone.code == 0);
  const auto expected = whole.points("loss"), points = place.points("loss");
  REQUIRE(points.size() == expected.size());
  for (size_t i = 0; i < points.size(); ++i) {
    REQUIRE(points[i][0] == expected[i][0]);
    REQUIRE_THAT(points[i][1].get<double>(), WithinRel(expected[i][1].get<double>(), 1e-4));
  }
  CHECK(data_position(place) == data_position(whole));
}

}  // namespace

TEST_CASE("a node is killed, another joins, and the run has the curve of an undisturbed one", "[e2e][elastic]") {
  EveryNth chosen(2);
  for (const std::string strategy : {"fsdp", "ddp"}) {
    if (!chosen()) continue;
    INFO(strategy);
    Workplace place;
    write_tiny_recipe(place, often);
    ElasticNodes nodes(place, {"run", "tiny.toml"}, with(two_at_most, {"strategy=" + strategy, "train.max_steps=300"}));
    nodes.join();
    REQUIRE(goes_on(place));
    nodes.kill(1);
    REQUIRE(nodes.says(" was lost: going on with 1 node (1 rank) from step "));
    REQUIRE(goes_on(place));
    const auto workers = children_of(nodes.pid());
    REQUIRE(workers.size() == 1);
    ::kill(workers[0], SIGSTOP);  // so that the run does not end before the node has joined
    const auto late = nodes.join();
    REQUIRE(nodes.says("1 node joined: stopping rank 0 with a checkpoint"));
    ::kill(workers[0], SIGCONT);
    const auto result = nodes.finish();
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK_THAT(result.err, ContainsSubstring(" joined: going on with 2 nodes (2 ranks) from step "));
    const auto other = nodes.finish(late);
    CHECK(other.code == 0);
    CHECK_THAT(other.err, ContainsSubstring("this is node 1 of 2 now\n") && EndsWith("\nfinished\n"));
    const auto run = show(place);
    CHECK(run.at("status") == "finished");
    CHECK(run.at("world_size") == 2);
    CHECK(run.at("attempts").size() == 3);
    CHECK(result.json().at("restarts") == 0);
    check_curve(place, strategy, "300");
  }
}

TEST_CASE("a node may be lost in a step, in a validation or while a checkpoint is written", "[e2e][elastic][kills]") {
  using Row = std::pair<std::string, std::string>;  // the place, and the ranks of each node
  for (const auto& [fault, ranks] :
       {Row{"step:23", "1"}, {"validation:1", "1"}, {"snapshot:1", "1"}, {"snapshot:3", "2"}}) {
    INFO(fault);
    Workplace place;
    write_tiny_recipe(place, often);
    ElasticNodes nodes(place, {"run", "tiny.toml"},
                       with(two_at_most, {"strategy=fsdp", "train.max_steps=60", "train.val_check_interval=20",
                                          "devices.cpu_processes=" + ranks}));
    const auto doomed = nodes.join({{"RUNNER_FAULT", fault}});
    CHECK(nodes.finish(doomed).code == 128 + SIGKILL);
    const auto result = nodes.finish();
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK_THAT(result.err, ContainsSubstring(" was lost: going on with 1 node (" + ranks + " rank"));
    const auto run = show(place);
    CHECK(run.at("attempts").size() == 2);
    CHECK(place.points("val_loss").size() == 3);
    check_curve(place, "fsdp", "60");
  }
}

TEST_CASE("after a loss, the run equals bit for bit one that starts from the same checkpoint",
          "[e2e][elastic][kills]") {
  for (const std::string strategy : {"ddp", "fsdp"}) {
    INFO(strategy);
    Workplace place;
    write_tiny_recipe(place, often);
    ElasticNodes nodes(place, {"run", "tiny.toml"},
                       {"devices.min_nodes=1", "devices.num_nodes=2", "devices.cpu_processes=1", "train.max_steps=60",
                        "strategy=" + strategy});
    nodes.join({{"RUNNER_FAULT", "step:33"}});
    const auto result = nodes.finish();
    INFO(result.err);
    REQUIRE(result.code == 0);
    const std::string lost = " was lost: going on with 1 node (1 rank) from step ";
    std::string from;
    for (const auto& note : events_of(place, "note")) {
      const std::string message = note.at("message");
      if (const auto at = message.find(lost); at != std::string::npos) from = message.substr(at + lost.size());
    }
    REQUIRE_FALSE(from.empty());
    const fs::path run_dir = result.json().at("run_dir").get<std::string>();
    const auto checkpoint = run_dir / "checkpoints" / ("step-" + std::string(6 - from.size(), '0') + from);
    const auto again =
        place.run({"run", "tiny.toml", "--json", "--checkpoint", checkpoint.string(), "--set",
                   "devices.cpu_processes=1", "--set", "train.max_steps=60", "--set", "strategy=" + strategy});
    INFO(again.err);
    REQUIRE(again.code == 0);
    CHECK(again.json().at("final_loss") == result.json().at("final_loss"));
    CHECK(final_state(again.json().at("run_dir")) == final_state(run_dir.string()));
  }
}

TEST_CASE("a run whose leader is killed while the nodes change can be resumed", "[e2e][elastic][kills]") {
  for (const std::string fault : {"replanned", "begin attempt:2", "attempt begun:2"}) {
    INFO(fault);
    Workplace place;
    write_tiny_recipe(place, often);
    ElasticNodes nodes(place, {"run", "tiny.toml"}, with(two_at_most, {"strategy=fsdp", "train.max_steps=60"}),
                       {{"RUNNER_FAULT", fault}});
    nodes.join({{"RUNNER_FAULT", "step:23"}});
    CHECK(nodes.finish().code == 128 + SIGKILL);
    ElasticNodes again(place, {"resume"}, {"devices.num_nodes=1"});
    const auto resumed = again.finish();
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    check_curve(place, "fsdp", "60");
  }
}

TEST_CASE("SIGTERM to a node makes it leave with a checkpoint, and no step is repeated", "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place);  // no checkpoints by steps
  ElasticNodes nodes(place, {"run", "tiny.toml"}, with(two_at_most, {"strategy=fsdp", "train.max_steps=600"}));
  nodes.join();
  REQUIRE(nodes.says("loss"));
  ::kill(nodes.pid(1), SIGTERM);
  const auto left = nodes.finish(1);
  INFO(left.err);
  CHECK(left.code == 3);
  CHECK_THAT(left.err, ContainsSubstring("SIGTERM: leaving the run after a checkpoint\n") && EndsWith("preempted\n"));
  const auto result = nodes.finish();
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring(" left (SIGTERM): going on with 1 node (1 rank) from step "));
  CHECK(show(place).at("world_size") == 1);
  check_curve(place, "fsdp", "600");
}

TEST_CASE("a node leaves at once when too few remain, and the others wait", "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place, often);
  ElasticNodes nodes(place, {"run", "tiny.toml"},
                     {"devices.min_nodes=2", "devices.max_nodes=3", "devices.cpu_processes=1",
                      "train.max_steps=1000000", "devices.rendezvous_timeout=10m"});
  nodes.join();
  REQUIRE(goes_on(place));
  const auto begun = std::chrono::steady_clock::now();
  ::kill(nodes.pid(1), SIGTERM);
  const auto left = nodes.finish(1);
  INFO(left.err);
  CHECK(left.code == 3);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::minutes(2));
  REQUIRE(nodes.says("1 node is there, and devices.min_nodes = 2: waiting up to 10m for other nodes\n"));
  nodes.join();
  REQUIRE(nodes.says(" left (SIGTERM), "));
  ::kill(nodes.pid(), SIGTERM);
  CHECK(nodes.finish().code == 3);
}

TEST_CASE("a node above max_nodes waits until another is lost", "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place, often);
  ElasticNodes nodes(place, {"run", "tiny.toml"}, with(two_at_most, {"train.max_steps=1000000"}));
  nodes.join();
  REQUIRE(goes_on(place));
  const auto third = nodes.join();
  REQUIRE(nodes.says("the run goes on with its 2 nodes (devices.max_nodes = 2): this node waits until one leaves\n",
                     third));
  nodes.kill(1);
  REQUIRE(nodes.says(" joined: going on with 2 nodes (2 ranks) from "));
  REQUIRE(nodes.says("this is node 1 of 2 now\n", third));
  REQUIRE(goes_on(place));
  ::kill(nodes.pid(), SIGINT);  // the leader's signal ends the run on all nodes
  const auto result = nodes.finish(), other = nodes.finish(third);
  INFO(result.err);
  CHECK(result.code == 130);
  CHECK(other.code == 130);
  CHECK(show(place).at("status") == "interrupted");
}

TEST_CASE("a run with fewer nodes than min_nodes waits, fails with both numbers, and can be resumed",
          "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place, often);
  const Words settings = {"devices.min_nodes=2", "devices.max_nodes=3", "devices.cpu_processes=1", "model.dropout=0",
                          "devices.rendezvous_timeout=3s"};
  ElasticNodes nodes(place, {"run", "tiny.toml"}, with(settings, {"train.max_steps=1000000"}));
  nodes.join();
  REQUIRE(goes_on(place));
  nodes.kill(1);
  const auto result = nodes.finish();
  INFO(result.err);
  CHECK(result.code == 4);
  CHECK_THAT(result.err, ContainsSubstring("; 1 node is there, and devices.min_nodes = 2: waiting up to 3s for other "
                                           "nodes\n"));
  CHECK_THAT(result.err,
             ContainsSubstring("; the run cannot go on: 1 node is there, and devices.min_nodes = 2, and no other "
                               "joined within 3s (devices.rendezvous_timeout)\n") &&
                 ContainsSubstring("continue with: runner resume "));
  CHECK(show(place).at("status") == "failed");
  const auto steps = show(place).at("steps").get<int64_t>();
  ElasticNodes again(place, {"resume"}, {"train.max_steps=" + std::to_string(steps + 20)});
  again.join();
  const auto resumed = again.finish();
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(show(place).at("steps") == steps + 20);
}

TEST_CASE("an elastic run starts with the nodes that are there after the time, and not with fewer than min_nodes",
          "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place);
  const Words settings = {"devices.num_nodes=3", "devices.max_nodes=3", "devices.cpu_processes=1",
                          "devices.rendezvous_timeout=2s", "train.max_steps=5"};
  ElasticNodes enough(place, {"run", "tiny.toml"}, with(settings, {"devices.min_nodes=1"}));
  const auto result = enough.finish();
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(show(place).at("world_size") == 1);
  ElasticNodes few(place, {"run", "tiny.toml"}, with(settings, {"devices.min_nodes=2"}));
  const auto refused = few.finish();
  CHECK(refused.code == 4);
  CHECK_THAT(refused.err, ContainsSubstring(": 1 node is there, and devices.min_nodes = 2 after 2s: start the same "
                                            "command on other nodes with --master-addr 127.0.0.1 --master-port "));
}

TEST_CASE("a node with which the batch cannot be divided waits", "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place, often);
  ElasticNodes nodes(place, {"run", "tiny.toml"},
                     {"devices.min_nodes=1", "devices.max_nodes=3", "devices.num_nodes=2", "devices.cpu_processes=1",
                      "train.global_batch_size=8", "train.max_steps=1000000"});
  nodes.join();
  REQUIRE(goes_on(place));
  const auto third = nodes.join();
  REQUIRE(nodes.says("global_batch_size = 8 cannot be divided among 3 data-parallel ranks", third));
  REQUIRE(nodes.says("the run goes on with its 2 nodes, because there is no plan for 3 (", third));
  ::kill(nodes.pid(), SIGTERM);
  CHECK(nodes.finish().code == 3);
  CHECK(nodes.finish(third).code == 3);
  CHECK(show(place).at("attempts").size() == 1);
}

TEST_CASE("steps keep their sequences when nodes leave, without train.global_batch_size", "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place, often);
  ElasticNodes nodes(place, {"run", "tiny.toml", "--unset", "train.global_batch_size"},
                     with(two_at_most, {"train.micro_batch_size=3", "train.max_steps=100"}));
  nodes.join();
  REQUIRE(goes_on(place));
  nodes.kill(1);
  const auto result = nodes.finish();
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto run = show(place);
  CHECK(run.at("config").at("train").at("global_batch_size") == 6);
  CHECK(run.at("config").at("train").at("micro_batch_size") == 3);
  CHECK(data_position(place).at("sample") == 600);
  ElasticNodes again(place, {"resume"}, {"devices.num_nodes=1", "train.max_steps=110"});
  const auto resumed = again.finish();
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(data_position(place).at("sample") == 660);
  // The kept size is not in the recipe of the run, so a node that joins later has the same one.
  ElasticNodes longer(place, {"resume"}, {"devices.num_nodes=1", "train.max_steps=1000000"});
  REQUIRE(goes_on(place));
  longer.join();
  REQUIRE(longer.says(" joined: going on with 2 nodes (2 ranks) from step "));
  ::kill(longer.pid(), SIGTERM);
  CHECK(longer.finish().code == 3);
  CHECK(show(place).at("config").at("train").at("global_batch_size") == 6);
}

TEST_CASE("failures of ranks count as restarts, and changes of nodes do not", "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place, often);
  ElasticNodes nodes(place, {"run", "tiny.toml"},
                     with(two_at_most, {"strategy=fsdp", "train.max_steps=400", "train.max_restarts=1"}));
  nodes.join();
  REQUIRE(goes_on(place));
  const auto workers = children_of(nodes.pid(1));
  REQUIRE(workers.size() == 1);
  ::kill(workers[0], SIGKILL);
  REQUIRE(nodes.says("restart 1: rank 1 was killed by signal 9"));
  REQUIRE(goes_on(place));
  nodes.kill(1);
  const auto result = nodes.finish();
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("restarts") == 1);
  CHECK(show(place).at("attempts").size() == 3);
  check_curve(place, "fsdp", "400");
}

TEST_CASE("settings of elastic runs that contradict each other are refused", "[e2e][elastic]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto refused = [&](Words words, const std::map<std::string, std::string>& environment = {}) {
    words.insert(words.begin(), {"run", "tiny.toml", "--set"});
    auto result = place.run(words, environment);
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK_THAT(refused({"devices.min_nodes=3", "devices.max_nodes=2"}),
             ContainsSubstring("max_nodes = 2 is less than min_nodes = 3"));
  CHECK_THAT(refused({"devices.min_nodes=3", "devices.num_nodes=2"}),
             ContainsSubstring("num_nodes = 2 is less than min_nodes = 3"));
  CHECK_THAT(refused({"devices.max_nodes=3", "devices.num_nodes=4"}),
             ContainsSubstring("max_nodes = 3 is less than num_nodes = 4"));
  CHECK_THAT(refused({"devices.min_nodes=1", "devices.simulate=true"}),
             ContainsSubstring("devices.simulate starts all ranks with one command, so no node can leave or join"));
  CHECK_THAT(refused({"devices.min_nodes=1"}),
             EndsWith("error: an elastic run (devices.min_nodes, max_nodes) needs --master-addr HOST on each node, the "
                      "host of node 0, and --node-rank 0 there\n"));
  CHECK_THAT(refused({"devices.min_nodes=1"}, {{"TORCHELASTIC_RUN_ID", "x"},
                                               {"RANK", "0"},
                                               {"WORLD_SIZE", "2"},
                                               {"LOCAL_RANK", "0"},
                                               {"LOCAL_WORLD_SIZE", "2"},
                                               {"GROUP_RANK", "0"},
                                               {"MASTER_ADDR", "127.0.0.1"},
                                               {"MASTER_PORT", "29500"}}),
             ContainsSubstring("devices.min_nodes and max_nodes under torchrun: it starts one `runner` for each rank"));
}
