// The sums of compressing comm hooks equal those of PyTorch's (make_reference.py), and their invariants hold.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>

#include <fstream>

#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/base_reducer.hpp"
#include "strategies/reducers/built_in.hpp"
#include "strategies/reducers/power_sgd_plan.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;
using nlohmann::json;

namespace {

const std::vector<std::vector<int64_t>> reference_shapes = {{12, 20}, {7}, {9, 16, 2}, {5, 3}};
constexpr int reference_steps = 4, reference_stride = 7;

/// A check on the thread of a rank.
template <typename... Arguments>
void check_rank(bool holds, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (!holds) throw std::runtime_error(fmt::format(text, std::forward<Arguments>(arguments)...));
}

/// The gradients that make_reference.py gives to a rank.
torch::Tensor gradient_of(int64_t total, int rank, int step) {
  const auto i = torch::arange(total);
  return (((i * i * 37 + i * (rank * 11 + 5) + rank * 101 + step * 53) % 97) - 48).to(torch::kFloat32) / 50;
}

struct OneBucket {
  Reducer::Bucket bucket;
  std::shared_ptr<Reducer> hook;

  OneBucket(World& world, const std::string& name, const json& options, const std::vector<std::vector<int64_t>>& shapes,
            DType wire = DType::float32) {
    int64_t total = 0;
    for (const auto& shape : shapes) {
      bucket.items.push_back({.offset = total, .shape = shape});
      total += c10::multiply_integers(shape);
    }
    bucket.gradients = torch::zeros({total});
    bucket.parameters = torch::zeros({total});
    ReducerPlan plan{.name = name, .options = with_defaults(find_comm_hook(name)->options, options), .wire = wire};
    hook = make_reducer(world, plan, Job());
    hook->prepare({bucket}, torch::dtype(torch::kFloat32),
                  {.steps = [] { return int64_t{0}; },
                   .loss_scale = [] { return 1.0; },
                   .share = [&world] { return 1.0 / world.size; }});
  }
  /// The sum of `own` over the ranks, as the hook makes it.
  torch::Tensor reduce(const torch::Tensor& own) {
    bucket.gradients.copy_(own);
    hook->begin(0);
    hook->finish(0);
    return bucket.gradients;
  }
};

/// The named tensor of the hook's state.
torch::Tensor kept(OneBucket& one, const std::string& name) {
  for (const auto& piece : one.hook->state())
    if (piece.name == name) return piece.local;
  return {};
}

}  // namespace

TEST_CASE("compressing comm hooks make the same sums as PyTorch's") {
  at::set_num_threads(1);
  const json all = json::parse(std::ifstream(RUNNER_SOURCE_DIR "/tests/reducers/reference/sums.json"));
  for (const auto& [label, expected] : all.items()) {
    const auto name = label.substr(0, label.find(' '));
    run_ranks(2, [&](World& world) {
      OneBucket one(world, name, expected.at("options"), reference_shapes);
      for (int step = 0; step < reference_steps; ++step) {
        // PyTorch divides sums by the number of ranks. Here gradients are those of the mean over the global batch.
        const auto sum = one.reduce(gradient_of(one.bucket.gradients.numel(), world.rank, step) / world.size);
        const std::vector<double> wanted = expected.at("sums")[static_cast<size_t>(step)];
        double worst = 0;
        for (size_t i = 0; i < wanted.size(); ++i)
          worst = std::max(worst, std::abs(sum[static_cast<int64_t>(i) * reference_stride].item<double>() - wanted[i]));
        check_rank(worst < 2e-5, "{}, step {}: {}", label, step, worst);
      }
    });
  }
}

