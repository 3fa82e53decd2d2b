// Bagua's algorithms: codes, parity where they are exact, the state of neighbours, convergence, bytes on the wire and in memory.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <set>

#include "strategies/reducers/bagua_plan.hpp"
#include "strategies/reducers/min_max_codec.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/recorded_traffic.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

TinyRun bagua(const std::string& algorithm, json options = json::object()) {
  TinyRun run;
  run.strategy = "bagua";
  options["algorithm"] = algorithm;
  options["bucket_cap_mb"] = 0.02;
  if (!options.contains("hierarchical")) options["hierarchical"] = false;
  run.options = options;
  return run;
}

/// Sends moments from step `warmup + 1` on.
TinyRun qadam(int64_t warmup) {
  TinyRun run = bagua("qadam", {{"warmup_steps", warmup}});
  run.optimizer.kind = OptimizerConfig::Kind::adam;
  return run;
}

std::vector<TinyRun> all_algorithms() {
  return {bagua("bytegrad"),
          qadam(2),
          bagua("decentralized"),
          bagua("decentralized", {{"peer_selection_mode", "shift_one"}}),
          bagua("low_precision_decentralized"),
          bagua("async", {{"sync_interval_ms", 0}})};
}

TinyRun same_in_ddp(TinyRun run) {
  run.strategy = "ddp";
  run.options = {{"bucket_cap_mb", 0.02}};
  return run;
}

std::string refusal(const TinyRun& run) {
  const auto spec = tiny_spec(run);
  return find_strategy("bagua")->entry->refuse(tiny_job(run, spec)).value_or("");
}

}  // namespace

TEST_CASE(
    "MinMaxUInt8 has known codes, keeps values within half a step, and does not hide values that are not finite") {
  const auto back = [](const torch::Tensor& values) { return decode_min_max(encode_min_max(values), values.numel()); };
  const auto exact = torch::tensor({-1.0f, 0.0f, 1.0f, 2.0f});
  const auto message = encode_min_max(exact);
  CHECK(message.numel() == 64);
  CHECK(message.narrow(0, 32, 4).equal(torch::tensor({0, 85, 170, 255}, torch::kUInt8)));
  CHECK(torch::allclose(back(exact), exact, 1e-5, 1e-6));
  CHECK(torch::allclose(back(torch::zeros({40})), torch::zeros({40}), 0, 1e-6));
  CHECK(torch::allclose(back(torch::full({5}, 3.0f)), torch::full({5}, 3.0f), 1e-3, 0));
  const auto random = torch::randn({1000}, at::make_generator<at::CPUGeneratorImpl>(7));
  const double step = (random.max() - random.min()).item<double>() / 255;
  CHECK((back(random) - random).abs().max().item<double>() <= 0.51 * step);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    CHECK_FALSE(back(torch::tensor({1.0f, bad})).isfinite().all().item<bool>());
}

TEST_CASE("bagua's gradient_allreduce equals ddp bit for bit", "[parity]") {
  at::set_num_threads(1);
  TinyRun run = bagua("gradient_allreduce");
  run.world_size = GENERATE(1, 2, 4);
  const auto result = train_tiny(run), expected = train_tiny(same_in_ddp(run));
  CHECK(result.losses == expected.losses);
  CHECK(result.state == expected.state);
}

TEST_CASE("bytegrad's sums differ from ddp's by rounding to 8 bits, with any number of ranks and uneven rows",
          "[parity]") {
  at::set_num_threads(1);
  TinyRun run = bagua("bytegrad", {{"hierarchical", GENERATE(false, true)}});
  run.short_last = 7;
  const auto expected = train_tiny(same_in_ddp(run));
  for (const int ranks : {1, 2, 3, 4}) {
    INFO(run.options.dump() << ", " << ranks << " ranks");
    run.world_size = ranks;
    run.local_size = ranks == 4 ? 2 : 0;
    const auto result = train_tiny(run);
    CHECK_THAT(result.losses[0], WithinRel(expected.losses[0], 1e-6));
    CHECK_THAT(result.norms[0], WithinRel(expected.norms[0], 0.02));
    CHECK_THAT(result.losses.back(), WithinRel(expected.losses.back(), 0.02));
  }
}

