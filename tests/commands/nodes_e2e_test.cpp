// Two nodes started by hand, each with a supervisor, form one run with one curve, one ledger row and one end.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/checkpoint/checkpoint.hpp"
#include "tests/support/nodes.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using Catch::Matchers::WithinRel;

namespace {

using Overrides = std::vector<std::string>;

CommandResult train_alone(const Workplace& place, const Overrides& overrides) {
  std::vector<std::string> arguments = {"run", "tiny.toml", "--json"};
  for (const auto& text : overrides) arguments.insert(arguments.end(), {"--set", text});
  auto result = place.run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result;
}

std::vector<CommandResult> finish_well(const Nodes& nodes) {
  auto results = nodes.finish();
  for (const auto& result : results) {
    INFO(result.err);
    REQUIRE(result.code == 0);
  }
  return results;
}

void check_same(const std::vector<double>& curve, const std::vector<double>& expected) {
  REQUIRE(curve.size() == expected.size());
  for (size_t i = 0; i < curve.size(); ++i) CHECK_THAT(curve[i], WithinRel(expected[i], 1e-5));
}

nlohmann::json only_row(const Workplace& place) {
  auto runs = place.run({"ls", "--json"}).json().at("runs");
  REQUIRE(runs.size() == 1);
  return runs[0];
}

nlohmann::json show(const Workplace& place) { return place.run({"show", "last", "--json"}).json(); }

bool stepping(const Nodes& nodes) {
  return wait_until([&] { return nodes.said().find("loss") != std::string::npos; }, 60);
}

const Overrides endless = {"train.max_steps=1000000", "devices.cpu_processes=1", "strategy=fsdp"};

}  // namespace

TEST_CASE("two nodes of one and two ranks give the curve of one rank", "[e2e]") {
  Workplace single;
  write_tiny_recipe(single);
  train_alone(single, {"strategy=single", "devices.cpu_processes=1", "model.dropout=0"});
  auto expected = losses(single);
  for (std::string strategy : {"ddp", "fsdp"})
    for (std::string ranks : {"1", "2"}) {
      INFO(strategy << " on 2 x " << ranks);
      Workplace place;
      write_tiny_recipe(place);
      auto results = finish_well(Nodes(place, 2, {"run", "tiny.toml"},
                                       {"strategy=" + strategy, "devices.cpu_processes=" + ranks, "model.dropout=0"}));
      check_same(losses(place), expected);
      auto row = only_row(place);
      CHECK(row.at("status") == "finished");
      CHECK(row.at("steps") == 12);
      auto measured = results[0].json();
      CHECK(measured.at("run") == row.at("id"));
      CHECK(measured.at("peak_memory_bytes_per_rank").size() == static_cast<size_t>(2 * std::stoi(ranks)));
      CHECK(results[1].out.empty());  // only node 0 prints
      CHECK_THAT(results[1].err,
                 StartsWith("joined 127.0.0.1:") && EndsWith(" as node 1 of 2; node 0 shows the progress\nfinished\n"));
      fs::path run_dir = measured.at("run_dir").get<std::string>();
      CHECK(fs::exists(run_dir / "logs" / "rank-1.log"));
      CHECK(runner::Checkpoint(run_dir / "checkpoints" / "step-000012").world_size() == 2 * std::stoi(ranks));
      bool noted = results[0].err.find("note: CPU ranks on several nodes communicate over Gloo, also within a node") !=
                   std::string::npos;
      CHECK(noted == (ranks == "2"));
    }
}

TEST_CASE("ddp2 on two nodes, with a thread for each rank, gives the curve of ddp", "[e2e]") {
  const auto train = [](const Workplace& place, const std::string& strategy) {
    write_tiny_recipe(place);
    return finish_well(
        Nodes(place, 2, {"run", "tiny.toml"}, {"strategy=" + strategy, "devices.cpu_processes=2", "model.dropout=0"}));
  };
  Workplace processes, threads;
  train(processes, "ddp");
  const auto results = train(threads, "ddp2");
  check_same(losses(threads), losses(processes));
  CHECK(results[0].json().at("peak_memory_bytes_per_rank").size() == 4);
  const fs::path run_dir = results[0].json().at("run_dir").get<std::string>();
  CHECK(runner::Checkpoint(run_dir / "checkpoints" / "step-000012").world_size() == 4);
}

