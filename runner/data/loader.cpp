// The prefetching loader: plans the rows of each step, and reads this rank's share on a background thread.
#include "runner/data/loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/parallel_for.hpp"

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
  Impl(const Dataset& dataset, Options options) : dataset(dataset), options(options), position(options.start) {
    go_to_next_epoch_at_end();
  }

  /// `least`: the samples that a step needs.
  bool go_to_next_epoch_at_end(int64_t least = 1) {
    if (dataset.size() - position.sample >= least) return false;
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
    if (least_samples(size) > dataset.size())
      throw usage_error("data.drop_last leaves no batch: an epoch has {}, and a global batch needs {}",
                        counted(dataset.size(), "sample"), size);
    return size;
  }

  /// Reads this rank's share of the step at `position` and advances `position`.
  StepBatch read_step(int64_t global_batch_size) {
    StepBatch step;
    step.epoch = position.epoch;
    step.global_rows = std::min(global_batch_size, dataset.size() - position.sample);
    const Slice mine = even_slice(step.global_rows, options.data_ranks, options.data_rank);
    step.first_row = mine.begin;
    for (int64_t row = 0; row < step.global_rows; ++row)
      step.weight += dataset.weight(sample_at(position.sample + row));
    const int64_t micro_batches = global_batch_size / options.data_ranks / options.micro_batch_size;
    for (int64_t m = 0; m < micro_batches; ++m) {
      const Slice rows = even_slice(mine.count, micro_batches, m);
      step.micro_batches.push_back(read_rows({position.sample + mine.begin + rows.begin, rows.count}));
    }
    position.sample += step.global_rows;
    step.epoch_end = go_to_next_epoch_at_end(least_samples(global_batch_size));
    step.after = position;
    return step;
  }

  HostBatch read_rows(Slice rows) {
    std::vector<int64_t> samples(static_cast<size_t>(rows.count));
    for (int64_t row = 0; row < rows.count; ++row) samples[static_cast<size_t>(row)] = sample_at(rows.begin + row);
    HostBatch batch(rows.count, dataset.fields_of(samples));
    const SampleDraw draw{.epoch = position.epoch, .seed = options.seed};
    const auto read_every = [&](int64_t first, int64_t step) {
      for (int64_t row = first; row < rows.count && !stopping(); row += step)
        dataset.draw(samples[static_cast<size_t>(row)], batch, row, draw);
    };
    const int64_t readers = std::min(dataset.readers(), rows.count);
    if (readers <= 1)
      read_every(0, 1);
    else
      parallel_for(
          static_cast<size_t>(readers), [&](size_t reader) { read_every(static_cast<int64_t>(reader), readers); },
          static_cast<size_t>(readers));
    return batch;
  }

  int64_t sample_at(int64_t at) const {
    return dataset.sample_at(position.epoch, at, {.shuffle = options.shuffle, .seed = options.seed});
  }

  bool stopping() {
    std::lock_guard lock(mutex);
    return stop;
  }

  /// Waits until another step may be prepared; false when the loader is destroyed.
  bool wait_for_room() {
    std::unique_lock lock(mutex);
    changed.wait(
        lock, [&] { return stop || std::ssize(ready) < std::max<int64_t>(options.prefetch, consumer_waits ? 1 : 0); });
    return !stop;
  }

  /// The background thread.
  void produce() {
    std::exception_ptr thrown;
    try {
      while (wait_for_room()) {
        const int64_t size = whole_batch_size();
        if (!options.repeat && position.epoch != options.start.epoch) break;
        StepBatch step = read_step(size);
        std::lock_guard lock(mutex);
        ready.push_back(std::move(step));
        changed.notify_all();
      }
    } catch (...) {
      thrown = std::current_exception();
    }
    std::lock_guard lock(mutex);
    failure = thrown;
    finished = true;
    changed.notify_all();
  }

  const Dataset& dataset;
  const Options options;
  std::function<int64_t(int64_t)> batch_size_of_epoch;
  DataPosition position;  ///< of the next step to prepare; only the background thread uses it while it runs

  std::mutex mutex;  ///< guards the members below
  std::condition_variable changed;
  std::deque<StepBatch> ready;
  bool stop = false, finished = false, consumer_waits = false;
  std::exception_ptr failure;
  double waited = 0;

  std::thread thread;
};

Loader::Loader(const Dataset& dataset, Options options) : impl_(std::make_unique<Impl>(dataset, options)) {
  RUNNER_CHECK(options.micro_batch_size > 0 && options.prefetch >= 0 && options.data_rank >= 0 &&
               options.data_rank < options.data_ranks);
  RUNNER_CHECK(dataset.size() > 0 && options.start.epoch >= 0 && options.start.sample >= 0);
  if (options.start.sample > dataset.size())
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
  if (impl_->thread.joinable()) impl_->thread.join();
}

bool Loader::next(StepBatch& out) {
  if (!impl_->thread.joinable()) impl_->thread = std::thread([impl = impl_.get()] { impl->produce(); });
  std::unique_lock lock(impl_->mutex);
  if (impl_->ready.empty() && !impl_->finished) {
    double begun = steady_seconds();
    impl_->consumer_waits = true;
    impl_->changed.notify_all();
    impl_->changed.wait(lock, [&] { return !impl_->ready.empty() || impl_->finished; });
    impl_->consumer_waits = false;
    impl_->waited += steady_seconds() - begun;
  }
  if (impl_->ready.empty()) {
    if (impl_->failure) std::rethrow_exception(impl_->failure);
    return false;
  }
  out = std::move(impl_->ready.front());
  impl_->ready.pop_front();
  impl_->changed.notify_all();
  return true;
}

double Loader::waited_seconds() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->waited;
}

void Loader::set_batch_size_of_epoch(std::function<int64_t(int64_t epoch)> batch_size_of_epoch) {
  RUNNER_CHECK(!impl_->thread.joinable(), "the batch sizes are set before the first next()");
  impl_->batch_size_of_epoch = std::move(batch_size_of_epoch);
}

}  // namespace runner
