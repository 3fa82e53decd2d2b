// The number of steps, compared with a loader that counts them.
#include "runner/train/planned_steps.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/selection/plan.hpp"

using namespace runner;

namespace {

struct Nothing : Dataset {
  int64_t samples;
  explicit Nothing(int64_t samples) : samples(samples) {}
  int64_t size() const override { return samples; }
  std::vector<BatchField> fields() const override { return {}; }
  int64_t weight(int64_t) const override { return 1; }
  void read(int64_t, HostBatch&, int64_t) const override {}
};

Recipe recipe() {
  Recipe recipe;
  recipe.train.micro_batch_size = 2;
  recipe.train.accumulate_grad_batches = AccumulationSchedule{{0, 1}};
  return recipe;
}

int64_t counted(const Recipe& recipe, int64_t samples, const DataPosition& start = {}) {
  Nothing data(samples);
  Loader loader(data, {.micro_batch_size = *recipe.train.micro_batch_size, .start = start});
  loader.set_batch_size_of_epoch([&](int64_t epoch) { return global_batch_size(recipe, 1, epoch); });
  int64_t steps = 0;
  StepBatch batch;
  do {
    loader.next(batch);
    ++steps;
  } while (batch.after.epoch < *recipe.train.max_epochs);
  return steps;
}

}  // namespace

TEST_CASE("max_epochs gives as many steps as the loader, also if the batch size changes between epochs") {
  for (const auto& schedule : {AccumulationSchedule{{0, 1}}, AccumulationSchedule{{0, 4}, {2, 1}},
                               AccumulationSchedule{{1, 3}, {2, 2}, {9, 1}}})
    for (int64_t samples : {1, 8, 23})
      for (int64_t epochs : {1, 2, 3, 5}) {
        auto asked = recipe();
        asked.train.accumulate_grad_batches = schedule;
        asked.train.max_epochs = epochs;
        CHECK(planned_steps(asked, 1, samples) == counted(asked, samples));
      }
  auto asked = recipe();
  asked.train.accumulate_grad_batches.reset();
  asked.train.global_batch_size = 12;
  asked.train.max_epochs = 3;
  CHECK(planned_steps(asked, 3, 25) == 9);
}

TEST_CASE("a training that continues has as many steps left as the loader, with its own batch size") {
  for (const auto& schedule : {AccumulationSchedule{{0, 1}}, AccumulationSchedule{{0, 4}, {2, 1}, {3, 2}}})
    for (const auto& position : {DataPosition{0, 6}, {0, 22}, {1, 0}, {1, 13}, {2, 8}, {3, 0}, {3, 17}}) {
      auto asked = recipe();
      asked.train.accumulate_grad_batches = schedule;
      asked.train.max_epochs = 4;
      CHECK(planned_steps(asked, 1, 23, {100, position}) == 100 + counted(asked, 23, position));
    }
}

TEST_CASE("nothing is left at the end of the last epoch, also of an epoch that became shorter") {
  auto asked = recipe();
  asked.train.max_epochs = 2;
  CHECK(planned_steps(asked, 1, 8, {50, {2, 0}}) == 50);
  CHECK(planned_steps(asked, 1, 8, {50, {5, 3}}) == 50);
  CHECK(planned_steps(asked, 1, 8, {50, {1, 20}}) == 50);
  CHECK(planned_steps(asked, 1, 8, {50, {0, 20}}) == 54);
  asked.train.max_steps = 51;
  CHECK(planned_steps(asked, 1, 8, {50, {0, 0}}) == 51);
  asked.run.fast_dev_run = 2;
  CHECK(planned_steps(asked, 1, 8, {50, {2, 0}}) == 52);
}

TEST_CASE("dropped short batches are no steps") {
  auto asked = recipe();
  asked.data.drop_last = true;
  asked.train.accumulate_grad_batches.reset();
  asked.train.global_batch_size = 12;
  asked.train.max_epochs = 3;
  CHECK(planned_steps(asked, 3, 25) == 6);
  CHECK(planned_steps(asked, 3, 25, {10, {1, 12}}) == 13);
}

TEST_CASE("the earliest limit applies") {
  auto asked = recipe();
  CHECK(planned_steps(asked, 1, 8) == INT64_MAX);
  asked.train.max_epochs = 3;
  CHECK(planned_steps(asked, 1, 8) == 12);
  asked.train.max_steps = 7;
  CHECK(planned_steps(asked, 1, 8) == 7);
  asked.run.fast_dev_run = 2;
  CHECK(planned_steps(asked, 1, 8) == 2);
}

TEST_CASE("a large number of epochs is counted without a loop over epochs") {
  auto asked = recipe();
  asked.train.max_epochs = 1'000'000'000'000;
  CHECK(planned_steps(asked, 1, 8) == 4'000'000'000'000);
  CHECK(planned_steps(asked, 1, INT64_MAX / 4) == INT64_MAX);
}
