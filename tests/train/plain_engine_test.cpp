// An engine without tensors: the trainer and checkpoints need nothing of LibTorch from it, and its state may be sharded by
// columns.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "runner/base/clock.hpp"
#include "runner/config/schedule.hpp"
#include "runner/train/trainer.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/slicings.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// Has parts of one tensor "param/w". A step subtracts the learning rate from each of its elements; the loss is the first
/// element.
class PlainEngine : public Engine {
 public:
  double gain = 1;                   ///< of each step
  std::vector<double> factors = {};  ///< of the learning rate, of all steps

  PlainEngine(Sizes shape, const std::vector<SlicePart>& parts) : shape_(std::move(shape)) {
    for (const auto& part : parts)
      held_.push_back({part, std::vector<float>(static_cast<size_t>(part.end - part.begin))});
  }

  struct Held {
    SlicePart part;
    std::vector<float> values;
  };
  std::vector<Held>& held() { return held_; }
  const Sizes& shape() const { return shape_; }

  int data_rank() const override { return 0; }
  int data_ranks() const override { return 1; }
  StepResult step(const StepInput& input) override {
    ++steps_;
    factors.push_back(input.lr_factor);
    for (auto& held : held_)
      for (auto& value : held.values) value -= static_cast<float>(input.lr_factor);
    return {.loss = held_[0].values[0], .votes = input.votes, .lr_factor = input.lr_factor * gain, .gain = gain};
  }
  double evaluate(const HostBatch& batch) override { return static_cast<double>(batch.rows); }
  std::vector<float> logits(const HostBatch&, int64_t) override { return {}; }
  std::vector<StateView> state_views() override {
    std::vector<StateView> views;
    for (auto& held : held_) {
      const int64_t count = std::ssize(held.values);
      StateView view{.name = "param/w",
                     .dtype = "F32",
                     .global_shape = shape_,
                     .slice = held.part.slice,
                     .offset = held.part.begin,
                     .count = count,
                     .write_end = count,
                     .read = {},
                     .write = {}};
      view.read = [&held](int64_t begin, int64_t count) -> HostBytes {
        const auto first = held.values.begin() + begin;
        auto copy = std::make_shared<std::vector<float>>(first, first + count);
        return {copy, std::as_bytes(std::span(*copy))};
      };
      view.write = [&held](int64_t begin, const std::string&, std::span<const std::byte> values) {
        std::memcpy(held.values.data() + begin, values.data(), values.size());
      };
      views.push_back(std::move(view));
    }
    return views;
  }
  std::vector<StateView> views_to_save() override { return state_views(); }
  void state_loaded() override {}
  nlohmann::json scalars() const override { return {{"steps", steps_}}; }
  void load_scalars(const nlohmann::json& scalars) override { steps_ = scalars.at("steps"); }
  bool replicas_differ() const override { return false; }
  double sum_over_ranks(double value) override { return value; }
  void barrier() override {}
  void teardown() override {}

 private:
  Sizes shape_;
  std::vector<Held> held_;
  int64_t steps_ = 0;
};

/// The parts of a rank.
std::vector<SlicePart> parts_of(const std::vector<SlicePart>& all, const World& world) {
  std::vector<SlicePart> mine;
  for (size_t i = static_cast<size_t>(world.rank); i < all.size(); i += static_cast<size_t>(world.size))
    mine.push_back(all[i]);
  return mine;
}

struct EmptyRows : Dataset {
  int64_t size() const override { return 8; }
  std::vector<BatchField> fields() const override { return {}; }
  int64_t weight(int64_t) const override { return 1; }
  void read(int64_t, HostBatch&, int64_t) const override {}
};

/// Trains to step `steps`, and returns the final loss.
double train_plain(const fs::path& folder, int64_t steps, const fs::path& resume_from = {}) {
  double loss = 0;
  run_ranks(1, [&](World& world) {
    PlainEngine engine({4, 3}, {{{{0, 0}, {4, 2}}, 0, 8}, {{{0, 2}, {4, 1}}, 0, 4}});
    Recipe recipe;
    recipe.train.max_steps = steps;
    recipe.train.global_batch_size = 4;
    recipe.train.micro_batch_size = 2;
    EmptyRows rows;
    Hooks no_hooks;
    EventSink nowhere(0, -1);
    Trainer trainer({.recipe = recipe,
                     .world = world,
                     .engine = engine,
                     .train = rows,
                     .validation = &rows,
                     .hooks = no_hooks,
                     .events = nowhere,
                     .run_dir = folder});
    if (!resume_from.empty()) trainer.resume(Checkpoint(resume_from));
    loss = trainer.run().final_loss;
    for (const auto& held : engine.held())
      for (float value : held.values) RANK_CHECK(value == static_cast<float>(-steps));
  });
  return loss;
}

}  // namespace