TEST_CASE("without averaging, bytegrad's gradients are the number of ranks times as large") {
  at::set_num_threads(1);
  TinyRun run = bagua("bytegrad");
  run.world_size = 4;
  run.steps = 1;
  const auto mean = train_tiny(run).norms[0];
  run.options["average"] = false;
  CHECK_THAT(train_tiny(run).norms[0], WithinRel(4 * mean, 0.01));
}

TEST_CASE("during its warm-up qadam equals Adam under ddp bit for bit", "[parity]") {
  at::set_num_threads(1);
  TinyRun run = qadam(6);
  run.world_size = GENERATE(1, 2, 4);
  const auto result = train_tiny(run), expected = train_tiny(same_in_ddp(run));
  CHECK(result.losses == expected.losses);
  for (const auto& [name, values] : expected.state) CHECK(result.state.at(name) == values);
}

TEST_CASE("the step that ends qadam's warm-up changes no moment, and later ones keep the second moment", "[parity]") {
  at::set_num_threads(1);
  const auto moments = [](int64_t steps) {
    TinyRun run = qadam(3);
    run.world_size = 2;
    run.steps = steps;
    std::map<std::string, std::vector<float>> first, second;
    for (const auto& [name, values] : train_tiny(run).state) {
      const bool is_second = name.find("exp_avg_sq") != std::string::npos;
      if (is_second) second[name] = values;
      if (!is_second && name.find("exp_avg") != std::string::npos) first[name] = values;
    }
    REQUIRE(!first.empty());
    REQUIRE(!second.empty());
    return std::pair(first, second);
  };
  const auto two = moments(2), three = moments(3), five = moments(5);
  CHECK(three == two);
  CHECK(five.second == two.second);
  CHECK(five.first != two.first);
}

TEST_CASE("qadam's moments are those of the mean gradient, up to their rounding to 8 bits", "[parity]") {
  at::set_num_threads(1);
  TinyRun run = qadam(3);
  run.steps = 6;
  run.short_last = 7;
  std::vector<double> of_one;
  for (const int ranks : {1, 2, 3, 4}) {
    INFO(ranks << " ranks");
    run.world_size = ranks;
    const auto result = train_tiny(run);
    if (of_one.empty()) of_one = result.losses;
    for (size_t i = 0; i < of_one.size(); ++i) CHECK_THAT(result.losses[i], WithinRel(of_one[i], 0.02));
  }
}

TEST_CASE("qadam needs adam, and a precision without a loss scale") {
  TinyRun run = qadam(5);
  run.options["average"] = false;
  CHECK_THAT(refusal(run), ContainsSubstring("remove average = false"));
  CHECK_THAT(refusal(qadam(1)), ContainsSubstring("warmup_steps = 1: qadam needs at least 2"));
  run = qadam(5);
  run.precision = "16-mixed";
  CHECK_THAT(refusal(run), ContainsSubstring("bf16-mixed"));
  run.optimizer.kind = OptimizerConfig::Kind::adamw;
  CHECK_THAT(refusal(run), ContainsSubstring("QAdamOptimizer is optimizer.name = \"adam\""));
}

TEST_CASE("async averages in each step if the interval is 0, and keeps the updates since the copy", "[parity]") {
  // Ranks that do not train have the mean after two steps: one takes the copies, and the next one applies their mean.
  at::set_num_threads(1);
  TinyRun run = bagua("async", {{"sync_interval_ms", 0}});
  run.optimizer.kind = OptimizerConfig::Kind::sgd;
  run.optimizer.lr = 0;
  run.optimizer.weight_decay = 0;
  run.world_size = 3;
  run.steps = 3;
  std::mutex mutex;
  std::array<std::vector<float>, 3> values;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      const auto parameter = strategy.parameters().front().local;
      parameter.add_(static_cast<double>(world.rank));
      strategy.state_loaded();
      for (int64_t step = 0; step < run.steps; ++step) {
        strategy.step(tiny_input(run, world.rank, step));
        if (step == 1) parameter.add_(0.5);  // an update since the copy of this step
        std::lock_guard lock(mutex);
        values[static_cast<size_t>(world.rank)].push_back(parameter[0].item<float>());
      }
    });
  });
  const float first = values[0][0];
  for (size_t rank = 0; rank < 3; ++rank) {
    INFO(rank);
    CHECK_THAT(values[rank][0], WithinRel(first + static_cast<float>(rank), 1e-5f));
    CHECK_THAT(values[rank][1], WithinRel(first + 1.5f, 1e-5f));
    CHECK_THAT(values[rank][2], WithinRel(first + 1.5f, 1e-5f));
  }
}

