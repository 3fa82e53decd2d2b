// Trainings of a tiny model by peers in one process: equality with ddp, the state of late joiners, checkpoints, and what is refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <atomic>
#include <thread>

#include "strategies/hivemind/swarm.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

int free_port() {
  const swarm::Stop stop = false;
  return swarm::Listener("127.0.0.1", 0, stop).port();
}

TinyRun peer_run(int64_t target, int port, int number) {
  TinyRun run;
  run.strategy = "hivemind";
  run.options = {{"target_batch_size", target}, {"matchmaking_time", 4}, {"load_state_timeout", 20}};
  if (number == 0)
    run.options["port"] = port;
  else
    run.options["initial_peers"] = {fmt::format("127.0.0.1:{}", port)};
  return run;
}

using PeerBody = std::function<void(Strategy& strategy)>;

/// Runs peers at the same time, each in a world of its own.
void run_peers(const std::vector<TinyRun>& runs, const std::vector<PeerBody>& bodies) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(runs.size());
  for (size_t i = 0; i < runs.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        run_ranks(1, [&](World& world) { with_strategy(runs[i], world, bodies[i]); });
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

std::map<std::string, std::vector<float>> state_of(Strategy& strategy) {
  std::map<std::string, std::vector<float>> state;
  std::mutex mutex;
  collect_state(strategy, state, mutex);
  return state;
}

/// The rows that rank `number` of several has in a step of ddp, as the batch of a peer of its own.
StepInput input_of_peer(TinyRun run, int peers, int number, int64_t step) {
  run.world_size = peers;
  auto input = tiny_input(run, number, step);
  input.weight = input.rank_weight;
  return input;
}

/// Each initial value is larger by `difference`.
void shift_initial_values(TinyRun& run, float difference) {
  run.change_source = [difference](const ModelSpec&, ParameterSource drawn) -> ParameterSource {
    return [drawn, difference](size_t slot, int64_t offset, std::span<float> out) {
      drawn(slot, offset, out);
      for (float& value : out) value += difference;
    };
  };
}

/// Collects what the strategy tells the user.
void keep_notes(TinyRun& run, std::vector<std::string>& notes) {
  run.make = [&notes](StrategySetup setup) {
    setup.note = [&notes](const std::string& text) { notes.push_back(text); };
    return make_strategy("hivemind", std::move(setup));
  };
}

size_t notes_with(const std::vector<std::string>& notes, const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(notes, [&](const std::string& note) { return note.find(text) != std::string::npos; }));
}

struct Skips : StepObserver {
  Decision before_optimizer_step(const Gradients&, double, double) override { return {.skip = true}; }
};

StepInput nothing(const TinyRun& run) {
  StepInput input;
  input.micro_batches.push_back(tiny_batch(run, 0, 0));
  return input;
}

}  // namespace

TEST_CASE("fixed peers that wait for each other equal ddp with the target batch", "[parity]") {
  at::set_num_threads(1);
  // Adam would make large updates of rounding errors, where a gradient is 0.
  const OptimizerConfig momentum{
      .kind = OptimizerKind::sgd, .lr = 0.1, .weight_decay = 0, .momentum = 0.9, .groups = {}};
  for (const int peers : {1, 2, 3}) {
    INFO(peers << " peers");
    const int port = free_port();
    std::vector<TinyRun> runs;
    std::vector<PeerBody> bodies;
    std::vector<std::map<std::string, std::vector<float>>> states(static_cast<size_t>(peers));
    for (int i = 0; i < peers; ++i) {
      runs.push_back(peer_run(12, port, i));
      runs.back().options["wait_for_peers"] = 20;
      runs.back().clip_norm = 0.5;
      runs.back().optimizer = momentum;
      bodies.push_back([&, i](Strategy& strategy) {
        for (int64_t step = 0; step < runs[0].steps; ++step)
          RANK_CHECK(!strategy.step(input_of_peer(runs[0], peers, i, step)).skipped);
        states[static_cast<size_t>(i)] = state_of(strategy);
      });
    }
    run_peers(runs, bodies);
    TinyRun ddp;
    ddp.strategy = "ddp";
    ddp.world_size = peers;
    ddp.clip_norm = 0.5;
    ddp.optimizer = momentum;
    const auto expected = train_tiny(ddp);
    for (const auto& [name, values] : expected.state) {
      INFO(name);
      for (size_t k = 0; k < values.size(); ++k) REQUIRE_THAT(states[0].at(name)[k], WithinAbs(values[k], 2e-6));
      if (name.starts_with("param/"))
        for (const auto& other : states) CHECK(other.at(name) == states[0].at(name));
    }
  }
}