TEST_CASE("8-bit codes: known values, constant and empty rows, and values that are not finite") {
  at::set_num_threads(1);
  run_ranks(1, [](World& world) {
    // s = 3 / 255 and z = 85, so the codes are 0, 85, 170 and 255
    OneBucket one(world, "quantization_pertensor_hook", json::object(), {{4}});
    const auto exact = torch::tensor({-1.0f, 0.0f, 1.0f, 2.0f});
    check_rank(torch::allclose(one.reduce(exact), exact, 0, 1e-6), "known values");
    check_rank(one.reduce(torch::zeros({4})).equal(torch::zeros({4})), "zeros");
    check_rank(torch::allclose(one.reduce(torch::full({4}, 3.0f)), torch::full({4}, 3.0f), 1e-6, 0), "a constant");
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
      check_rank(!one.reduce(torch::tensor({1.0f, bad, 0.0f, 2.0f})).isfinite().all().item<bool>(), "not finite");
    OneBucket rows(world, "quantization_perchannel_hook", json::object(), {{1024}});
    auto halves = torch::cat({torch::full({512}, 100.0f), torch::full({512}, 0.001f)});
    check_rank(torch::allclose(rows.reduce(halves), halves, 1e-6, 0), "each row has a scale of its own");
  });
}

TEST_CASE("an 8-bit sum differs by at most half a step of each rank") {
  at::set_num_threads(1);
  run_ranks(4, [](World& world) {
    OneBucket one(world, "quantization_pertensor_hook", json::object(), {{1000}});
    auto exact = torch::zeros({1000});
    double step = 0;
    for (int rank = 0; rank < world.size; ++rank) {
      const auto gradient = gradient_of(1000, rank, 3);
      exact.add_(gradient);
      step += (gradient.max() - gradient.min()).item<double>() / 255;
    }
    const auto sum = one.reduce(gradient_of(1000, world.rank, 3));
    check_rank((sum - exact).abs().max().item<double>() <= step / 2 + 1e-6, "error of the sum");
  });
}

TEST_CASE("what PowerSGD's ranks keep is what their sum lacks, and a sum of low rank is exact") {
  at::set_num_threads(1);
  run_ranks(3, [](World& world) {
    const json options = {{"start_powerSGD_iter", 0}, {"matrix_approximation_rank", 2}};
    OneBucket one(world, "powerSGD_hook", options, {{12, 20}});
    auto lacking = torch::zeros({240});
    for (int step = 0; step < 4; ++step) {
      auto exact = lacking;
      for (int rank = 0; rank < world.size; ++rank) exact = exact + gradient_of(240, rank, step);
      const auto sum = one.reduce(gradient_of(240, world.rank, step));
      lacking = kept(one, "reducer/error/0").clone();
      std::vector<at::Tensor> total{lacking};
      world.group->allreduce(total, {c10d::ReduceOp::SUM})->wait();
      check_rank(torch::allclose(exact - sum, lacking, 1e-4, 1e-4), "step {}", step);
    }
    OneBucket low(world, "powerSGD_hook", options, {{12, 20}});
    const auto outer = torch::outer(torch::arange(12).to(torch::kFloat32), torch::arange(20).to(torch::kFloat32)) / 100;
    const auto sum = low.reduce(outer.reshape({-1}) * (world.rank + 1));
    check_rank(torch::allclose(sum, outer.reshape({-1}) * 6, 1e-4, 1e-4), "a matrix of rank 1");
    check_rank(low.reduce(torch::zeros({240})).abs().max().item<double>() < 1e-4, "zeros after it");
    OneBucket zeros(world, "powerSGD_hook", options, {{12, 20}});
    check_rank(zeros.reduce(torch::zeros({240})).equal(torch::zeros({240})), "zeros only");
  });
}

TEST_CASE("a gradient of one rank that is not finite reaches all ranks, and PowerSGD keeps what it had") {
  at::set_num_threads(1);
  run_ranks(2, [](World& world) {
    const json options = {{"start_powerSGD_iter", 0}};
    OneBucket one(world, "powerSGD_hook", options, {{12, 20}}), other(world, "powerSGD_hook", options, {{12, 20}});
    for (auto* each : {&one, &other}) each->reduce(gradient_of(240, world.rank, 0));
    auto bad = gradient_of(240, world.rank, 1);
    if (world.rank == 1) bad[17] = std::numeric_limits<float>::infinity();
    check_rank(!one.reduce(bad).isfinite().all().item<bool>(), "on rank {}", world.rank);
    check_rank(kept(one, "reducer/error/0").equal(kept(other, "reducer/error/0")), "errors");
    const auto after = one.reduce(gradient_of(240, world.rank, 2)).clone();
    check_rank(torch::allclose(after, other.reduce(gradient_of(240, world.rank, 2)), 1e-3, 1e-3), "the next step");
  });
}

