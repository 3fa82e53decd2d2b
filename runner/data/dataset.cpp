// Data sets by name: opens the token stream of a split and cuts it into samples.
#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/data/data.hpp"
#include "runner/data/token_stream.hpp"

namespace runner {

namespace {

std::shared_ptr<TokenStream> open_stream(const Recipe::Data& data, const std::vector<std::string>& files,
                                         int64_t vocab_size, const std::string& cache_dir) {
  if (data.format == "bin") return open_bin(files, data.token_dtype, vocab_size);
  if (data.tokenizer == "bytes") return open_text_bytes(files);
  auto tokens = tokenized_file(data, files, cache_dir);
  bool wide = make_tokenizer(data, cache_dir)->vocab_size() > 65536;
  return open_bin({tokens}, wide ? "uint32" : "uint16", vocab_size);
}

/// Tokens [begin, end) of a stream as samples.
class StreamDataset : public Dataset {
 public:
  StreamDataset(std::shared_ptr<TokenStream> stream, int64_t begin, int64_t end, int64_t seq_len,
                const std::string& what)
      : stream_(std::move(stream)), begin_(begin), seq_len_(seq_len), size_((end - begin - 1) / seq_len) {
    if (end - begin <= seq_len)
      throw usage_error("{} holds {} tokens, too few for one sample of {} + 1 (data.seq_len + the last target)", what,
                        end - begin, seq_len);
  }
  int64_t size() const override { return size_; }
  int64_t seq_len() const override { return seq_len_; }

  void read(int64_t sample, std::span<int64_t> inputs, std::span<int64_t> targets) const override {
    int64_t first = begin_ + sample * seq_len_;
    stream_->read(first, inputs);
    std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
    stream_->read(first + seq_len_, targets.last(1));
  }

 private:
  std::shared_ptr<TokenStream> stream_;
  int64_t begin_, seq_len_, size_;
};

}  // namespace

std::optional<int64_t> tokenizer_vocab_size(const Recipe::Data& data, const std::string& cache_dir) {
  if (data.format == "bin") return std::nullopt;
  if (data.tokenizer == "bytes") return 256;
  return make_tokenizer(data, cache_dir)->vocab_size();
}

void prepare_data(const Recipe::Data& data, const std::string& cache_dir) {
  for (const auto* files : {&data.train, &data.validation}) {
    for (const auto& file : *files) check_data_file(file);
    if (!files->empty() && data.format == "text" && data.tokenizer != "bytes") tokenized_file(data, *files, cache_dir);
  }
}

/// With validation_fraction, the last ceil(fraction x tokens) tokens are validation and the rest is training.
std::unique_ptr<Dataset> open_dataset(const Recipe::Data& data, Split split, int64_t seq_len, int64_t vocab_size,
                                      const std::string& cache_dir) {
  bool own_files = split == Split::train || !data.validation.empty();
  if (!own_files && !data.validation_fraction) return nullptr;
  const auto& files = split == Split::validation && own_files ? data.validation : data.train;
  if (files.empty()) throw usage_error("data.train names no files");
  auto stream = open_stream(data, files, vocab_size, cache_dir);
  int64_t size = stream->size(), begin = 0, end = size;
  if (data.validation_fraction) {
    auto held_out = static_cast<int64_t>(std::ceil(static_cast<double>(size) * *data.validation_fraction));
    if (split == Split::train)
      end = size - held_out;
    else
      begin = size - held_out;
  }
  std::string what = split == Split::train ? "the training data"
                     : own_files           ? "the validation data"
                                           : "data.validation_fraction leaves validation data that";
  return std::make_unique<StreamDataset>(std::move(stream), begin, end, seq_len, what);
}

}  // namespace runner