TEST_CASE("a late joiner has the state of the peer before it, with equal bits") {
  at::set_num_threads(1);
  const int port = free_port();
  std::vector<TinyRun> runs = {peer_run(48, port, 0), peer_run(48, port, 1)};
  shift_initial_values(runs[1], 1);
  for (auto& run : runs) run.options["wait_for_peers"] = 0.001;  // so that no estimate makes an update
  std::map<std::string, std::vector<float>> first, late;
  std::atomic<bool> trained = false, joined = false;
  const auto limit = swarm::Clock::now() + std::chrono::seconds(30);
  run_peers(runs, {[&](Strategy& strategy) {
                     for (int64_t step = 0; step < 10; ++step) {  // 12 samples each: 2 updates, and 24 samples
                       const auto result = strategy.step(tiny_input(runs[0], 0, step));
                       RANK_CHECK(result.skipped == ((step + 1) % 4 != 0));
                     }
                     first = state_of(strategy);
                     trained = true;
                     while (!joined && swarm::Clock::now() < limit) strategy.step(nothing(runs[0]));
                   },
                   [&](Strategy& strategy) {
                     while (!trained && swarm::Clock::now() < limit)
                       std::this_thread::sleep_for(std::chrono::milliseconds(10));
                     RANK_CHECK(strategy.step(tiny_input(runs[1], 0, 0)).skipped);
                     late = state_of(strategy);
                     RANK_CHECK(strategy.scalars().at("optimizer_steps") == 2);
                     RANK_CHECK(strategy.scalars().at("own").at("epoch") == 2);
                     joined = true;
                   }});
  for (const auto& [name, values] : first)
    if (!name.starts_with("reducer/")) CHECK(late.at(name) == values);
}

TEST_CASE("peers that start together with different values have equal ones after their first update") {
  at::set_num_threads(1);
  for (int round = 0; round < 3; ++round) {
    const int port = free_port();
    std::vector<TinyRun> runs;
    std::vector<PeerBody> bodies;
    std::vector<std::map<std::string, std::vector<float>>> states(3);
    for (int i = 0; i < 3; ++i) {
      runs.push_back(peer_run(36, port, i));
      runs.back().options["wait_for_peers"] = 20;
      runs.back().options["average_state_every"] = 0;
      shift_initial_values(runs.back(), static_cast<float>(i));
      bodies.push_back([&, i](Strategy& strategy) {
        RANK_CHECK(!strategy.step(tiny_input(runs[0], 0, i)).skipped);
        states[static_cast<size_t>(i)] = state_of(strategy);
      });
    }
    run_peers(runs, bodies);
    for (const auto& [name, values] : states[0])
      if (name.starts_with("param/"))
        for (const auto& other : states) CHECK(other.at(name) == values);
  }
}

TEST_CASE("a peer with another target is told to the user once, and does not train with this one") {
  at::set_num_threads(1);
  const int port = free_port();
  std::vector<TinyRun> runs = {peer_run(12, port, 0), peer_run(24, port, 1)};
  std::vector<std::string> notes;
  keep_notes(runs[1], notes);
  std::atomic<bool> done = false;
  const auto limit = swarm::Clock::now() + std::chrono::seconds(20);
  run_peers(runs, {[&](Strategy& strategy) {
                     strategy.step(tiny_input(runs[0], 0, 0));
                     while (!done && swarm::Clock::now() < limit)
                       std::this_thread::sleep_for(std::chrono::milliseconds(5));
                   },
                   [&](Strategy& strategy) {
                     for (int64_t at = 0; at < 4; ++at)
                       RANK_CHECK(strategy.step(tiny_input(runs[1], 0, at)).skipped == (at % 2 == 0));
                     done = true;
                   }});
  CHECK(notes_with(notes, "has strategy.target_batch_size = 12, and this one 24; it is ignored") == 1);
  CHECK(notes_with(notes, "loaded the state") == 0);
}

