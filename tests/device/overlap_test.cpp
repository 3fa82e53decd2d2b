// Collectives of tensor axes beside matrix products, in simulated time: the sum of the gradient of a block's input takes no time of its own
// while the product for the gradient of a weight takes longer.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/contract/tensor_axis.hpp"
#include "tests/device/device_training.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/rank_check.hpp"

using namespace runner;
using namespace runner::simulated;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

/// Matrix products and collectives take time, other kernels do not.
constexpr Speeds speeds{.flops = 1e9, .wire_bytes = 1e8};

struct Timed {
  TinyResult result;
  TimeStatistics time;  ///< of the first device
};

Timed timed(const TinyRun& run, const Policy& policy = {}) {
  Simulation simulation(policy, speeds);
  Timed timed{.result = train_on_devices(run), .time = time_statistics(0)};
  CHECK(take_reports().empty());
  return timed;
}

TinyRun divided(bool sequence_parallel) {
  at::set_num_threads(1);
  auto run = device_run("single", 2);
  run.tensor = 2;
  run.sequence_parallel = sequence_parallel;
  run.n_layers = 2;
  run.steps = 1;
  run.dim = 64;
  return run;
}

/// Seconds of a collective of the hidden states of all tokens.
double stream_seconds(const TinyRun& run) {
  return static_cast<double>(run.global_batch * run.seq_len * run.dim * 4) / speeds.wire_bytes;
}

}  // namespace

TEST_CASE("a product that is left to the sum of the stream's gradients takes place beside it, in simulated time",
          "[device][tensor]") {
  const bool sequence_parallel = GENERATE(true, false);
  const int64_t out = GENERATE(8, 800);
  constexpr int64_t rows = 32, in = 48;
  const double product = 2.0 * rows * in * static_cast<double>(out) / speeds.flops,
               gather = sequence_parallel ? 4.0 * rows * in / speeds.wire_bytes : 0,
               sum = (sequence_parallel ? 1 : 2) * 4.0 * rows * in / speeds.wire_bytes;
  INFO("sequence parallel " << sequence_parallel << ", " << out << " columns");
  Simulation simulation({}, speeds);
  run_on_devices(2, [&](World& world) {
    const TensorAxis axis(world.group, {.ranks = 2, .rank = world.rank, .sequence_parallel = sequence_parallel});
    const auto stream =
        torch::ones({sequence_parallel ? rows / 2 : rows, in}, on_device(world.rank)).requires_grad_(true);
    const auto weight = torch::ones({out, in}, on_device(world.rank)).requires_grad_(true);
    const auto entered = axis.enter(stream, rows);
    const auto list = TensorAxis::during_sum(entered);
    RANK_CHECK(list && !TensorAxis::during_sum(entered) && !TensorAxis::during_sum(stream));
    const auto y = torch::ones({rows, out}, on_device(world.rank));
    list->leave(weight, [y, x = entered.detach()] { return at::mm(y.t(), x); });
    entered.sum().backward();
    RANK_CHECK(stream.grad().eq(2).all().cpu().item<bool>());
    RANK_CHECK(weight.grad().eq(rows).all().cpu().item<bool>());
  });
  CHECK(take_reports().empty());
  const auto time = time_statistics(0);
  CHECK_THAT(time.computed, WithinRel(product, 1e-6));
  CHECK_THAT(time.communicated, WithinRel(gather + sum, 1e-6));
  CHECK_THAT(time.exposed(), WithinAbs(gather + std::max(0.0, sum - product), 1e-6 * sum));
}

TEST_CASE("sums of the stream's gradients are hidden by the products for weights, in simulated time",
          "[device][tensor]") {
  const auto family = GENERATE(as<std::string>(), "gpt", "llama");
  for (const bool sequence_parallel : {true, false}) {
    auto run = divided(sequence_parallel);
    run.family = family;
    INFO(family << ", sequence parallel " << sequence_parallel);
    const auto plain = timed(run);
    const double stream = stream_seconds(run), sums = (sequence_parallel ? 1 : 2) * stream;
    const auto blocks = static_cast<double>(2 * run.n_layers);
    // The smallest of the products: dim x (dim / 2) of the queries.
    const double tokens = static_cast<double>(run.global_batch * run.seq_len);
    const double smallest = 2 * tokens * static_cast<double>(run.dim) * static_cast<double>(run.dim) / 2 / speeds.flops;
    const double hidden = plain.time.communicated - plain.time.exposed();
    INFO(fmt::format(
        "collectives {:.6f} s, exposed {:.6f} s, computed {:.6f} s; a sum {:.6f} s, the smallest product {:.6f} s",
        plain.time.communicated, plain.time.exposed(), plain.time.computed, sums, smallest));
    CHECK(hidden > 0.99 * blocks * std::min(sums, smallest));
    CHECK(hidden < 1.01 * blocks * sums);
    if (smallest >= sums) CHECK_THAT(hidden, WithinRel(blocks * sums, 1e-6));
    for (const auto& [name, policy] : extreme_policies()) {
      INFO(name);
      const auto other = timed(run, policy);
      CHECK(other.result.losses == plain.result.losses);
      CHECK(other.result.state == plain.result.state);
      CHECK_THAT(other.time.exposed(), WithinRel(plain.time.exposed(), 1e-9));
    }
  }
}
