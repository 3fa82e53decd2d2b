// The loader: the samples of each rank, their order, prefetching, and starting at any position.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <thread>

#include "runner/data/loader.hpp"
#include "runner/data/order.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

/// Sample k has the numbers {2k, 2k} and the halves {k + 0.5}, and weight k + 1.
class NumberedSamples final : public Dataset {
 public:
  explicit NumberedSamples(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::vector<BatchField> fields() const override {
    return {{.name = "numbers", .row = {2}}, {.name = "halves", .type = ElementType::float32}};
  }
  int64_t weight(int64_t sample) const override { return sample + 1; }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    if (before_read) before_read(sample);
    std::ranges::fill(batch.row<int64_t>(0, row), 2 * sample);
    batch.row<float>(1, row)[0] = static_cast<float>(sample) + 0.5f;
    ++reads;
  }
  std::function<void(int64_t)> before_read;
  mutable std::atomic<int64_t> reads = 0;

 private:
  int64_t size_;
};

/// The samples of a step, in order. Also checks the sizes of the buffers.
std::vector<int64_t> samples_of(const StepBatch& step) {
  std::vector<int64_t> samples;
  for (const auto& micro : step.micro_batches) {
    REQUIRE(micro.fields.size() == 2);
    REQUIRE(micro.fields[0].bytes.size() == static_cast<size_t>(micro.rows) * 2 * sizeof(int64_t));
    REQUIRE(micro.fields[1].bytes.size() == static_cast<size_t>(micro.rows) * sizeof(float));
    for (int64_t row = 0; row < micro.rows; ++row) {
      const auto numbers = micro.row<int64_t>(0, row);
      const int64_t sample = numbers[0] / 2;
      REQUIRE(numbers[1] == 2 * sample);
      REQUIRE(micro.row<float>(1, row)[0] == static_cast<float>(sample) + 0.5f);
      samples.push_back(sample);
    }
  }
  return samples;
}

struct Step {
  std::vector<int64_t> samples;
  int64_t epoch, after_epoch, after_sample, global_rows;
  bool epoch_end;
  bool operator==(const Step&) const = default;
};

std::vector<Step> run(Loader& loader, int steps) {
  std::vector<Step> all;
  StepBatch batch;
  while (std::ssize(all) < steps && loader.next(batch))
    all.push_back(
        {samples_of(batch), batch.epoch, batch.after.epoch, batch.after.sample, batch.global_rows, batch.epoch_end});
  return all;
}

void spin_until(const std::function<bool()>& condition) {
  for (int i = 0; i < 10000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(condition());
}

}  // namespace

TEST_CASE("the rows of all ranks form the same global batches for every world size and micro-batch size") {
  const int64_t global = 12;
  for (int64_t size : {1, 5, 12, 13, 25, 100})
    for (int world : {1, 2, 3, 4, 6, 12})
      for (int64_t micro : {1, 2, 3, 4, 6, 12}) {
        if (global % (world * micro) != 0) continue;
        INFO("size " << size << ", world " << world << ", micro-batch " << micro);
        NumberedSamples samples(size);
        std::vector<std::unique_ptr<Loader>> ranks;
        for (int rank = 0; rank < world; ++rank) {
          Loader::Options options{.global_batch_size = global,
                                  .micro_batch_size = micro,
                                  .data_rank = rank,
                                  .data_ranks = world,
                                  .seed = 9};
          ranks.push_back(std::make_unique<Loader>(samples, options));
        }
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          SampleOrder order(size, true, 9, epoch);
          for (int64_t first = 0; first < size; first += global) {
            std::vector<int64_t> expected, found;
            int64_t weight = 0;
            for (int64_t i = first; i < std::min(size, first + global); ++i) {
              expected.push_back(order[i]);
              weight += samples.weight(order[i]);
            }
            int64_t least = global, most = 0;
            for (auto& rank : ranks) {
              StepBatch step;
              REQUIRE(rank->next(step));
              REQUIRE(step.epoch == epoch);
              REQUIRE((step.at.epoch == epoch && step.at.sample == first));
              REQUIRE(step.global_rows == std::ssize(expected));
              REQUIRE(step.weight == weight);
              REQUIRE(step.first_row == std::ssize(found));
              REQUIRE(step.epoch_end == (first + global >= size));
              REQUIRE(std::ssize(step.micro_batches) == global / world / micro);
              for (const auto& batch : step.micro_batches) REQUIRE(batch.rows <= micro);
              auto mine = samples_of(step);
              least = std::min<int64_t>(least, std::ssize(mine));
              most = std::max<int64_t>(most, std::ssize(mine));
              found.insert(found.end(), mine.begin(), mine.end());
            }
            REQUIRE(found == expected);
            REQUIRE(most - least <= 1);
          }
        }
      }
}