TEST_CASE("an update without the other peers is told to the user") {
  at::set_num_threads(1);
  const int port = free_port();
  std::vector<TinyRun> runs = {peer_run(1200, port, 0), peer_run(1200, port, 1)};
  for (auto& run : runs) run.options["matchmaking_time"] = 0.3;
  std::vector<std::string> notes;
  keep_notes(runs[0], notes);
  std::atomic<bool> begun = false, joined = false, done = false;
  const auto limit = swarm::Clock::now() + std::chrono::seconds(30);
  run_peers(runs, {[&](Strategy& strategy) {
                     for (; !joined && swarm::Clock::now() < limit; begun = true) strategy.step(nothing(runs[0]));
                     bool updated = false;
                     for (int64_t at = 0; at < 200 && !updated; ++at)
                       updated = !strategy.step(tiny_input(runs[0], 0, at)).skipped;
                     done = true;
                     RANK_CHECK(updated);
                   },
                   [&](Strategy& strategy) {
                     while (!begun && swarm::Clock::now() < limit)
                       std::this_thread::sleep_for(std::chrono::milliseconds(5));
                     strategy.step(tiny_input(runs[1], 0, 0));
                     joined = true;  // from now on it does nothing
                     while (!done && swarm::Clock::now() < limit)
                       std::this_thread::sleep_for(std::chrono::milliseconds(5));
                   }});
  CHECK(notes_with(notes,
                   "update 1 has this peer's gradients only: no other peer joined within 0.3 s "
                   "(matchmaking_time)") == 1);
}

TEST_CASE("gradients of an update that was skipped do not count in the next one") {
  at::set_num_threads(1);
  TinyRun run = peer_run(12, 0, 0);
  std::vector<std::string> notes;
  keep_notes(run, notes);
  std::map<std::string, std::vector<float>> expected, after_skip;
  run_peers({run}, {[&](Strategy& strategy) {
              strategy.step(tiny_input(run, 0, 1));
              expected = state_of(strategy);
            }});
  CHECK(notes_with(notes, "its gradients are dropped") == 0);
  run_peers({run}, {[&](Strategy& strategy) {
              Skips skips;
              strategy.observe(&skips);
              RANK_CHECK(strategy.step(tiny_input(run, 0, 0)).skipped);
              strategy.observe(nullptr);
              RANK_CHECK(!strategy.step(tiny_input(run, 0, 1)).skipped);
              after_skip = state_of(strategy);
            }});
  CHECK(after_skip == expected);
  CHECK(notes_with(notes, "update 1 was not made, because the step was skipped") == 1);
}

TEST_CASE("the schedule goes on after a checkpoint of another strategy") {
  at::set_num_threads(1);
  const TinyRun run = peer_run(12, 0, 0);
  run_peers({run}, {[&](Strategy& strategy) {
              auto scalars = strategy.scalars();
              scalars.erase("own");
              scalars["optimizer_steps"] = 7;
              strategy.load_scalars(scalars);
              strategy.state_loaded();
              auto input = tiny_input(run, 0, 0);
              input.lr_factor_at = [](int64_t update) { return 1.0 / static_cast<double>(update); };
              RANK_CHECK(strategy.step(input).lr_factor == 1.0 / 8);
              RANK_CHECK(strategy.scalars().at("own").at("epoch") == 8);
            }});
}