TEST_CASE("what PowerSGD keeps follows a loss scale that changes") {
  at::set_num_threads(1);
  run_ranks(2, [](World& world) {
    double scale = 1;
    const json options = {{"start_powerSGD_iter", 0}};
    OneBucket plain(world, "powerSGD_hook", options, {{12, 20}}), scaled(world, "powerSGD_hook", options, {{12, 20}});
    scaled.hook = make_reducer(
        world, {.name = "powerSGD_hook", .options = with_defaults(power_sgd_options().options(), options)}, Job());
    scaled.hook->prepare({scaled.bucket}, torch::dtype(torch::kFloat32),
                         {.steps = {}, .loss_scale = [&scale] { return scale; }, .share = {}});
    for (int step = 0; step < 4; ++step) {
      scale = step < 2 ? 1024 : 512;
      const auto gradient = gradient_of(240, world.rank, step);
      const auto wanted = plain.reduce(gradient).clone();
      check_rank(torch::allclose(scaled.reduce(gradient * scale) / scale, wanted, 1e-5, 1e-6), "step {}", step);
    }
  });
}

TEST_CASE("a matrix whose gradient was 0 for a step is compressed again after it") {
  at::set_num_threads(1);
  run_ranks(2, [](World& world) {
    for (const int rank : {1, 2, 3}) {
      const json options = {
          {"start_powerSGD_iter", 0}, {"matrix_approximation_rank", rank}, {"use_error_feedback", false}};
      OneBucket one(world, "powerSGD_hook", options, {{12, 20}});
      for (int step = 0; step < 2; ++step) one.reduce(torch::zeros({240}));
      const auto outer =
          torch::outer(torch::arange(1, 13).to(torch::kFloat32), torch::arange(1, 21).to(torch::kFloat32));
      const auto sum = one.reduce(outer.reshape({-1}));
      check_rank(torch::allclose(sum, 2 * outer.reshape({-1}), 1e-4, 1e-3), "rank {}", rank);
    }
  });
}

TEST_CASE("with a wrapper, factors that 16 bits cannot hold make a step that is skipped, and no later one") {
  at::set_num_threads(1);
  run_ranks(2, [](World& world) {
    const json options = {{"start_powerSGD_iter", 0}};
    // The norm of a column of P is above 65504, but its elements are not.
    OneBucket one(world, "powerSGD_hook", options, {{400, 20}}, DType::float16);
    const auto even = torch::full({8000}, 1000.0f);
    check_rank(torch::allclose(one.reduce(even), 2 * even, 1e-2, 0), "even");
    // Elements of P are below it, and one of Q is above.
    auto column = torch::zeros({400, 20});
    column.select(1, 3).fill_(3000.0f);
    check_rank(!one.reduce(column.reshape({-1})).isfinite().all().item<bool>(), "too large");
    for (int step = 0; step < 3; ++step)
      check_rank(one.reduce(even / 100).isfinite().all().item<bool>(), "step {} after it", step);
  });
}

TEST_CASE("8-bit codes hold gradients that are small parts of a mean over many ranks") {
  at::set_num_threads(1);
  run_ranks(1, [](World& world) {
    OneBucket one(world, "quantization_pertensor_hook", json::object(), {{4}});
    const auto tiny = torch::tensor({-1.0f, 0.0f, 1.0f, 2.0f}) * 1e-9f;
    check_rank(torch::allclose(one.reduce(tiny), tiny, 1e-5, 0), "1e-9");
  });
}
