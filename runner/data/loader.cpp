// The prefetching loader: plans the rows of each step, and reads this rank's share on background threads.
#include "runner/data/loader.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

/// A range of rows.
struct Slice {
  int64_t begin, count;
};

/// Part `index` of `count` rows cut into `parts` as evenly as possible. The first parts get one more.
Slice even_slice(int64_t count, int64_t parts, int64_t index) {
  int64_t size = count / parts, extra = count % parts;
  return {index * size + std::min(index, extra), size + (index < extra)};
}

}  // namespace

struct Loader::Impl {
  /// The samples of a step that are read one by one, by any thread.
  struct Reading {
    struct Row {
      size_t micro_batch;
      int64_t row, sample;
      int64_t global_row = 0;
      std::optional<int64_t> neighbour = {};  ///< SampleDraw::neighbour
    };
    StepBatch step = {};
    std::vector<Row> rows = {};
    SampleDraw draw = {};
    // Guarded by the mutex of the loader:
    size_t begun = 0;   ///< rows that threads have taken
    size_t active = 0;  ///< threads that read some of them
    size_t failed_row = SIZE_MAX;
    std::exception_ptr failure = {};  ///< of the smallest row that failed: always the same, as rows are taken in order

    bool has_rows_left() const { return !failure && begun < rows.size(); }
    bool complete() const { return active == 0 && !has_rows_left(); }
  };

  Impl(const Dataset& dataset, Options options) : dataset(dataset), options(options), position(options.start) {
    go_to_next_epoch_at_end();
  }

  /// The samples left in the epoch, but at most `wanted`.
  int64_t left_up_to(int64_t wanted) const { return dataset.size_up_to(position.sample + wanted) - position.sample; }

  /// `least`: the samples that a step needs.
  bool go_to_next_epoch_at_end(int64_t least = 1) {
    if (left_up_to(least) >= least) return false;
    position = {position.epoch + 1, 0};
    return true;
  }

  /// The samples that a step with this global batch size needs.
  int64_t least_samples(int64_t global_batch_size) const { return options.drop_last ? global_batch_size : 1; }

  int64_t batch_size(int64_t epoch) const {
    int64_t size = batch_size_of_epoch ? batch_size_of_epoch(epoch) : options.global_batch_size;
    RUNNER_CHECK(size > 0 && size % (options.micro_batch_size * options.data_ranks) == 0,
                 "global batch size {}, micro-batch size {}, {} data ranks", size, options.micro_batch_size,
                 options.data_ranks);
    return size;
  }

  /// The size of the batch at `position`. If a run is resumed with larger batches, the rest of the epoch may be too short for one, and
  /// the position goes to the next epoch.
  int64_t whole_batch_size() {
    int64_t size = batch_size(position.epoch);
    if (go_to_next_epoch_at_end(least_samples(size))) size = batch_size(position.epoch);
    if (least_samples(size) > dataset.size_up_to(least_samples(size)))
      throw usage_error("data.drop_last leaves no batch: an epoch has {}, and a global batch needs {}",
                        counted(dataset.size(), "sample"), size);
    return size;
  }

  /// Which samples this rank reads for the step at `position`, which it advances. Null at the end.
  std::unique_ptr<Reading> plan_step() {
    const int64_t global_batch_size = whole_batch_size();
    if (!options.repeat && position.epoch != options.start.epoch) return nullptr;
    auto reading = std::make_unique<Reading>();
    auto& step = reading->step;
    step.epoch = position.epoch;
    step.at = position;
    reading->draw = {.epoch = position.epoch, .seed = options.seed, .batch = position.sample};
    step.global_rows = left_up_to(global_batch_size);
    const Slice mine = even_slice(step.global_rows, options.data_ranks, options.data_rank);
    step.first_row = mine.begin;
    std::vector<int64_t> samples(static_cast<size_t>(step.global_rows));
    for (int64_t row = 0; row < step.global_rows; ++row) {
      samples[static_cast<size_t>(row)] = sample_at(position.sample + row);
      const int64_t weight = dataset.weight(samples[static_cast<size_t>(row)]);
      step.weight += weight;
      if (mine.begin <= row && row < mine.begin + mine.count) step.rank_weight += weight;
      step.units += dataset.units(samples[static_cast<size_t>(row)]);
    }
    const int64_t micro_batches = global_batch_size / options.data_ranks / options.micro_batch_size;
    for (int64_t m = 0; m < micro_batches; ++m) {
      const Slice rows = even_slice(mine.count, micro_batches, m);
      const auto of_batch =
          std::span(samples).subspan(static_cast<size_t>(mine.begin + rows.begin), static_cast<size_t>(rows.count));
      step.micro_batches.emplace_back(rows.count, dataset.fields_of(of_batch));
      for (int64_t row = 0; row < rows.count; ++row) {
        const int64_t global_row = mine.begin + rows.begin + row;
        const auto neighbour = static_cast<size_t>(global_row ^ 1);
        reading->rows.push_back(
            {.micro_batch = static_cast<size_t>(m),
             .row = row,
             .sample = of_batch[static_cast<size_t>(row)],
             .global_row = global_row,
             .neighbour = neighbour < samples.size() ? std::optional(samples[neighbour]) : std::nullopt});
      }
    }
    position.sample += step.global_rows;
    step.epoch_end = go_to_next_epoch_at_end(least_samples(global_batch_size));
    step.after = position;
    return reading;
  }

  int64_t sample_at(int64_t at) const {
    return dataset.sample_at(position.epoch, at, {.shuffle = options.shuffle, .seed = options.seed});
  }