TEST_CASE("with one rank, or during its warm-up, async equals ddp bit for bit", "[parity]") {
  at::set_num_threads(1);
  TinyRun run = bagua("async");
  const auto alone = train_tiny(run), expected = train_tiny(same_in_ddp(run));
  CHECK(alone.losses == expected.losses);
  CHECK(alone.state == expected.state);
  run.options["warmup_steps"] = 6;  // all steps
  run.world_size = 2;
  CHECK(train_tiny(run).losses == train_tiny(same_in_ddp(run)).losses);
}

TEST_CASE("with SGD, the mean of decentralized replicas after a step is ddp's model", "[parity]") {
  at::set_num_threads(1);
  TinyRun run = bagua("decentralized", {{"peer_selection_mode", GENERATE(as<std::string>(), "all", "shift_one")}});
  run.optimizer.kind = OptimizerConfig::Kind::sgd;
  run.world_size = 4;
  run.steps = 1;
  const auto result = train_tiny(run), expected = train_tiny(same_in_ddp(run));
  for (const auto& [name, values] : expected.state) {
    INFO(name);
    const auto& own = result.state.at(name);
    const auto& others = result.state.at("replica/" + name);  // [ranks above 0, elements]
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      double sum = own[i];
      for (size_t rank = 0; rank < 3; ++rank) sum += others[rank * values.size() + i];
      worst = std::max(worst, std::abs(sum / 4 - values[i]));
    }
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("hierarchical decentralized ranks have the mean of all nodes, and those of a node are equal") {
  at::set_num_threads(1);
  TinyRun run = bagua("decentralized", {{"peer_selection_mode", GENERATE(as<std::string>(), "all", "shift_one")},
                                        {"hierarchical", true}});
  run.optimizer.kind = OptimizerConfig::Kind::sgd;
  run.optimizer.lr = 0;
  run.optimizer.weight_decay = 0;
  run.world_size = 4;
  run.local_size = 2;
  std::mutex mutex;
  std::array<float, 4> values{};
  float first = 0;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      const auto parameter = strategy.parameters().front().local;
      if (world.rank == 0) first = parameter[0].item<float>();
      parameter.add_(static_cast<double>(world.rank));
      strategy.state_loaded();
      strategy.step(tiny_input(run, world.rank, 0));
      std::lock_guard lock(mutex);
      values[static_cast<size_t>(world.rank)] = parameter[0].item<float>();
    });
  });
  for (const float value : values) CHECK_THAT(value, WithinRel(first + 1.5f, 1e-5f));
}

TEST_CASE("shift_one pairs each rank with one of the other half, and with all of them in turn", "[recording]") {
  CHECK_THAT(refusal([] {
               TinyRun run = bagua("decentralized", {{"peer_selection_mode", "shift_one"}});
               run.world_size = 3;
               return run;
             }()),
             ContainsSubstring("an even number"));
  // Ranks without gradients average only. After two exchanges among four ranks each has the mean of all.
  at::set_num_threads(1);
  TinyRun run = bagua("decentralized", {{"peer_selection_mode", "shift_one"}});
  run.optimizer.kind = OptimizerConfig::Kind::sgd;
  run.optimizer.lr = 0;
  run.optimizer.weight_decay = 0;
  run.world_size = 4;
  run.steps = 2;
  std::mutex mutex;
  std::map<int, float> values;
  float mean = 0;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (auto& parameter : strategy.parameters()) parameter.local.add_(static_cast<double>(world.rank));
      strategy.state_loaded();
      const float before = strategy.parameters().front().local[0].item<float>();
      for (int64_t step = 0; step < run.steps; ++step) strategy.step(tiny_input(run, world.rank, step));
      std::lock_guard lock(mutex);
      mean += before / 4;
      values[world.rank] = strategy.parameters().front().local[0].item<float>();
    });
  });
  for (const auto& [rank, value] : values) CHECK_THAT(value, WithinRel(mean, 1e-5f));
}