TEST_CASE("a run of two nodes continues on one, and a run of one node on two", "[e2e]") {
  Workplace whole;
  write_tiny_recipe(whole, "[strategy]\nname = \"fsdp\"\n");
  train_alone(whole, {"model.dropout=0", "train.max_steps=24"});
  auto expected = losses(whole);

  Workplace shrinking;
  write_tiny_recipe(shrinking, "[strategy]\nname = \"fsdp\"\n");
  finish_well(Nodes(shrinking, 2, {"run", "tiny.toml"}, {"model.dropout=0", "devices.cpu_processes=2"}));
  auto more = shrinking.run(
      {"resume", "--set", "devices.num_nodes=1", "--set", "devices.cpu_processes=3", "--set", "train.max_steps=24"});
  INFO(more.err);
  REQUIRE(more.code == 0);
  CHECK(only_row(shrinking).at("steps") == 24);
  check_same(losses(shrinking), expected);

  Workplace growing;
  write_tiny_recipe(growing, "[strategy]\nname = \"fsdp\"\n");
  train_alone(growing, {"model.dropout=0"});
  auto results =
      finish_well(Nodes(growing, 2, {"resume"}, {"devices.cpu_processes=1", "train.max_steps=24", "strategy=ddp"}));
  CHECK_THAT(results[0].err, ContainsSubstring("continuing from"));
  CHECK(only_row(growing).at("steps") == 24);
  check_same(losses(growing), expected);
}

TEST_CASE("fast_dev_run on two nodes leaves no run", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto results = finish_well(Nodes(place, 2, {"run", "tiny.toml"}, {"run.fast_dev_run=2"}));
  CHECK(results[0].json().at("steps") == 2);
  CHECK_FALSE(fs::exists(place.home() / "runs"));
  CHECK_FALSE(fs::exists(place.home() / "ledger.db"));
  for (const auto& entry : fs::directory_iterator(place.home())) CHECK(entry.path().filename() == "cache");
}

TEST_CASE("SIGTERM to all nodes or Ctrl-C on one: a checkpoint of all ranks, one status, one exit code", "[e2e]") {
  struct Row {
    int signal;
    std::vector<int> to;
    int code;
    const char* status;
  };
  for (const auto& row : {Row{SIGTERM, {0, 1}, 3, "preempted"}, Row{SIGINT, {1}, 130, "interrupted"},
                          Row{SIGINT, {0}, 130, "interrupted"}}) {
    Workplace place;
    write_tiny_recipe(place);
    Nodes nodes(place, 2, {"run", "tiny.toml"}, endless);
    REQUIRE(stepping(nodes));
    for (int node : row.to) ::kill(nodes.pid(node), row.signal);
    auto results = nodes.finish();
    INFO(results[0].err << results[1].err);
    CHECK(results[0].code == row.code);
    CHECK(results[1].code == row.code);
    CHECK(only_row(place).at("status") == row.status);
    auto checkpoints =
        runner::list_checkpoints(fs::path(results[0].json().at("run_dir").get<std::string>()) / "checkpoints");
    REQUIRE(checkpoints.size() == 1);
    CHECK(runner::Checkpoint(checkpoints[0]).world_size() == 2);
    CHECK(runner::Checkpoint(checkpoints[0]).step() == results[0].json().at("steps"));
  }
}

TEST_CASE("a rank that is killed on any node ends the run on all, and is named", "[e2e]") {
  for (int node : {0, 1})
    for (std::string strategy : {"ddp", "fsdp"}) {
      Workplace place;
      write_tiny_recipe(place);
      Nodes nodes(place, 2, {"run", "tiny.toml"},
                  {"train.max_steps=1000000", "devices.cpu_processes=2", "strategy=" + strategy});
      REQUIRE(stepping(nodes));
      auto workers = children_of(nodes.pid(node));
      REQUIRE(workers.size() == 2);
      auto others = children_of(nodes.pid(1 - node));
      ::kill(workers[1], SIGKILL);
      auto results = nodes.finish();
      INFO(results[0].err << results[1].err);
      std::string cause = "rank " + std::to_string(2 * node + 1) + " was killed by signal 9 (SIGKILL";
      CHECK(results[0].code == 1);
      CHECK(results[1].code == 1);
      CHECK_THAT(results[0].err, ContainsSubstring("error: " + cause));
      CHECK_THAT(results[1].err, ContainsSubstring("\nerror: node 0: " + cause));
      CHECK(results[0].json().at("status") == "failed");
      CHECK_THAT(show(place).dump(), ContainsSubstring(cause));
      for (pid_t worker : {workers[0], others[0], others[1]}) CHECK(::kill(worker, 0) != 0);
    }
}

