// Trains a SentencePiece model on the text of a recipe.
#include <sentencepiece_trainer.h>

#include <map>
#include <unordered_map>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/cache.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/tokenizers.hpp"
#include "runner/data/utf8.hpp"

namespace runner {

namespace {

/// The message of the library without its source location: "./src/x.cc(580) [(condition)] message. 0".
std::string reason(const sentencepiece::util::Status& status) {
  std::string_view message = status.message();
  if (size_t condition_end = message.rfind("] "); condition_end != std::string_view::npos)
    message.remove_prefix(condition_end + 2);
  if (message.ends_with(" 0")) message.remove_suffix(2);
  return std::string(trim(message));
}

/// Longer lines are cut, because the trainer skips lines of more than 4192 bytes (its max_sentence_length).
constexpr size_t training_line_bytes_max = 4096;
/// The trainer keeps its sentences in memory. Of a larger corpus, every k-th line is used.
constexpr size_t training_bytes_max = size_t{64} << 20;

/// The lines of the files, without line ends. Of a large corpus, every k-th line: this choice depends only on the
/// files.
class TrainingLines final : public sentencepiece::SentenceIterator {
 public:
  explicit TrainingLines(const std::vector<std::string>& files) {
    for (const auto& file : files) maps_.push_back(std::make_unique<MappedFile>(file));
    for (const auto& map : maps_) {
      check_utf8(map->path(), text_of(*map), 0, map->bytes().size());
      bytes_ += map->bytes().size();
    }
    stride_ = (bytes_ + training_bytes_max - 1) / training_bytes_max;
    rest_ = text_of(*maps_[0]);
    take();
  }
  size_t used_bytes() const { return bytes_ / stride_; }
  bool done() const override { return done_; }
  void Next() override {
    for (size_t skipped = 1; skipped < stride_ && !done_; ++skipped) take();
    if (!done_) take();
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void take() {
    line_.clear();
    while (line_.empty()) {
      while (rest_.empty()) {
        if (++file_ == maps_.size()) {
          done_ = true;
          return;
        }
        rest_ = text_of(*maps_[file_]);
      }
      std::string_view near = rest_.substr(0, training_line_bytes_max + 1);
      std::string_view line = first_chunk(near.substr(0, near.find('\n')), training_line_bytes_max);
      line_ = line;
      rest_.remove_prefix(line.size());
      if (rest_.starts_with('\n')) rest_.remove_prefix(1);
    }
  }

  std::vector<std::unique_ptr<MappedFile>> maps_;
  size_t bytes_ = 0, stride_ = 1, file_ = 0;
  std::string_view rest_;
  std::string line_;
  bool done_ = false;
};

/// Options for a lossless model: rare characters, also line ends, become tokens of bytes, and there is no normalisation
/// and no added space.
std::unordered_map<std::string, std::string> training_options(int64_t vocab_size) {
  return {{"model_type", "bpe"},
          {"vocab_size", std::to_string(vocab_size)},
          {"byte_fallback", "true"},
          {"split_digits", "true"},
          {"allow_whitespace_only_pieces", "true"},
          {"character_coverage", "0.99995"},
          {"normalization_rule_name", "identity"},
          {"remove_extra_whitespaces", "false"},
          {"add_dummy_prefix", "false"},
          {"minloglevel", "2"}};
}

std::string train(const std::vector<std::string>& files, int64_t vocab_size) {
  TrainingLines lines(files);
  log::info("training a SentencePiece model of {} tokens on {} of text; this is done once", vocab_size,
            format_bytes(lines.used_bytes()));
  std::string model;
  auto status = sentencepiece::SentencePieceTrainer::Train(training_options(vocab_size), &lines, &model);
  if (!status.ok()) throw usage_error("data.tokenizer_vocab_size = {}: {}", vocab_size, reason(status));
  return model;
}

}  // namespace

fs::path trained_sentencepiece(const Recipe::Data& data, const std::string& cache_dir) {
  if (!data.tokenizer_vocab_size)
    throw usage_error(
        "data.tokenizer = \"sentencepiece\" trains a tokenizer and needs data.tokenizer_vocab_size, for example 8192");
  check_source_files("data.train", data.train);
  auto options = training_options(*data.tokenizer_vocab_size);
  std::string inputs;
  for (const auto& [option, value] : std::map(options.begin(), options.end())) inputs += option + "=" + value + "\n";
  std::string name = "sentencepiece-" + xxh3_hex(inputs + fingerprint(data.train)) + ".model";
  return make_once(cache_dir, name, [&](CacheWriter& out) {
    std::string model = train(data.train, *data.tokenizer_vocab_size);
    out.append(std::as_bytes(std::span(model)));
  });
}

}  // namespace runner