TEST_CASE("a checkpoint between two updates continues with equal bits") {
  at::set_num_threads(1);
  const auto run = peer_run(36, 0, 0);  // 3 steps for an update
  std::map<std::string, std::vector<float>> expected, resumed;
  json scalars;
  std::map<std::string, torch::Tensor> saved;
  const auto step = [&](Strategy& strategy, int64_t at) { strategy.step(tiny_input(run, 0, at)); };
  run_peers({run}, {[&](Strategy& strategy) {
              for (int64_t at = 0; at < 5; ++at) step(strategy, at);
              scalars = strategy.scalars();
              for (const auto& tensor : strategy.state()) saved[tensor.name] = tensor.local.clone();
              for (int64_t at = 5; at < 9; ++at) step(strategy, at);
              expected = state_of(strategy);
            }});
  CHECK(scalars.at("own") == json{{"epoch", 1}, {"weight", 24.0 * 16}, {"samples", 24}});
  run_peers({run}, {[&](Strategy& strategy) {
              for (auto& tensor : strategy.state()) tensor.local.copy_(saved.at(tensor.name));
              strategy.load_scalars(scalars);
              strategy.state_loaded();
              for (int64_t at = 5; at < 9; ++at) step(strategy, at);
              resumed = state_of(strategy);
            }});
  CHECK(resumed == expected);
}

TEST_CASE("with local updates each step updates, and parameters are averaged") {
  at::set_num_threads(1);
  const int port = free_port();
  std::vector<TinyRun> runs = {peer_run(24, port, 0), peer_run(24, port, 1)};
  std::vector<std::map<std::string, std::vector<float>>> states(2);
  std::vector<PeerBody> bodies;
  for (size_t i = 0; i < 2; ++i) {
    runs[i].options["use_local_updates"] = true;
    runs[i].options["wait_for_peers"] = 20;
    bodies.push_back([&, i](Strategy& strategy) {
      for (int64_t at = 0; at < 4; ++at)
        RANK_CHECK(!strategy.step(tiny_input(runs[0], 0, 2 * at + static_cast<int64_t>(i))).skipped);
      states[i] = state_of(strategy);
    });
  }
  run_peers(runs, bodies);
  for (const auto& [name, values] : states[0])
    if (name.starts_with("param/")) CHECK(states[1].at(name) == values);
}

TEST_CASE("the learning rate follows the updates of the swarm") {
  at::set_num_threads(1);
  run_peers({peer_run(24, 0, 0)}, {[&](Strategy& strategy) {
              const TinyRun run = peer_run(24, 0, 0);
              for (int64_t at = 0; at < 6; ++at) {
                auto input = tiny_input(run, 0, at);
                input.lr_factor_at = [](int64_t update) { return 1.0 / static_cast<double>(update); };
                const auto result = strategy.step(input);
                RANK_CHECK(result.lr_factor == 1.0 / static_cast<double>(at / 2 + 1));
              }
            }});
}

TEST_CASE("notes say what is not read and not predicted") {
  const TinyRun run = peer_run(24, 0, 0);
  const ModelSpec spec = tiny_spec(run);
  const auto notes = [&] { return find_strategy("hivemind")->entry->notes(tiny_job(run, spec)); };
  CHECK(notes_with(notes(), "predicted step times are those of a peer alone") == 1);
  CHECK(notes_with(notes(), "PL_INITIAL_PEERS") == 0);
  ::setenv("PL_INITIAL_PEERS", "10.0.0.1:7", 1);
  CHECK(notes_with(notes(), "the variable PL_INITIAL_PEERS is not read: set strategy.initial_peers") == 1);
  ::unsetenv("PL_INITIAL_PEERS");
}

TEST_CASE("jobs that are no peers are refused") {
  TinyRun run = peer_run(24, 0, 0);
  const auto refusal = [](const TinyRun& given) {
    const ModelSpec spec = tiny_spec(given);
    const Job job = tiny_job(given, spec);
    return find_strategy("hivemind")->entry->refuse(job).value_or("");
  };
  CHECK(refusal(run).empty());
  run.world_size = 2;
  CHECK_THAT(refusal(run), ContainsSubstring("one rank, not 2: set devices.devices = 1"));
  run.world_size = 1;
  run.options["average_opt_statistics"] = {"exp_avg_sq"};
  CHECK(refusal(run).empty());
  run.options["average_opt_statistics"] = {"momentum"};
  CHECK_THAT(refusal(run), ContainsSubstring("has no state `momentum`"));
}