TEST_CASE("a short last batch is divided evenly, and the first ranks and micro-batches get one sample more") {
  NumberedSamples samples(7);
  auto rows_of = [&](int rank) {
    Loader loader(
        samples,
        {.global_batch_size = 16, .micro_batch_size = 2, .data_rank = rank, .data_ranks = 2, .shuffle = false});
    StepBatch step;
    REQUIRE(loader.next(step));
    CHECK(step.global_rows == 7);
    std::vector<int64_t> rows;
    for (const auto& micro : step.micro_batches) rows.push_back(micro.rows);
    return rows;
  };
  CHECK(rows_of(0) == std::vector<int64_t>{1, 1, 1, 1});
  CHECK(rows_of(1) == std::vector<int64_t>{1, 1, 1, 0});
}

TEST_CASE("with drop_last an epoch has whole batches only, and no whole batch is an error") {
  NumberedSamples data(11);
  Loader::Options options{.global_batch_size = 4, .micro_batch_size = 2, .shuffle = false, .drop_last = true};
  Loader loader(data, options);
  CHECK(run(loader, 3) == std::vector<Step>{{{0, 1, 2, 3}, 0, 0, 4, 4, false},
                                            {{4, 5, 6, 7}, 0, 1, 0, 4, true},
                                            {{0, 1, 2, 3}, 1, 1, 4, 4, false}});
  // The rest of an epoch after a batch of another size is too short.
  options.start = {.epoch = 2, .sample = 9};
  Loader continued(data, options);
  CHECK(run(continued, 1) == std::vector<Step>{{{0, 1, 2, 3}, 3, 3, 4, 4, false}});
  options = {.global_batch_size = 12, .micro_batch_size = 2, .drop_last = true};
  Loader none(data, options);
  CHECK(error_of([&] { run(none, 1); }) ==
        "usage: data.drop_last leaves no batch: an epoch has 11 samples, and a global batch needs 12");
}

TEST_CASE("without shuffling, step s uses the samples from s * global_batch_size on") {
  NumberedSamples samples(10);
  Loader loader(samples, {.global_batch_size = 4, .micro_batch_size = 2, .shuffle = false});
  auto steps = run(loader, 4);
  CHECK(steps[0] == Step{{0, 1, 2, 3}, 0, 0, 4, 4, false});
  CHECK(steps[1] == Step{{4, 5, 6, 7}, 0, 0, 8, 4, false});
  CHECK(steps[2] == Step{{8, 9}, 0, 1, 0, 2, true});
  CHECK(steps[3] == Step{{0, 1, 2, 3}, 1, 1, 4, 4, false});
}

TEST_CASE("a loader that starts at any position gives the same batches as an uninterrupted one") {
  for (int64_t size : {3, 8, 23})
    for (int rank : {0, 1}) {
      NumberedSamples samples(size);
      Loader::Options options{
          .global_batch_size = 8, .micro_batch_size = 2, .data_rank = rank, .data_ranks = 2, .seed = 77};
      auto schedule = [](int64_t epoch) { return epoch == 1 ? 4 : 8; };
      Loader whole(samples, options);
      whole.set_batch_size_of_epoch(schedule);
      auto expected = run(whole, 14);
      for (size_t done = 0; done + 4 <= expected.size(); ++done) {
        INFO("size " << size << ", rank " << rank << ", after " << done << " steps");
        if (done > 0) options.start = {expected[done - 1].after_epoch, expected[done - 1].after_sample};
        Loader resumed(samples, options);
        resumed.set_batch_size_of_epoch(schedule);
        auto steps = run(resumed, 4);
        REQUIRE(std::equal(steps.begin(), steps.end(), expected.begin() + static_cast<ptrdiff_t>(done)));
        options.start = {};
      }
    }
}

