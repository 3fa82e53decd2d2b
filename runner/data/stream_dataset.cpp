#include "runner/data/stream_dataset.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

class StreamDataset final : public Dataset {
 public:
  StreamDataset(std::shared_ptr<const TokenStream> stream, StreamPart part, int64_t seq_len)
      : stream_(std::move(stream)), first_(part.first), windows_((part.count - 1) / seq_len), seq_len_(seq_len) {
    if (!stream_->all_supervised()) find_supervised();
  }
  int64_t size() const override { return supervised_ ? std::ssize(*supervised_) : windows_; }
  std::string describe() const override { return fmt::format("{} samples of {} tokens", size(), seq_len_); }
  std::vector<BatchField> fields() const override { return token_fields(seq_len_); }
  int64_t weight(int64_t sample) const override {
    return supervised_ ? (*supervised_)[static_cast<size_t>(sample)].weight : seq_len_;
  }
  int64_t units(int64_t) const override { return seq_len_; }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    const auto inputs = batch.row<int64_t>(token_field::inputs, row);
    const auto targets = batch.row<int64_t>(token_field::targets, row);
    RUNNER_CHECK(sample >= 0 && sample < size() && std::ssize(inputs) == seq_len_ && std::ssize(targets) == seq_len_);
    const int64_t window = supervised_ ? (*supervised_)[static_cast<size_t>(sample)].index : sample;
    const int64_t begin = first_ + window * seq_len_;
    stream_->read(begin, inputs);
    std::ranges::copy(inputs.subspan(1), targets.begin());
    stream_->read(begin + seq_len_, targets.last(1));
    stream_->ignore_unsupervised(begin + 1, targets);
  }

 private:
  struct Window {
    int64_t index;
    int32_t weight;
  };

  /// Lists the windows with supervised targets: the others are no samples, because the mean over none is undefined.
  void find_supervised() {
    std::vector<int64_t> targets(static_cast<size_t>(seq_len_));
    supervised_.emplace();
    for (int64_t window = 0; window < windows_; ++window) {
      std::ranges::fill(targets, 0);
      stream_->ignore_unsupervised(first_ + window * seq_len_ + 1, targets);
      const auto weight = std::ranges::count(targets, 0);
      if (weight > 0) supervised_->push_back({.index = window, .weight = static_cast<int32_t>(weight)});
    }
  }

  std::shared_ptr<const TokenStream> stream_;
  int64_t first_, windows_, seq_len_;
  std::optional<std::vector<Window>> supervised_ = {};  ///< the windows that are samples; unset: all are
};

/// The files as the recipe names them: those of the stream may be in a cache.
std::string files_of(const Recipe::Data& data, Split split) {
  const bool own = split == Split::validation && !data.validation.empty();
  const auto& files = own ? data.validation : data.train;
  return files.size() == 1 ? files.front() : fmt::format("{} files", files.size());
}

[[noreturn]] void refuse_short(const Recipe::Data& data, Split split, const TokenStream& stream, StreamPart part,
                               int64_t seq_len) {
  const int64_t needed = seq_len + 1;
  const bool cut = part.count != stream.size();
  if (!cut)
    throw usage_error("{}: {} has {} tokens; one sample of data.seq_len = {} needs {}",
                      split == Split::validation ? "data.validation" : "data.train", files_of(data, split), part.count,
                      seq_len, needed);
  const char* name = split == Split::validation ? "validation" : "training";
  if (stream.size() < 2 * needed)
    throw usage_error(
        "data.validation_fraction = {}: {} has {} tokens; one training and one validation sample of data.seq_len = {} "
        "need {}",
        *data.validation_fraction, files_of(data, split), stream.size(), seq_len, 2 * needed);
  double share = static_cast<double>(needed) / static_cast<double>(stream.size());
  double limit = split == Split::validation ? std::ceil(share * 1e6) / 1e6 : std::floor((1 - share) * 1e6) / 1e6;
  throw usage_error(
      "data.validation_fraction = {} leaves {} of {} tokens for {}; one sample of data.seq_len = {} needs {}: the "
      "fraction must be at {} {}",
      *data.validation_fraction, part.count, stream.size(), name, seq_len, needed,
      split == Split::validation ? "least" : "most", limit);
}

}  // namespace

StreamPart part_of_split(int64_t tokens, double fraction, Split split) {
  auto validation = static_cast<int64_t>(std::llround(static_cast<double>(tokens) * fraction));
  return split == Split::validation ? StreamPart{tokens - validation, validation} : StreamPart{0, tokens - validation};
}

std::unique_ptr<Dataset> stream_dataset(const Recipe::Data& data, Split split,
                                        std::shared_ptr<const TokenStream> stream, int64_t seq_len,
                                        StreamedPart* streamed) {
  StreamPart part{0, stream->size()};
  if (streamed) {
    part = {streamed->begin, stream->size() - streamed->begin};
    streamed->used = streamed->begin + std::max<int64_t>(0, part.count - 1) / seq_len * seq_len;
  }
  if (data.validation_fraction) part = part_of_split(stream->size(), *data.validation_fraction, split);
  if (part.count < seq_len + 1 && streamed) return nullptr;
  if (part.count < seq_len + 1) refuse_short(data, split, *stream, part, seq_len);
  auto dataset = std::make_unique<StreamDataset>(std::move(stream), part, seq_len);
  if (dataset->size() == 0 && streamed) return nullptr;
  if (dataset->size() == 0)
    throw usage_error("{}: none of the samples of {} tokens has a supervised token, so there is nothing to {}",
                      split == Split::validation && !data.validation.empty() ? "data.validation" : "data.train",
                      seq_len, split == Split::validation ? "validate" : "learn");
  return dataset;
}

}  // namespace runner
