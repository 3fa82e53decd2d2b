#include "runner/data/streamed_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <shared_mutex>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "runner/data/largest_fields.hpp"

namespace runner {

namespace {

class StreamedDataset final : public Dataset {
 public:
  StreamedDataset(DataParts parts, SamplesOfPart samples_of, std::vector<BatchField> fields)
      : parts_(std::move(parts)), samples_of_(std::move(samples_of)), fields_(std::move(fields)) {}

  int64_t size() const override { return size_up_to(INT64_MAX); }
  int64_t size_up_to(int64_t wanted) const override {
    int64_t known = known_size();
    while (known < wanted && open_after(known)) known = known_size();
    return std::min(wanted, known);
  }
  std::string describe() const override {
    return fmt::format("{} that are tokenised during the training",
                       counted(static_cast<int64_t>(parts_.files->count()), "part"));
  }
  std::vector<BatchField> fields() const override { return fields_; }

  int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const override {
    if (epoch > 0) return Dataset::sample_at(epoch, position, options);
    RUNNER_CHECK(size_up_to(position + 1) > position);
    const Place place = find(position);
    const auto seed = static_cast<int64_t>(mix64(static_cast<uint64_t>(options.seed) + place.part));
    const auto own = place.samples->sample_at(epoch, place.sample, {.shuffle = options.shuffle, .seed = seed});
    return position - place.sample + own;
  }
  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override {
    if (samples.empty()) return fields();
    return largest_fields(samples, [this](int64_t sample) {
      const Place place = find(sample);
      return place.samples->fields_of(std::span(&place.sample, 1));
    });
  }
  int64_t weight(int64_t sample) const override {
    const Place place = find(sample);
    return place.samples->weight(place.sample);
  }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    const Place place = find(sample);
    place.samples->read(place.sample, batch, row);
  }
  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override {
    const Place place = find(sample);
    const auto seed = static_cast<int64_t>(mix64(static_cast<uint64_t>(draw.seed) + place.part));
    place.samples->draw(place.sample, batch, row, {.epoch = draw.epoch, .seed = seed});
  }

 private:
  /// A part with samples.
  struct Opened {
    std::unique_ptr<Dataset> samples;
    int64_t end;  ///< the number of samples up to its end
  };
  struct Place {
    const Dataset* samples;
    size_t part;
    int64_t sample;
  };

  int64_t known_size() const {
    const std::shared_lock lock(mutex_);
    return opened_.empty() ? 0 : opened_.back().end;
  }

  /// Opens the parts up to the next one with samples, unless another thread has done so since there were `known` samples. False if
  /// there is none.
  bool open_after(int64_t known) const {
    const std::lock_guard opening(opening_);
    if (known_size() > known) return true;
    TokenizingProgress silent(0, INFINITY);
    while (next_part_ < parts_.files->count()) {
      const auto file = parts_.files->make(next_part_, silent);
      auto samples = samples_of_(parts_.open({file}));
      ++next_part_;
      if (!samples) continue;
      const std::unique_lock lock(mutex_);
      const int64_t end = known + samples->size();
      opened_.push_back({.samples = std::move(samples), .end = end});
      return true;
    }
    if (known == 0) throw usage_error("data.train has no sample with a supervised token in any of its parts");
    return false;
  }

  Place find(int64_t sample) const {
    const std::shared_lock lock(mutex_);
    const auto part = std::ranges::upper_bound(opened_, sample, {}, &Opened::end);
    RUNNER_CHECK(sample >= 0 && part != opened_.end());
    const int64_t begin = part == opened_.begin() ? 0 : std::prev(part)->end;
    return {
        .samples = part->samples.get(), .part = static_cast<size_t>(part - opened_.begin()), .sample = sample - begin};
  }

  DataParts parts_;
  SamplesOfPart samples_of_;
  std::vector<BatchField> fields_;
  mutable std::mutex opening_;  ///< guards next_part_; held while a part is opened
  mutable size_t next_part_ = 0;
  mutable std::shared_mutex mutex_;  ///< guards opened_
  mutable std::vector<Opened> opened_;
};

}  // namespace

std::unique_ptr<Dataset> streamed_dataset(DataParts parts, SamplesOfPart samples_of, std::vector<BatchField> fields) {
  return std::make_unique<StreamedDataset>(std::move(parts), std::move(samples_of), std::move(fields));
}

}  // namespace runner