TEST_CASE("a position at the end of an epoch is the beginning of the next") {
  NumberedSamples samples(6);
  Loader next_epoch(samples, {.global_batch_size = 4, .shuffle = false, .start = {2, 6}});
  CHECK(run(next_epoch, 1)[0].epoch == 3);
  Loader nothing_left(samples, {.global_batch_size = 4, .shuffle = false, .start = {2, 6}, .repeat = false});
  CHECK(run(nothing_left, 1).empty());
}

TEST_CASE("a position beyond the end of the data is refused") {
  NumberedSamples samples(6);
  CHECK(error_of([&] {
          Loader(samples, {.start = {1, 7}});
        }) ==
        "usage: the data have 6 samples, but this run has already taken 7 of epoch 1; the data or seq_len have changed "
        "since");
}

TEST_CASE("the batch size may change at the beginning of an epoch, for any prefetch") {
  NumberedSamples samples(8);
  Loader loader(samples, {.global_batch_size = 999, .shuffle = false, .prefetch = 10});
  loader.set_batch_size_of_epoch([](int64_t epoch) { return epoch == 0 ? 8 : 3; });
  auto steps = run(loader, 4);
  CHECK(steps[0].samples.size() == 8);
  CHECK(steps[1].samples == std::vector<int64_t>{0, 1, 2});
  CHECK(steps[3].samples == std::vector<int64_t>{6, 7});
}

TEST_CASE("without repeat the loader ends after one epoch and then gives no more steps") {
  NumberedSamples samples(5);
  Loader loader(samples, {.global_batch_size = 2, .shuffle = false, .repeat = false});
  auto steps = run(loader, 10);
  CHECK(steps.size() == 3);
  CHECK(steps.back() == Step{{4}, 0, 1, 0, 1, true});
  StepBatch batch;
  CHECK_FALSE(loader.next(batch));
}

TEST_CASE("an error while reading reaches the caller after the steps read before it, at every call") {
  NumberedSamples samples(20);
  samples.before_read = [](int64_t sample) {
    if (sample == 9) throw usage_error("sample 9 is bad");
  };
  Loader loader(samples, {.global_batch_size = 4, .shuffle = false, .prefetch = 5});
  CHECK(run(loader, 2).size() == 2);
  StepBatch batch;
  CHECK(error_of([&] { loader.next(batch); }) == "usage: sample 9 is bad");
  CHECK(error_of([&] { loader.next(batch); }) == "usage: sample 9 is bad");
}

TEST_CASE("a batch size that is not divisible is an internal error") {
  NumberedSamples samples(20);
  Loader loader(samples, {.global_batch_size = 6, .micro_batch_size = 4});
  StepBatch batch;
  CHECK_THROWS_AS(loader.next(batch), std::logic_error);
}

TEST_CASE("exactly `prefetch` steps are read ahead, none with prefetch 0") {
  for (int64_t prefetch : {0, 1, 3}) {
    NumberedSamples samples(1000);
    Loader loader(samples, {.global_batch_size = 4, .micro_batch_size = 4, .prefetch = prefetch});
    StepBatch batch;
    for (int64_t taken = 1; taken <= 5; ++taken) {
      REQUIRE(loader.next(batch));
      CHECK(samples.reads <= (taken + prefetch) * 4);
    }
    spin_until([&] { return samples.reads == (5 + prefetch) * 4; });
  }
}

TEST_CASE("nothing is read before the first next()") {
  NumberedSamples samples(10);
  { Loader loader(samples, {.global_batch_size = 2}); }
  CHECK(samples.reads == 0);
}

TEST_CASE("the destructor works with a full queue, during a step and after a failure") {
  NumberedSamples endless(int64_t{1} << 40);
  StepBatch batch;
  {
    Loader loader(endless, {.prefetch = 4});
    REQUIRE(loader.next(batch));
    spin_until([&] { return endless.reads == 5; });
  }
  const int64_t rows = int64_t{1} << 20;  // reading them takes 100 s; the destructor waits for one
  endless.reads = 0;
  endless.before_read = [&](int64_t) {
    if (endless.reads >= rows) std::this_thread::sleep_for(std::chrono::microseconds(100));
  };
  {
    Loader loader(endless, {.global_batch_size = rows, .micro_batch_size = rows, .prefetch = 1});
    REQUIRE(loader.next(batch));
  }
  CHECK(endless.reads < 2 * rows);
  NumberedSamples failing(10);
  failing.before_read = [](int64_t) { throw usage_error("bad"); };
  Loader loader(failing, {});
  CHECK_THROWS_AS(loader.next(batch), Error);
}

