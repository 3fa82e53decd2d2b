// The training loop with ranks as threads: stops, validation, and contents of checkpoints.
#include "runner/train/trainer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <thread>

#include "runner/base/clock.hpp"
#include "strategies/contract/failure.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using nlohmann::json;

namespace {

using Steps = std::vector<int64_t>;
/// Called with rank and sample before each read.
using OnRead = std::function<void(int rank, int64_t sample)>;

struct Rows : Dataset {
  const TinyRun& run;
  int rank;
  int64_t rows;
  const OnRead& on_read;
  Rows(const TinyRun& run, int rank, int64_t rows, const OnRead& on_read)
      : run(run), rank(rank), rows(rows), on_read(on_read) {}
  int64_t size() const override { return rows; }
  std::vector<BatchField> fields() const override { return token_fields(run.seq_len); }
  int64_t weight(int64_t) const override { return run.seq_len; }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    if (on_read) on_read(rank, sample);
    tiny_row(run, sample, batch, row);
  }
};

/// A tiny run with the trainer. A batch has 12 rows, an epoch 48 rows.
struct Training {
  TemporaryFolder folder;
  TinyRun tiny;
  Recipe recipe;
  int64_t rows = 48, validation_rows = 0;
  bool accept_changed_data = false;
  OnRead on_training_read, on_validation_read;
  std::atomic<bool> stop[2] = {false, false};  ///< by rank
  std::vector<json> events;                    ///< rank 0's events of the last go()

  explicit Training(int world_size = 1) {
    tiny.world_size = world_size;
    tiny.strategy = world_size == 1 ? "single" : "ddp";
    recipe.train.global_batch_size = tiny.global_batch;
    recipe.train.micro_batch_size = 3;
    tiny.accumulation = tiny.global_batch / 3 / world_size;
    recipe.data.prefetch = 0;
    recipe.optimizer.lr = 1e-2;
    recipe.checkpoint.keep_last = 0;
  }

  fs::path checkpoints() const { return folder.path / "checkpoints"; }

  /// `during` replaces Trainer::run().
  TrainerResult go(const fs::path& resume_from = {}, const std::function<void(Trainer&)>& during = {}) {
    at::set_num_threads(1);
    tiny.optimizer.lr = recipe.optimizer.lr;
    auto log = folder.path / "events";
    int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    TrainerResult result;
    run_ranks(tiny.world_size, [&](World& world) {
      Rows train(tiny, world.rank, rows, on_training_read),
          validation(tiny, world.rank, validation_rows, on_validation_read);
      with_strategy(tiny, world, [&](Strategy& strategy) {
        EventSink sink(world.rank, world.rank == 0 ? fd : -1);
        Hooks no_hooks;
        Trainer trainer({.recipe = recipe,
                         .world = world,
                         .engine = strategy,
                         .train = train,
                         .validation = validation_rows > 0 ? &validation : nullptr,
                         .hooks = no_hooks,
                         .events = sink,
                         .run_dir = folder.path,
                         .model_sizes = {{"vocab_size", tiny.vocab}},
                         .stop = &stop[world.rank],
                         .accept_changed_data = accept_changed_data});
        if (!resume_from.empty()) trainer.resume(Checkpoint(resume_from));
        if (during) return during(trainer);
        auto mine = trainer.run();
        if (world.rank == 0) result = mine;
      });
    });
    ::close(fd);
    events = EventReader(0).feed(read_file(log));
    return result;
  }

  std::vector<json> events_of(const std::string& kind) const {
    std::vector<json> some;
    for (const auto& event : events)
      if (event.at("event") == kind) some.push_back(event);
    return some;
  }
  Steps steps_of(const std::string& kind) const {
    Steps steps;
    for (const auto& event : events_of(kind)) steps.push_back(event.at("step"));
    return steps;
  }
  Steps published() const {
    Steps steps;
    for (const auto& path : list_checkpoints(checkpoints())) steps.push_back(Checkpoint(path).step());
    return steps;
  }
  json state(int64_t step) const { return Checkpoint(checkpoints() / checkpoint_name(step)).state(); }
};

/// Weights that are NaN, so every step is not finite.
void make_nan(TinyRun& run, bool skip) {
  run.make = [name = run.strategy, skip](StrategySetup setup) {
    setup.source = [](size_t, int64_t, std::span<float> out) { std::fill(out.begin(), out.end(), NAN); };
    setup.skip_nonfinite = skip;
    return make_strategy(name, std::move(setup));
  };
}

}  // namespace