TEST_CASE("max_restarts restarts the ranks of all nodes from the last checkpoint", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 10\n");
  Nodes nodes(place, 2, {"run", "tiny.toml"},
              {"train.max_steps=200", "train.max_restarts=1", "devices.cpu_processes=1", "strategy=fsdp"});
  auto published = [&] {
    if (!fs::exists(place.home() / "runs")) return false;
    for (const auto& run : fs::directory_iterator(place.home() / "runs"))
      if (fs::exists(run.path() / "checkpoints") && !runner::list_checkpoints(run.path() / "checkpoints").empty())
        return true;
    return false;
  };
  REQUIRE(wait_until(published, 60));
  ::kill(children_of(nodes.pid(1)).at(0), SIGKILL);
  auto results = finish_well(nodes);
  CHECK_THAT(results[0].err, ContainsSubstring("restart 1: rank 1 was killed by signal 9"));
  CHECK(results[0].json().at("steps") == 200);
  CHECK(show(place).at("attempts").size() == 2);
  CHECK(losses(place).size() == 200);
}

TEST_CASE("a supervisor that is killed ends the run on the other node", "[e2e]") {
  for (int node : {0, 1}) {
    Workplace place;
    write_tiny_recipe(place);
    Nodes nodes(place, 2, {"run", "tiny.toml"}, endless);
    REQUIRE(stepping(nodes));
    auto workers = children_of(nodes.pid(0));
    for (pid_t worker : children_of(nodes.pid(1))) workers.push_back(worker);
    REQUIRE(workers.size() == 2);
    ::kill(nodes.pid(node), SIGKILL);
    auto results = nodes.finish();
    CHECK(results[static_cast<size_t>(1 - node)].code == 1);
    CHECK_THAT(results[static_cast<size_t>(1 - node)].err,
               ContainsSubstring(node == 1 ? "error: rank 1 is lost: its supervisor on "
                                           : "lost the supervisor of rank 0 (127.0.0.1:"));
    CHECK(only_row(place).at("status") == (node == 0 ? "lost" : "failed"));
    CHECK(wait_until([&] { return ::kill(workers[0], 0) != 0 && ::kill(workers[1], 0) != 0; }, 10));
  }
}

TEST_CASE("a missing node is named after the deadline", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  std::string port = std::to_string(free_port());
  std::vector<std::string> arguments = {"run",           "tiny.toml",
                                        "--set",         "devices.num_nodes=2",
                                        "--set",         "devices.rendezvous_timeout=1s",
                                        "--master-addr", "127.0.0.1",
                                        "--master-port", port,
                                        "--node-rank"};
  auto alone = [&](const char* node) {
    auto mine = arguments;
    mine.push_back(node);
    return place.run(mine);
  };
  auto zero = alone("0"), one = alone("1");
  CHECK(zero.code == 4);
  CHECK(zero.err == "rendezvous at 127.0.0.1:" + port + ": 2 nodes x 2 ranks\n" +
                        "error: rendezvous at 127.0.0.1:" + port +
                        ": ranks 2, 3 of 4 (node 1) did not connect within 1s: start the same command there "
                        "with --node-rank 1 --master-addr 127.0.0.1 --master-port " +
                        port + ", or allow more time (devices.rendezvous_timeout)\n");
  CHECK(one.code == 4);
  CHECK_THAT(one.err, StartsWith("error: rank 2 (node 1, host "));
  CHECK_THAT(one.err,
             ContainsSubstring(
                 "): the supervisor of rank 0 did not answer at 127.0.0.1:" + port +
                 " within 1s (Connection refused): start it there, or allow more time (devices.rendezvous_timeout)\n"));
  CHECK_FALSE(fs::exists(place.home() / "ledger.db"));
}