  void read_row(Reading& reading, size_t at) const {
    const auto& row = reading.rows[at];
    auto draw = reading.draw;
    draw.row = row.global_row;
    draw.neighbour = row.neighbour;
    dataset.draw(row.sample, reading.step.micro_batches[row.micro_batch], row.row, draw);
  }

  /// The first step with rows that no thread has taken. Null: there is none, or one before it has failed.
  Reading* step_with_rows() const {
    for (const auto& reading : readings) {
      if (reading->failure) return nullptr;
      if (reading->has_rows_left()) return reading.get();
    }
    return nullptr;
  }

  bool may_plan() const {
    if (planning || finished || (!readings.empty() && readings.back()->failure)) return false;
    return std::ssize(readings) < std::max<int64_t>(options.prefetch, consumer_waits ? 1 : 0);
  }

  /// A background thread. All of them do the same: read rows, and plan the next step if there are none.
  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      Reading* reading = nullptr;
      changed.wait(lock, [&] { return stop || (reading = step_with_rows()) || may_plan(); });
      if (stop) return;
      reading ? read_some(*reading, lock) : plan_next(lock);
      changed.notify_all();
    }
  }

  /// Takes some rows, and reads them without the lock.
  void read_some(Reading& reading, std::unique_lock<std::mutex>& lock) {
    const auto together = static_cast<size_t>(dataset.rows_together());
    const size_t share = reading.rows.size() / static_cast<size_t>(8 * options.workers) / together * together;
    const size_t first = reading.begun, end = std::min(reading.rows.size(), first + std::max(together, share));
    reading.begun = end;
    ++reading.active;
    lock.unlock();
    std::exception_ptr failure;
    size_t at = first;
    try {
      for (; at < end && !stop; ++at) read_row(reading, at);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --reading.active;
    if (!failure || at > reading.failed_row) return;
    reading.failed_row = at;
    reading.failure = failure;
  }

  void plan_next(std::unique_lock<std::mutex>& lock) {
    planning = true;
    lock.unlock();
    std::unique_ptr<Reading> planned;
    try {
      planned = plan_step();
    } catch (...) {
      planned = std::make_unique<Reading>();
      planned->failure = std::current_exception();
    }
    lock.lock();
    planning = false;
    if (planned)
      readings.push_back(std::move(planned));
    else
      finished = true;
  }

  /// The step at the front, or null at the end. Throws what its reading has thrown.
  std::unique_ptr<Reading> take(std::unique_lock<std::mutex>& lock) {
    const auto ready = [&] { return readings.empty() ? finished : readings.front()->complete(); };
    if (!ready()) {
      const double begun = steady_seconds();
      consumer_waits = true;
      changed.notify_all();
      if (options.workers == 0)
        read_here(lock);
      else
        changed.wait(lock, ready);
      consumer_waits = false;
      waited += steady_seconds() - begun;
    }
    if (readings.empty()) return nullptr;
    if (readings.front()->failure) std::rethrow_exception(readings.front()->failure);
    auto first = std::move(readings.front());
    readings.pop_front();
    changed.notify_all();
    return first;
  }

  /// Without background threads: the caller's thread does all.
  void read_here(std::unique_lock<std::mutex>& lock) {
    plan_next(lock);
    if (readings.empty()) return;
    auto& reading = *readings.front();
    try {
      for (; reading.has_rows_left(); ++reading.begun) read_row(reading, reading.begun);
    } catch (...) {
      reading.failure = std::current_exception();
    }
  }

  const Dataset& dataset;
  const Options options;
  std::function<int64_t(int64_t)> batch_size_of_epoch;
  DataPosition position;  ///< of the next step to plan; only the thread that plans uses it

  std::mutex mutex;  ///< guards the members below
  std::condition_variable changed;
  std::deque<std::unique_ptr<Reading>> readings;  ///< the next steps, in order
  std::atomic<bool> stop = false;
  bool planning = false, finished = false, consumer_waits = false;
  double waited = 0;

  std::vector<std::jthread> threads;
};

Loader::Loader(const Dataset& dataset, Options options) : impl_(std::make_unique<Impl>(dataset, options)) {
  RUNNER_CHECK(options.micro_batch_size > 0 && options.prefetch >= 0 && options.workers >= 0 &&
               options.data_rank >= 0 && options.data_rank < options.data_ranks);
  RUNNER_CHECK(dataset.size_up_to(1) > 0 && options.start.epoch >= 0 && options.start.sample >= 0);
  if (options.start.sample > dataset.size_up_to(options.start.sample))
    throw usage_error(
        "the data have {} samples, but this run has already taken {} of epoch {}; the data or seq_len have changed "
        "since",
        dataset.size(), options.start.sample, options.start.epoch);
}

Loader::~Loader() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    impl_->changed.notify_all();
  }
  impl_->threads.clear();  // joins
}

bool Loader::next(StepBatch& out) {
  auto& threads = impl_->threads;
  while (std::ssize(threads) < impl_->options.workers) threads.emplace_back([impl = impl_.get()] { impl->work(); });
  std::unique_lock lock(impl_->mutex);
  const auto taken = impl_->take(lock);
  if (taken) out = std::move(taken->step);
  return taken != nullptr;
}

double Loader::waited_seconds() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->waited;
}

void Loader::set_batch_size_of_epoch(std::function<int64_t(int64_t epoch)> batch_size_of_epoch) {
  RUNNER_CHECK(impl_->threads.empty(), "the batch sizes are set before the first next()");
  impl_->batch_size_of_epoch = std::move(batch_size_of_epoch);
}

}  // namespace runner