TEST_CASE("a run resumes from the checkpoint of a step that was skipped because it was not finite") {
  Training training;
  make_nan(training.tiny, /*skip=*/true);
  training.validation_rows = 12;
  training.recipe.train.max_steps = 2;
  CHECK(training.go().steps == 2);
  CHECK(training.state(2).at("loss").is_null());
  CHECK(training.state(2).at("val_loss").is_null());
  training.recipe.train.max_steps = 3;
  auto result = training.go(training.checkpoints() / checkpoint_name(2));
  CHECK(result.steps == 3);
  CHECK(std::isnan(result.final_loss));
}

TEST_CASE("a stop saves immediately, without the validation that was due") {
  Training training;
  training.validation_rows = 24;
  training.recipe.train.max_steps = 10;
  training.recipe.train.val_check_interval = 1;
  int64_t validated = 0;
  training.on_validation_read = [&](int, int64_t) { ++validated; };
  training.stop[0] = true;
  auto result = training.go();
  CHECK(validated == 0);
  CHECK(result.stopped);
  CHECK(result.steps == 1);
  CHECK(training.published() == Steps{1});
  CHECK_FALSE(training.state(1).contains("val_loss"));
  CHECK(training.steps_of("stopping") == Steps{1});

  training.stop[0] = false;
  training.recipe.train.max_steps = 3;
  training.go(training.checkpoints() / checkpoint_name(1));
  CHECK(training.steps_of("validation") == Steps{1, 2, 3});
  CHECK(training.steps_of("step") == Steps{2, 3});
  CHECK_FALSE(training.state(3).contains("unfinished"));
}

TEST_CASE("a resumed run completes the validation of an epoch's last step, and saves what ranks checkpoints") {
  Training training, whole;
  for (auto* each : {&training, &whole}) {
    each->validation_rows = 12;
    each->recipe.train.max_steps = 6;
    each->recipe.checkpoint.save_top_k = 1;
  }
  whole.go();
  int64_t reads = 0;
  training.on_training_read = [&](int, int64_t) {
    if (++reads == training.rows) training.stop[0] = true;
  };
  CHECK(training.go().stopped);
  CHECK(training.published() == Steps{4});
  training.stop[0] = false;
  training.go(training.checkpoints() / checkpoint_name(4));
  CHECK(training.steps_of("validation") == Steps{4, 6});
  CHECK(training.steps_of("checkpoint") == Steps{4, 6});
  CHECK(training.state(4).at("val_loss") == whole.state(4).at("val_loss"));
  CHECK(training.state(6).at("val_loss") == whole.state(6).at("val_loss"));
}

TEST_CASE("a warm-up that is longer than the epochs of a training gives a note") {
  Training training;
  training.recipe.train.max_epochs = 1;
  training.recipe.lr_scheduler.warmup_steps = 5;
  CHECK(training.go().steps == 4);
  REQUIRE(training.events_of("note").size() == 1);
  CHECK(training.events_of("note")[0].at("message").get<std::string>().starts_with(
      "lr_scheduler.warmup_steps = 5 is more than the 4 steps of this training: "));
}

TEST_CASE("max_epochs ends after the same data although a resume changes the batch size") {
  Training training;
  training.recipe.train.max_epochs = 2;
  training.recipe.lr_scheduler.name = "cosine";
  training.recipe.checkpoint.every_n_steps = 3;
  CHECK(training.go().steps == 8);
  CHECK(training.state(8).at("data").at("epoch") == 2);

  auto step_3 = training.checkpoints() / checkpoint_name(3);
  training.go(step_3);
  CHECK(training.steps_of("step").back() == 8);
  CHECK(training.events_of("note").empty());

  training.recipe.train.global_batch_size = training.tiny.global_batch = 24;
  training.tiny.accumulation = 8;
  CHECK(training.go(step_3).steps == 6);  // 12 samples of the first epoch, then 48
  CHECK(training.state(6).at("data").at("epoch") == 2);
  CHECK(training.state(6).at("data").at("sample") == 0);
  REQUIRE(training.events_of("note").size() == 1);
  CHECK(training.events_of("note")[0].at("message") ==
        "the learning rate goes from 0.00691 at step 3 to 0.0025 at step 4, because the training now ends at step 6 "
        "instead of 8: the cosine schedule is computed again from step 1 to the end");
  CHECK(training.events_of("step").back().at("lr").get<double>() < 1e-9);

  Training other;
  other.recipe = training.recipe;
  other.tiny = training.tiny;
  CHECK(other.go(step_3).steps == 6);
  CHECK(other.events_of("note").empty());
}

TEST_CASE("the epoch of a step is the one that its data are from, and epochs trained have a fraction") {
  Training training;
  training.recipe.train.max_steps = 5;
  training.recipe.train.log_every_n_steps = 1;
  training.go();
  std::vector<int64_t> epochs;
  std::vector<double> trained;
  for (const auto& event : training.events_of("step")) {
    epochs.push_back(event.at("epoch"));
    trained.push_back(event.at("epochs"));
  }
  CHECK(epochs == std::vector<int64_t>{0, 0, 0, 0, 1});
  CHECK(trained == std::vector<double>{0.25, 0.5, 0.75, 1, 1.25});
}

