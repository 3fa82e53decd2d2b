// A background update and the rank's thread use the same memory. ThreadSanitizer (scripts/nightly tsan) shows that every access of
// the rank is ordered by a wait.
#include "strategies/executor/background_update.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>

using namespace runner;

namespace {

/// Parameters of several units, two in each.
struct TrainedTensors {
  std::vector<torch::Tensor> values;
  std::vector<BackgroundUpdate::Unit> units;
  Optimizer optimizer{OptimizerConfig{.lr = 1e-2, .groups = {}}};

  explicit TrainedTensors(size_t count) {
    for (size_t u = 0; u < count; ++u) {
      units.push_back({.first = values.size(), .count = 2, .values = {}, .on_device = {}});
      for (int64_t numel : {1000, 37}) {
        values.push_back(torch::full({numel}, static_cast<float>(u + 1)));
        optimizer.add(values.back(), {});
      }
    }
  }
  std::vector<torch::Tensor> gradients(int step) const {
    std::vector<torch::Tensor> list;
    for (size_t i = 0; i < values.size(); ++i)
      list.push_back(torch::full_like(values[i], static_cast<float>(i) - 3.0f * static_cast<float>(step)));
    return list;
  }
};

/// Reads memory in this thread with code of this file, which ThreadSanitizer observes.
std::vector<float> read(const torch::Tensor& tensor) {
  const auto* begin = tensor.data_ptr<float>();
  return {begin, begin + tensor.numel()};
}

}  // namespace

TEST_CASE("after waiting for a unit, the rank reads and writes its values while later units are updated",
          "[offload][threads]") {
  at::set_num_threads(1);
  constexpr size_t count = 8;
  TrainedTensors background(count), foreground(count);
  std::vector<size_t> order;
  for (size_t u = count; u-- > 0;) order.push_back(u);
  int begun = 0, ended = 0;  // of the update's thread; read after wait_all()
  auto update = std::make_unique<BackgroundUpdate>(background.optimizer, torch::kCPU, background.units, order, "a test",
                                                   ShardEvents{.update_begins = [&](size_t) { ++begun; },
                                                               .update_ended = [&](size_t) { ++ended; },
                                                               .forward_begins = {},
                                                               .programmed = {}});
  for (int step = 0; step < 20; ++step) {
    update->start(background.gradients(step), 1.0, 2.0);
    foreground.optimizer.step(foreground.gradients(step), 1.0, 2.0);
    for (size_t u : order) {
      update->wait(u);
      for (size_t i = background.units[u].first; i < background.units[u].first + 2; ++i) {
        CHECK(read(background.values[i]) == read(foreground.values[i]));
        background.values[i].data_ptr<float>()[0] += 1;
        foreground.values[i].data_ptr<float>()[0] += 1;
      }
    }
    update->wait_all();
    CHECK(begun == static_cast<int>(count) * (step + 1));
    CHECK(ended == begun);
  }
  // It ends while units are being updated. After that, only this thread uses the memory.
  update->start(background.gradients(0), 1.0, 2.0);
  update.reset();
  CHECK(ended == begun);
  for (const auto& values : background.values) CHECK(std::isfinite(read(values)[0]));
}