TEST_CASE("neighbours' copies of published parameters have the same bits as what a rank published") {
  at::set_num_threads(1);
  TinyRun run = bagua("low_precision_decentralized");
  run.world_size = 3;
  const auto state = train_tiny(run).state;
  const auto row = [&](const std::string& name, size_t rank) {
    const auto& all = state.at("reducer/" + name);
    const size_t each = all.size() / 3;
    return std::vector<float>(all.begin() + static_cast<ptrdiff_t>(rank * each),
                              all.begin() + static_cast<ptrdiff_t>((rank + 1) * each));
  };
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(row("left/0", rank) == row("published/0", (rank + 2) % 3));
    CHECK(row("right/0", rank) == row("published/0", (rank + 1) % 3));
  }
  CHECK(row("published/0", 0) != row("published/0", 1));
}

TEST_CASE("with Bagua's algorithms, a batch that is repeated is learned") {
  at::set_num_threads(1);
  auto run = GENERATE(from_range(all_algorithms()));
  run.world_size = 2;
  if (run.options["algorithm"] == "qadam") run.options["warmup_steps"] = 20;
  INFO(run.options.dump());
  std::vector<double> losses;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < 60; ++step) {
        const auto outcome = strategy.step(tiny_input(run, world.rank, 0));
        if (world.rank == 0) losses.push_back(outcome.loss);
      }
    });
  });
  CHECK(losses.back() < 0.5 * losses.front());
}

TEST_CASE("the traffic of Bagua's algorithms is as predicted", "[recording]") {
  at::set_num_threads(1);
  auto runs = all_algorithms();
  for (const char* algorithm : {"bytegrad", "decentralized", "low_precision_decentralized"})
    runs.push_back(bagua(algorithm, {{"hierarchical", true}}));
  for (auto run : runs)
    for (const int ranks : {1, 2, 4}) {
      run.world_size = ranks;
      run.local_size = ranks == 4 ? 2 : 0;
      run.steps = 4;
      run.global_batch = ranks;
      INFO(run.options.dump() << ", " << ranks << " ranks");
      const auto claimed = claimed_traffic(run);
      const bool warms_up = run.options["algorithm"] == "qadam" || run.options["algorithm"] == "async";
      const auto of_ranks = record_traffic(run);
      const auto spec = tiny_spec(run);
      const auto node = static_cast<size_t>(groups_of(bagua_options().read(run.options), tiny_job(run, spec)).node);
      for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
        auto expected = claimed;  // of the ranks that send most: the first ones of nodes
        if (rank % node != 0) std::erase_if(expected, [](const Row& row) { return row.stride > 1; });
        for (size_t step = warms_up ? 2 : 0; step < of_ranks[rank].size(); ++step)
          CHECK(of_ranks[rank][step].strategy == expected);
      }
    }
}

TEST_CASE("the memory of Bagua's algorithms is as predicted", "[memory]") {
  at::set_num_threads(1);
  auto runs = all_algorithms();
  for (const char* algorithm : {"bytegrad", "decentralized", "low_precision_decentralized"})
    runs.push_back(bagua(algorithm, {{"hierarchical", true}}));
  for (auto run : runs) {
    run.local_size = 1;
    run.vocab = 503;
    run.loss_chunk_tokens = 128;
    run.dim = 128;
    run.n_layers = 2;
    run.world_size = 2;
    run.options["bucket_cap_mb"] = 0.5;
    INFO(run.options.dump());
    const auto spec = tiny_spec(run);
    const auto claim = find_strategy("bagua")->entry->memory(tiny_job(run, spec));
    const auto measured = measure_memory(run);
    CHECK(measured.between_steps == claim.between_steps);
    CHECK_THAT(static_cast<double>(claim.total()), WithinRel(static_cast<double>(measured.peak), 0.03));
  }
}
