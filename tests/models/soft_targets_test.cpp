// Soft targets of mixed rows, their cross entropy and its gradient are timm's (tests/data/make_mixing.py).
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "runner/base/files.hpp"
#include "runner/models/task_loss.hpp"
#include "strategies/engine/token_batch.hpp"

using namespace runner;

namespace {

torch::Tensor floats(const nlohmann::json& values) { return torch::tensor(values.get<std::vector<float>>()); }

}  // namespace

TEST_CASE("rank 11: soft targets and their loss are timm's", "[rank11][mixing]") {
  const auto table = nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/data/reference/mixing.json"));
  for (const auto& row : table.at("losses")) {
    const TaskSpec task{.outputs = 5, .label_smoothing = row.at("smoothing"), .mixes_labels = true};
    const auto labels = torch::tensor(row.at("labels").get<std::vector<int64_t>>());
    const auto targets = soft_targets(task, labels, labels.flip(0), torch::full({2}, row.at("share").get<float>()));
    CHECK(at::allclose(targets, floats(row.at("targets")).view({2, 5}), 1e-6, 1e-7));
    auto logits = floats(row.at("logits")).view({2, 5}).requires_grad_(true);
    const auto loss = soft_target_loss(logits, targets);
    CHECK(std::abs(loss.item<double>() - row.at("loss").get<double>()) < 1e-5);
    loss.backward();
    CHECK(at::allclose(logits.grad(), floats(row.at("gradient")).view({2, 5}), 1e-5, 1e-6));
  }
}

TEST_CASE("soft targets of one class are those of cross entropy, and rows that do not count add nothing") {
  torch::manual_seed(1);
  const TaskSpec task{.outputs = 4, .label_smoothing = 0.2, .mixes_labels = true};
  const auto labels = torch::tensor({int64_t{2}, ignored_target, int64_t{0}});
  const auto logits = torch::randn({3, 4});
  for (const float share : {1.0f, 0.4f}) {
    const auto loss = soft_target_loss(logits, soft_targets(task, labels, labels, torch::full({3}, share)));
    CHECK(at::allclose(loss, task_loss(task, logits, labels), 1e-5, 1e-6));
  }
}