TEST_CASE("nodes with different settings are refused on all nodes", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  std::string port = std::to_string(free_port());
  auto start = [&](const char* node, const char* lr) {
    return place.start({"run", "tiny.toml", "--set", "devices.num_nodes=2", "--set", lr, "--master-addr", "127.0.0.1",
                        "--master-port", port, "--node-rank", node},
                       std::string("node-") + node);
  };
  pid_t zero = start("0", "optimizer.lr=1e-3"), one = start("1", "optimizer.lr=2e-3");
  auto here = place.finish(zero, "node-0"), there = place.finish(one, "node-1");
  const std::string words =
      " was not started like rank 0: optimizer.lr is 0.002 there and 0.001 here; every node needs the same command, "
      "recipe "
      "and version\n";
  CHECK(here.code == 2);
  CHECK_THAT(here.err, ContainsSubstring("error: rank 2 (node 1, host ") && ContainsSubstring(words));
  CHECK(there.code == 2);
  CHECK_THAT(there.err, ContainsSubstring("error: node 0: rank 2 (node 1, host ") && ContainsSubstring(words));
}

TEST_CASE("a mistake that only node 0 finds is reported on the other nodes", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto results = Nodes(place, 2, {"run", "tiny.toml"}, {"train.global_batch_size=7"}).finish();
  CHECK(results[0].code == 2);
  CHECK(results[1].code == 2);
  CHECK_THAT(results[1].err, ContainsSubstring("node 0: "));
}

TEST_CASE("a setting that needs one supervisor is refused, with the allowed value", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string words =
      "--set devices.process_group_backend=shm: error: process_group_backend \"shm\" connects the ranks of one "
      "supervisor, "
      "and this run has one on each node\n  allowed: gloo\n";
  auto results = Nodes(place, 2, {"run", "tiny.toml"}, {"devices.process_group_backend=shm"}).finish();
  CHECK(results[0].code == 2);
  CHECK_THAT(results[0].err, EndsWith(words));
  CHECK(results[1].code == 2);
  CHECK_THAT(results[1].err, EndsWith(" as node 1 of 2; node 0 shows the progress\nerror: node 0: " + words));
  CHECK_FALSE(fs::exists(place.home() / "ledger.db"));
}

TEST_CASE("a node that does not share RUNNER_HOME ends the run, and the error names a solution", "[e2e]") {
  if (::system("unshare -m true 2>/dev/null") != 0) SKIP("this user cannot make a mount namespace (unshare -m)");
  Workplace place;
  write_tiny_recipe(place);
  fs::create_directories(place.home());
  std::string port = std::to_string(free_port());
  std::string command = RUNNER_BINARY_DIR
                        "/bin/runner run tiny.toml --set devices.num_nodes=2 --master-addr 127.0.0.1 --master-port " +
                        port + " --node-rank 1";
  pid_t zero = place.start({"run", "tiny.toml", "--set", "devices.num_nodes=2", "--master-addr", "127.0.0.1",
                            "--master-port", port, "--node-rank", "0"});
  std::string line = "cd " + place.path().string() + " && RUNNER_HOME=" + place.home().string() +
                     " unshare -m sh -c 'mount -t tmpfs none " + place.home().string() + " && " + command +
                     "' 2>node-1.err";
  int status = ::system(line.c_str());
  auto here = place.finish(zero);
  INFO(here.err);
  CHECK(here.code == 4);
  CHECK(WEXITSTATUS(status) == 4);
  auto row = only_row(place);
  CHECK(row.at("status") == "failed");
  CHECK_THAT(here.err,
             ContainsSubstring(
                 " does not see the same folder " + (place.home() / "runs" / row.at("id").get<std::string>()).string() +
                 " as rank 0's host, but all ranks write checkpoints into it: put RUNNER_HOME on a file system that "
                 "all nodes share, at the same path"));
}

