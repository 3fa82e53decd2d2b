// Samples of data that are tokenised while the training runs (data.streaming).
#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "runner/data/composite_dataset.hpp"
#include "runner/data/stream_dataset.hpp"

namespace runner {

namespace {

class StreamedDataset final : public CompositeDataset {
 public:
  StreamedDataset(DataParts parts, SamplesOfPart samples_of, std::vector<BatchField> fields, size_t part_bytes)
      : parts_(std::move(parts)),
        ranges_(ranges_of(*parts_.files, part_bytes)),
        samples_of_(std::move(samples_of)),
        fields_(std::move(fields)) {}

  int64_t size() const override { return size_up_to(INT64_MAX); }
  int64_t size_up_to(int64_t wanted) const override {
    int64_t known = known_size();
    while (known < wanted && open_after(known)) known = known_size();
    return std::min(wanted, known);
  }
  bool size_known_at_start() const override { return false; }
  std::string describe() const override {
    return fmt::format("{}, tokenised during the training", counted(std::ssize(ranges_), "part"));
  }
  std::vector<BatchField> fields() const override { return fields_; }

  int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const override {
    if (epoch > 0) return Dataset::sample_at(epoch, position, options);
    RUNNER_CHECK(size_up_to(position + 1) > position);
    const Place place = find(position);
    const auto own =
        place.part->sample_at(epoch, place.sample, {.shuffle = options.shuffle, .seed = seed_of(options.seed, place)});
    return position - place.sample + own;
  }
  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override {
    const Place place = find(sample);
    SampleDraw own = draw;
    own.seed = seed_of(draw.seed, place);
    place.part->draw(place.sample, batch, row, own);
  }

 private:
  /// A part with samples.
  struct Opened {
    std::unique_ptr<Dataset> samples;
    int64_t end;  ///< the number of samples up to its end
  };

  /// Samples of the same number in two parts draw other numbers.
  static int64_t seed_of(int64_t seed, const Place& place) {
    return static_cast<int64_t>(mix64(static_cast<uint64_t>(seed) + place.index));
  }

  int64_t known_size() const {
    const std::shared_lock lock(mutex_);
    return opened_.empty() ? 0 : opened_.back().end;
  }

  /// Opens the parts up to the next one with samples, unless another thread has done so since there were `known` samples. False if
  /// there is none.
  bool open_after(int64_t known) const {
    const std::lock_guard opening(opening_);
    if (known_size() > known) return true;
    while (next_part_ < ranges_.size()) {
      auto samples = open_next();
      if (!samples) continue;
      const std::unique_lock lock(mutex_);
      const int64_t end = known + samples->size();
      opened_.push_back({.samples = std::move(samples), .end = end});
      return true;
    }
    if (known == 0) samples_of_(parts_.open(make_range(*parts_.files, {0, parts_.files->count()}, nullptr)), nullptr);
    return false;
  }

  /// The samples of the next part; nullptr: it has none. Keeps the files with tokens that it leaves over.
  std::unique_ptr<Dataset> open_next() const {
    auto files = left_over_;
    for (auto& file : make_range(*parts_.files, ranges_[next_part_], nullptr)) files.push_back(std::move(file));
    auto opened = parts_.open(files);
    const auto stream = opened.stream;
    StreamedPart part{.begin = first_left_over_};
    auto samples = samples_of_(std::move(opened), &part);
    const auto rest = stream->place_of(part.used);
    left_over_.assign(files.begin() + static_cast<ptrdiff_t>(rest.file), files.end());
    first_left_over_ = rest.token;
    ++next_part_;
    return samples;
  }

  Place find(int64_t sample) const override {
    const std::shared_lock lock(mutex_);
    const auto part = std::ranges::upper_bound(opened_, sample, {}, &Opened::end);
    RUNNER_CHECK(sample >= 0 && part != opened_.end());
    const int64_t begin = part == opened_.begin() ? 0 : std::prev(part)->end;
    return {
        .part = part->samples.get(), .sample = sample - begin, .index = static_cast<size_t>(part - opened_.begin())};
  }

  DataParts parts_;
  std::vector<PartRange> ranges_;  ///< the parts of this data set
  SamplesOfPart samples_of_;
  std::vector<BatchField> fields_;
  mutable std::mutex opening_;  ///< guards the next three; held while a part is opened
  mutable size_t next_part_ = 0;
  mutable std::vector<fs::path> left_over_;  ///< files of the cache with tokens that no sample has
  mutable int64_t first_left_over_ = 0;      ///< the first of these tokens
  mutable std::shared_mutex mutex_;          ///< guards opened_
  mutable std::vector<Opened> opened_;
};

}  // namespace

std::unique_ptr<Dataset> streamed_dataset(DataParts parts, SamplesOfPart samples_of, std::vector<BatchField> fields,
                                          size_t part_bytes) {
  return std::make_unique<StreamedDataset>(std::move(parts), std::move(samples_of), std::move(fields), part_bytes);
}

}  // namespace runner