TEST_CASE("the time spent waiting for data is measured") {
  NumberedSamples samples(10);
  samples.before_read = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  Loader loader(samples, {.prefetch = 0});
  CHECK(loader.waited_seconds() == 0);
  StepBatch batch;
  REQUIRE(loader.next(batch));
  CHECK(loader.waited_seconds() > 0.01);
}

TEST_CASE("any number of workers gives the same batches in the same order") {
  NumberedSamples samples(53);
  samples.before_read = [](int64_t sample) {
    if (sample % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50 * (sample % 7)));
  };
  Loader::Options options{
      .global_batch_size = 12, .micro_batch_size = 2, .data_rank = 1, .data_ranks = 2, .seed = 5, .prefetch = 3};
  Loader one(samples, options);
  const auto expected = run(one, 15);
  for (const int64_t workers : {0, 2, 3, 8, 40}) {
    CAPTURE(workers);
    options.workers = workers;
    Loader loader(samples, options);
    CHECK(run(loader, 15) == expected);
    options.start = {expected[6].after_epoch, expected[6].after_sample};
    Loader resumed(samples, options);
    const auto rest = run(resumed, 8);
    CHECK(std::equal(rest.begin(), rest.end(), expected.begin() + 7));
    options.start = {};
  }
}

TEST_CASE("as many samples are read at the same time as there are workers, also from several steps") {
  for (const int64_t rows : {1, 8}) {
    CAPTURE(rows);
    NumberedSamples samples(100);
    std::atomic<int64_t> inside = 0, most = 0;
    samples.before_read = [&](int64_t) {
      const int64_t now = ++inside;
      for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      // The first reads wait for one another; with fewer threads they would never go on together.
      for (int i = 0; i < 5000 && most < 4; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      --inside;
    };
    Loader loader(samples, {.global_batch_size = rows, .micro_batch_size = 1, .prefetch = 4, .workers = 4});
    StepBatch batch;
    REQUIRE(loader.next(batch));
    CHECK(most == 4);
  }
}

TEST_CASE("without workers the calling thread reads, and nothing is read in advance") {
  NumberedSamples samples(100);
  std::atomic<bool> elsewhere = false;
  samples.before_read = [&, here = std::this_thread::get_id()](int64_t) {
    if (std::this_thread::get_id() != here) elsewhere = true;
  };
  Loader loader(samples, {.global_batch_size = 4, .micro_batch_size = 4, .prefetch = 3, .workers = 0});
  StepBatch batch;
  for (int64_t taken = 1; taken <= 5; ++taken) {
    REQUIRE(loader.next(batch));
    CHECK(samples.reads == 4 * taken);
  }
  CHECK_FALSE(elsewhere);
  CHECK(loader.waited_seconds() > 0);
}

TEST_CASE("of several samples that cannot be read, the first one is reported, after the steps before it") {
  for (const int64_t workers : {0, 1, 2, 6}) {
    CAPTURE(workers);
    NumberedSamples samples(40);
    samples.before_read = [](int64_t sample) {
      if (sample == 9) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (sample == 9 || sample == 10 || sample == 13) throw usage_error("sample {} is bad", sample);
    };
    Loader loader(samples,
                  {.global_batch_size = 8, .micro_batch_size = 2, .shuffle = false, .prefetch = 4, .workers = workers});
    StepBatch batch;
    REQUIRE(loader.next(batch));
    CHECK(error_of([&] { loader.next(batch); }) == "usage: sample 9 is bad");
    CHECK(error_of([&] { loader.next(batch); }) == "usage: sample 9 is bad");
  }
}

TEST_CASE("a loader with several workers stops while they read") {
  NumberedSamples samples(int64_t{1} << 30);
  samples.before_read = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  StepBatch batch;
  {
    Loader loader(samples, {.global_batch_size = 8, .micro_batch_size = 8, .prefetch = 1000, .workers = 3});
    REQUIRE(loader.next(batch));
    spin_until([&] { return samples.reads > 20; });
  }
  const int64_t reads = samples.reads;
  CHECK(reads < 1000);
  { Loader loader(samples, {.workers = 3}); }
  CHECK(samples.reads == reads);
}