TEST_CASE("devices.simulate runs a recipe for several nodes with one command, and says so", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 6\n");
  const auto run = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"run", "tiny.toml", "--json", "--set", "model.dropout=0"});
    auto result = place.run(overrides);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return result;
  };
  run({"strategy=single", "devices=1"});
  const auto single = losses(place);
  for (const std::string strategy : {"{name=\"fsdp\",sharding_strategy=\"HYBRID_SHARD\"}", "ddp"}) {
    INFO(strategy);
    auto result = run({"strategy=" + strategy, "devices.simulate=true", "devices.accelerator=cuda",
                       "devices.process_group_backend=nccl", "devices.devices=2", "devices.num_nodes=2"});
    CHECK_THAT(result.err, ContainsSubstring(" on 4 CPU ranks that stand for 2 nodes of 2 devices (simulated), "));
    check_same(losses(place), single);
  }
  const auto row = show(place);
  CHECK(row.at("config").at("devices").at("simulate") == true);
  CHECK(row.at("config").at("devices").at("num_nodes") == 2);
  CHECK(row.at("world_size") == 4);
  CHECK_THAT(place.run({"show"}).out,
             ContainsSubstring("\n  simulated  CPU processes stood for 2 nodes of 2 devices\n"));
  // The checkpoint has parts of four ranks, and the default group of HYBRID_SHARD is a simulated node.
  run({"strategy={name=\"fsdp\",sharding_strategy=\"HYBRID_SHARD\"}", "devices.simulate=true", "devices=2",
       "devices.num_nodes=2", "train.max_steps=6"});
  CHECK(show(place).at("plan").at("traffic").at(0).at("collective") == "all_reduce");  // between nodes
  auto resumed = place.run({"resume", "--json", "--set", "devices.simulate=false", "devices.num_nodes=1", "devices=2",
                            "train.max_steps=12"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  check_same(losses(place), single);
}

TEST_CASE("a node that joins sends its recipe without secret values", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const int port = free_port(), listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listener, 1) == 0);
  const pid_t node = place.start({"run", "tiny.toml", "--set", "devices.num_nodes=2", "--set",
                                  "run.notes=Authorization: Bearer geheim1234567890", "--node-rank", "1",
                                  "--master-addr", "127.0.0.1", "--master-port", std::to_string(port)});
  const int connection = ::accept(listener, nullptr, nullptr);
  std::string hello(1 << 20, '\0');
  size_t size = 0;
  for (ssize_t n = 1; n > 0 && hello.find('\n') == std::string::npos; size += static_cast<size_t>(n))
    n = std::max<ssize_t>(0, ::read(connection, hello.data() + size, hello.size() - size));
  hello.resize(size);
  CHECK_THAT(hello, ContainsSubstring("\"say\":\"hello\"") && ContainsSubstring("Authorization: "));
  CHECK(hello.find("geheim") == std::string::npos);
  ::kill(node, SIGKILL);
  place.finish(node);
  ::close(connection);
  ::close(listener);
}

TEST_CASE("devices.simulate refuses what contradicts it", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto refused = [&](std::vector<std::string> words, const std::map<std::string, std::string>& environment = {}) {
    words.insert(words.begin(), {"run", "tiny.toml", "--set", "devices.simulate=true", "devices.accelerator=cuda"});
    auto result = place.run(words, environment);
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK_THAT(refused({"devices.cpu_processes=1"}),
             EndsWith("error: devices.simulate needs a number of devices, because this machine does not have them: set "
                      "devices.devices = N\n"));
  CHECK_THAT(
      refused({"devices=2000000000", "devices.num_nodes=100000"}),
      EndsWith("error: devices.simulate starts one process for each device, and 100000 nodes of 2000000000 devices "
               "are more than 1024 processes\n"));
  CHECK_THAT(refused({"devices=2", "devices.num_nodes=2", "--node-rank", "1"}),
             EndsWith("error: devices.simulate starts the ranks of all nodes, so --node-rank, --master-addr and "
                      "--master-port do not apply\n"));
  CHECK_THAT(refused({"devices=2"}, {{"TORCHELASTIC_RUN_ID", "x"},
                                     {"RANK", "0"},
                                     {"WORLD_SIZE", "2"},
                                     {"LOCAL_RANK", "0"},
                                     {"LOCAL_WORLD_SIZE", "2"},
                                     {"GROUP_RANK", "0"},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", "29500"}}),
             EndsWith("error: devices.simulate starts all ranks with one command, but torchrun has started this one: "
                      "start it without a launcher, or remove devices.simulate\n"));
}