TEST_CASE("train.max_time counts the time of this run, not of the run whose checkpoint it starts from") {
  Training training, other;
  training.recipe.train.max_steps = 2;
  training.on_training_read = [first = true](int, int64_t) mutable {
    if (std::exchange(first, false)) std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  };
  training.go();
  auto step_2 = training.checkpoints() / checkpoint_name(2);
  other.recipe.train.max_steps = training.recipe.train.max_steps = 5;
  other.recipe.train.max_time = training.recipe.train.max_time = std::chrono::seconds(1);
  training.go(step_2);
  CHECK(training.steps_of("step").empty());
  REQUIRE(training.events_of("stopping").size() == 1);
  CHECK(training.events_of("stopping")[0].at("reason") == "train.max_time");
  CHECK(other.go(step_2).steps == 5);
}

TEST_CASE("a stop request on one rank ends a running validation, and the step is saved") {
  Training training(2);
  training.validation_rows = 120;
  training.recipe.train.max_steps = 10;
  training.recipe.train.val_check_interval = 2;
  std::atomic<int> read = 0;
  training.on_validation_read = [&](int rank, int64_t) {
    ++read;
    if (rank == 1) training.stop[1] = true;
  };
  auto result = training.go();
  CHECK(result.stopped);
  CHECK(result.steps == 2);
  CHECK(read < 120);
  CHECK(training.events_of("validation").empty());
  CHECK(training.published() == Steps{2});
}

TEST_CASE("a run that is stopped during the last validation can be resumed for it") {
  Training training;
  training.validation_rows = 60;
  training.recipe.train.max_steps = 2;
  int64_t reads = 0, stop_at = GENERATE(24, 25);  // in the last step, or in the validation after it
  training.on_training_read = training.on_validation_read = [&](int, int64_t) {
    if (++reads == stop_at) training.stop[0] = true;
  };
  auto result = training.go();
  CHECK(result.stopped);
  CHECK(result.steps == 2);
  CHECK(training.events_of("validation").empty());
  CHECK(training.published() == Steps{2});

  training.stop[0] = false;
  training.on_validation_read = nullptr;
  result = training.go(training.checkpoints() / checkpoint_name(2));
  CHECK_FALSE(result.stopped);
  CHECK(training.steps_of("step").empty());
  CHECK(training.steps_of("validation") == Steps{2});
  CHECK(training.state(2).at("val_loss") == training.events_of("validation")[0].at("loss"));

  result = training.go(training.checkpoints() / checkpoint_name(2));
  CHECK(training.steps_of("validation").empty());
}

TEST_CASE("a stop in the last step of a run without validation changes nothing") {
  Training training;
  training.recipe.train.max_steps = 1;
  training.stop[0] = true;
  auto result = training.go();
  CHECK_FALSE(result.stopped);
  CHECK(result.steps == 1);
  CHECK(training.published() == Steps{1});
}

TEST_CASE("limit_val_batches selects the same rows on any number of ranks") {
  std::vector<json> validations;
  for (int ranks : {1, 2}) {
    Training training(ranks);
    training.validation_rows = 60;
    training.recipe.train.max_steps = 1;
    training.recipe.train.limit_val_batches = 2;
    training.go();
    REQUIRE(training.steps_of("validation") == Steps{1});
    validations.push_back(training.events_of("validation")[0]);
  }
  CHECK(validations[0].at("tokens") == 24 * 16);
  CHECK(validations[1].at("tokens") == 24 * 16);
  CHECK_THAT(validations[1].at("loss").get<double>(),
             Catch::Matchers::WithinRel(validations[0].at("loss").get<double>(), 1e-6));
}

TEST_CASE("a checkpoint contains only the validation loss of its step") {
  Training training;
  training.validation_rows = 12;
  training.recipe.train.max_steps = 5;
  training.recipe.train.val_check_interval = 2;
  training.recipe.checkpoint.every_n_steps = 1;
  training.go();
  REQUIRE(training.steps_of("validation") == Steps{2, 4, 5});
  REQUIRE(training.published() == Steps{1, 2, 3, 4, 5});
  for (int64_t step : {1, 3}) CHECK_FALSE(training.state(step).contains("val_loss"));
  for (const auto& event : training.events_of("validation"))
    CHECK(training.state(event.at("step")).at("val_loss") == event.at("loss"));
}

