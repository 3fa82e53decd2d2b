// Metrics of validation from the sums over rows.
#include "runner/models/task_metrics.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/models/task_loss.hpp"

namespace runner {

namespace {

const TaskSpec numbers = {.loss = TaskSpec::Loss::mse, .outputs = 1};

double r2_of(const torch::Tensor& outputs, const torch::Tensor& target) {
  const auto sums = task_sums(numbers, outputs, target).to(torch::kFloat64).contiguous();
  const auto metrics = metrics_of(numbers, {sums.data_ptr<double>(), static_cast<size_t>(sums.numel())});
  REQUIRE(metrics.back().first == "val_r2");
  return metrics.back().second;
}

}  // namespace

TEST_CASE("val_r2 of targets that are all equal is 1 for exact outputs, and otherwise 0") {
  for (const int64_t rows : {1, 3, 7}) {
    const auto target = torch::full({rows, 1}, 0.1f);
    CHECK(r2_of(target, target) == 1);
    CHECK(r2_of(target + 0.5f, target) == 0);
  }
}

TEST_CASE("val_r2 keeps its digits if the targets are far from zero") {
  const auto target = torch::tensor({10000.0f, 10001.0f, 10002.0f, 10003.0f}).view({4, 1});
  const auto outputs = target + torch::tensor({0.5f, -0.5f, 0.5f, -0.5f}).view({4, 1});
  CHECK(std::abs(r2_of(outputs, target) - 0.8) < 1e-9);  // 1 - 4 * 0.25 / 5
}

}  // namespace runner