TEST_CASE("an engine that has columns of a tensor saves them, and another loads them in any other slicing") {
  Drawn draw(11);
  for (int round = 0; round < 20; ++round) {
    TemporaryFolder folder;
    const Sizes shape = random_shape(draw);
    const auto written = random_slicing(draw, shape), read = random_slicing(draw, shape);
    const bool async = draw(0, 1) == 1;
    run_ranks(static_cast<int>(draw(1, 3)), [&](World& world) {
      PlainEngine engine(shape, parts_of(written, world));
      for (auto& held : engine.held()) {
        const auto elements = elements_of(held.part, shape);
        std::copy(elements.begin(), elements.end(), held.values.begin());
      }
      Checkpointer checkpointer(world, {.folder = folder.path, .async = async, .monitor = {}}, {});
      checkpointer.save(engine, 1, nlohmann::json::object());
      checkpointer.wait();
    });
    run_ranks(static_cast<int>(draw(1, 3)), [&](World& world) {
      PlainEngine engine(shape, parts_of(read, world));
      load_state(engine, Checkpoint(folder.path / checkpoint_name(1)));
      for (const auto& held : engine.held()) {
        const auto elements = elements_of(held.part, shape);
        RANK_CHECK(std::equal(elements.begin(), elements.end(), held.values.begin()));
      }
    });
  }
}

TEST_CASE("the trainer trains, saves and resumes an engine without LibTorch") {
  TemporaryFolder folder, other;
  CHECK(train_plain(folder.path, 3) == -3);
  CHECK(train_plain(folder.path, 6, folder.path / "checkpoints" / checkpoint_name(3)) == -6);
  CHECK(train_plain(other.path, 6) == -6);
  CHECK(Checkpoint(folder.path / "checkpoints" / checkpoint_name(6)).state().at("val_loss") ==
        Checkpoint(other.path / "checkpoints" / checkpoint_name(6)).state().at("val_loss"));
}

TEST_CASE("updates with a gain count as several steps of the schedule and of the training, also after a resume") {
  TemporaryFolder folder;
  std::vector<double> factors;
  const auto train = [&](int64_t steps, const fs::path& resume_from, int64_t expected_steps) {
    run_ranks(1, [&](World& world) {
      PlainEngine engine({2}, {{{{0}, {2}}, 0, 2}});
      engine.gain = 2.5;
      Recipe recipe;
      recipe.train.max_steps = steps;
      recipe.train.global_batch_size = 4;
      recipe.train.micro_batch_size = 2;
      recipe.lr_scheduler.name = "linear";
      recipe.optimizer.adascale = true;
      EmptyRows rows;
      Hooks no_hooks;
      EventSink nowhere(0, -1);
      Trainer trainer({.recipe = recipe,
                       .world = world,
                       .engine = engine,
                       .train = rows,
                       .hooks = no_hooks,
                       .events = nowhere,
                       .run_dir = folder.path});
      if (!resume_from.empty()) trainer.resume(Checkpoint(resume_from));
      RANK_CHECK(trainer.run().steps == expected_steps);
      factors = engine.factors;
    });
  };
  const auto rates = [](int64_t max_steps, const std::vector<int64_t>& steps) {
    Recipe::LrScheduler schedule;
    schedule.name = "linear";
    std::vector<double> list;
    for (const int64_t step : steps) list.push_back(learning_rate(schedule, 1, step, max_steps));
    return list;
  };
  train(10, {}, 4);
  CHECK(factors == rates(10, {1, 3, 6, 8}));
  train(16, folder.path / "checkpoints" / checkpoint_name(4), 7);
  CHECK(factors == rates(16, {11, 13, 16}));
}