TEST_CASE("save_top_k saves after validations, and keeps the best of these") {
  Training training;
  training.validation_rows = 12;
  training.recipe.train.max_steps = 7;
  training.recipe.train.val_check_interval = 2;
  training.recipe.checkpoint.every_n_steps = 3;
  training.recipe.checkpoint.keep_last = 1;
  training.recipe.checkpoint.save_top_k = 1;
  training.go();
  CHECK(training.steps_of("checkpoint") == Steps{2, 3, 4, 6, 7});
  auto validations = training.events_of("validation");
  auto best = std::min_element(validations.begin(), validations.end(),
                               [](const auto& a, const auto& b) { return a.at("loss") < b.at("loss"); });
  Steps kept{best->at("step").get<int64_t>(), 7};
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  CHECK(training.published() == kept);
}

TEST_CASE("a save that fails in the background ends the run at the next step, with on_error = stop") {
  Training training;
  training.recipe.train.max_steps = 100;
  training.recipe.checkpoint.every_n_steps = 2;
  training.recipe.checkpoint.on_error = "stop";
  auto temporary = training.checkpoints() / ".step-000002.1.tmp";
  auto occupied = temporary / "rank-00000.safetensors";
  fs::create_directories(occupied);
  int64_t reads = 0;
  training.on_training_read = [&](int, int64_t) {
    if (++reads != 3 * training.tiny.global_batch) return;
    while (fs::exists(temporary)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  };
  std::string said;
  try {
    training.go();
  } catch (const Error& error) {
    said = error.what();
  }
  CHECK(said == "cannot write " + (training.checkpoints() / checkpoint_name(2)).string() +
                    ": rank-00000.safetensors: File exists");
  CHECK(reads == 3 * training.tiny.global_batch);
}

TEST_CASE("a run continues after a checkpoint could not be written, and fails at its end if the last one is missing") {
  for (int64_t broken : {2, 6}) {
    Training training(2);
    training.recipe.train.max_steps = 6;
    training.recipe.checkpoint.every_n_steps = 2;
    fs::create_directories(training.checkpoints() / fmt::format(".step-{:06d}.1.tmp/rank-00001.safetensors", broken));
    std::atomic<int> failed = 0;
    training.go({}, [&](Trainer& trainer) {
      try {
        auto result = trainer.run();
        RANK_CHECK(result.steps == 6);
      } catch (const Error& error) {
        RANK_CHECK(error.code() == ExitCode::environment);
        RANK_CHECK(std::string(error.what()).ends_with("; it was the last checkpoint of this run"));
        ++failed;
      }
    });
    CHECK(failed == (broken == 6 ? 2 : 0));
    CHECK(training.published() == (broken == 6 ? Steps{2, 4} : Steps{4, 6}));
    CHECK(training.events_of("note").size() == (broken == 6 ? 1 : 2));
  }
}

TEST_CASE("accepted changed data that became shorter continue at the next epoch") {
  Training training;
  training.recipe.train.max_steps = 3;
  training.go();
  training.rows = 24;  // 36 of 48 have been read
  training.recipe.train.max_steps = 5;
  training.accept_changed_data = true;
  training.go(training.checkpoints() / checkpoint_name(3));
  CHECK(training.state(5).at("data").at("sample") == 0);
  CHECK(training.state(5).at("data").at("epoch") == 2);
  training.accept_changed_data = false;
  CHECK_THROWS_AS(training.go(training.checkpoints() / checkpoint_name(3)), Error);
}

TEST_CASE("numbers that are not finite end a run after the current checkpoint is written") {
  Training training(2);
  training.recipe.train.max_steps = 10;
  training.recipe.optimizer.lr = 1e30;
  training.recipe.checkpoint.every_n_steps = 1;
  // Publishing reads the other checkpoints: this pipe makes it wait.
  auto pipe = training.checkpoints() / "step-999999" / "manifest.json";
  fs::create_directories(pipe.parent_path());
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::jthread release([&](const std::stop_token& over) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (; !over.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (int end = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC); end >= 0) ::close(end);
  });
  std::atomic<int> failed = 0, arrived = 0;
  training.go({}, [&](Trainer& trainer) {
    try {
      trainer.run();
    } catch (const NonFiniteError& error) {
      failed += std::string(error.what()).starts_with("the loss or a gradient is not finite at step 2 (loss ");
      arrived += fs::exists(training.checkpoints() / checkpoint_name(1));
    }
  });
  CHECK(failed == 2);
  CHECK(arrived == 2);
  const auto steps = training.events_of("step");
  CHECK(steps.back().at("step") == 2);
  CHECK(std::isnan(steps.back().at("loss").get<double>()));
  CHECK(steps.back().at("skipped") == true);
  CHECK(steps.back().at("trained") == steps.front().at("trained"));  // nothing was trained on the tokens of step 2
}
