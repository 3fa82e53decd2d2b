// Selects the data format and the tokenizer, and cuts a split of a token stream into samples.
#include "runner/data/data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/tokenizers.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

struct Format {
  const char* name;
  std::vector<BatchField> (*fields)(int64_t seq_len);
  std::unique_ptr<TokenStream> (*open)(const Source& source);
};
constexpr std::array<Format, 2> formats{{{.name = "text", .fields = token_fields, .open = open_text},
                                         {.name = "bin", .fields = token_fields, .open = open_bin}}};

const Format& find_format(const std::string& name) {
  auto found = std::ranges::find(formats, name, &Format::name);
  if (found != formats.end()) return *found;
  std::vector<std::string> names;
  for (const auto& format : formats) names.emplace_back(format.name);
  auto near = nearest(name, names);
  throw usage_error("data.format = \"{}\": it can be {}{}", name, join_or(names),
                    near ? "; did you mean " + *near + "?" : "");
}

/// Tokens [first, first + count) of a stream, cut into samples. The last target of a sample is the first input of the
/// next one.
class StreamDataset final : public Dataset {
 public:
  StreamDataset(std::unique_ptr<TokenStream> stream, int64_t first, int64_t count, int64_t seq_len)
      : stream_(std::move(stream)), first_(first), size_((count - 1) / seq_len), seq_len_(seq_len) {}
  int64_t size() const override { return size_; }
  std::vector<BatchField> fields() const override { return token_fields(seq_len_); }
  int64_t weight(int64_t) const override { return seq_len_; }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    const auto inputs = batch.row<int64_t>(token_field::inputs, row);
    const auto targets = batch.row<int64_t>(token_field::targets, row);
    RUNNER_CHECK(sample >= 0 && sample < size_ && std::ssize(inputs) == seq_len_ && std::ssize(targets) == seq_len_);
    int64_t begin = first_ + sample * seq_len_;
    stream_->read(begin, inputs);
    std::ranges::copy(inputs.subspan(1), targets.begin());
    stream_->read(begin + seq_len_, targets.last(1));
  }

 private:
  std::unique_ptr<TokenStream> stream_;
  int64_t first_, size_, seq_len_;
};

std::unique_ptr<TokenStream> open_stream(const Recipe::Data& data, Split split, int64_t vocab_size,
                                         const std::string& cache_dir) {
  const Format& format = find_format(data.format);
  bool own_files = split == Split::validation && !data.validation.empty();
  const auto& files = own_files ? data.validation : data.train;
  check_source_files(own_files ? "data.validation" : "data.train", files);
  return format.open({data, files, vocab_size, cache_dir});
}

/// A range of a stream's tokens.
struct Part {
  int64_t first, count;
};

/// The part of data.train for a split, with validation_fraction: the last part of the tokens, rounded to the nearest
/// token, is for validation. The cut does not depend on seq_len, and no token is in both parts.
Part part_of(int64_t tokens, double fraction, Split split) {
  auto validation = static_cast<int64_t>(std::llround(static_cast<double>(tokens) * fraction));
  return split == Split::validation ? Part{tokens - validation, validation} : Part{0, tokens - validation};
}

[[noreturn]] void refuse_short(const Recipe::Data& data, Split split, const TokenStream& stream, Part part,
                               int64_t seq_len) {
  const int64_t needed = seq_len + 1;
  const bool cut = part.count != stream.size();
  if (!cut)
    throw usage_error("{}: {} has {} tokens; one sample of data.seq_len = {} needs {}",
                      split == Split::validation ? "data.validation" : "data.train", stream.describe(), part.count,
                      seq_len, needed);
  const char* name = split == Split::validation ? "validation" : "training";
  if (stream.size() < 2 * needed)
    throw usage_error(
        "data.validation_fraction = {}: {} has {} tokens; one training and one validation sample of data.seq_len = {} "
        "need {}",
        *data.validation_fraction, stream.describe(), stream.size(), seq_len, 2 * needed);
  double share = static_cast<double>(needed) / static_cast<double>(stream.size());
  double limit = split == Split::validation ? std::ceil(share * 1e6) / 1e6 : std::floor((1 - share) * 1e6) / 1e6;
  throw usage_error(
      "data.validation_fraction = {} leaves {} of {} tokens for {}; one sample of data.seq_len = {} needs {}: the "
      "fraction must be at {} {}",
      *data.validation_fraction, part.count, stream.size(), name, seq_len, needed,
      split == Split::validation ? "least" : "most", limit);
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const Recipe::Data& data, Split split, int64_t seq_len, int64_t vocab_size,
                                      const std::string& cache_dir) {
  RUNNER_CHECK(seq_len > 0 && vocab_size > 0);
  if (!data.validation.empty() && data.validation_fraction)
    throw usage_error("data.validation and data.validation_fraction exclude each other");
  if (split == Split::validation && data.validation.empty() && !data.validation_fraction) return nullptr;
  auto stream = open_stream(data, split, vocab_size, cache_dir);
  Part part{0, stream->size()};
  if (data.validation_fraction) part = part_of(stream->size(), *data.validation_fraction, split);
  if (part.count < seq_len + 1) refuse_short(data, split, *stream, part, seq_len);
  return std::make_unique<StreamDataset>(std::move(stream), part.first, part.count, seq_len);
}

std::vector<BatchField> data_fields(const Recipe::Data& data, int64_t seq_len) {
  return find_format(data.format).fields(seq_len);
}

bool needs_tokenizing(const Recipe::Data& data) { return data.format == "text" && data.tokenizer != "bytes"; }

void prepare_data(const Recipe::Data& data, const std::string& cache_dir) {
  constexpr int64_t any_vocabulary = std::numeric_limits<int64_t>::max();
  open_stream(data, Split::train, any_vocabulary, cache_dir);
  if (!data.validation.empty()) open_stream(data, Split::validation, any_vocabulary, cache_dir);
}

std::unique_ptr<Tokenizer> make_tokenizer(const Recipe::Data& data, const std::string& cache_dir) {
  if (data.format == "bin") throw usage_error("data.format = \"bin\" contains tokens already and has no tokenizer");
  return open_tokenizer(data, cache_dir);
}

std::string sentencepiece_model_file(const Recipe::Data& data, const std::string& cache_dir) {
  return needs_tokenizing(data) ? sentencepiece_file(data, cache_dir).string() : "";
}

std::optional<int64_t> tokenizer_vocab_size(const Recipe::Data& data, const std::string& cache_dir) {
  if (data.format == "bin") return std::nullopt;
  if (data.tokenizer == "bytes") return bytes_vocab_size;
  if (data.tokenizer == "sentencepiece" && data.tokenizer_vocab_size) return data.tokenizer_vocab_size;
  return open_tokenizer(data, cache_dir)->vocab_size();
}

}  // namespace runner
