// SentencePiece models: loading, encoding in parts, and training on the text of the recipe.
#include <sentencepiece_processor.h>
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

struct SentencePieceTokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
  sentencepiece::SentencePieceProcessor continuation;
  std::string hash;
};

namespace {

/// The message of the library without its source location: "./src/x.cc(580) [(condition)] message. 0".
std::string reason(const sentencepiece::util::Status& status) {
  std::string_view message = status.message();
  if (size_t condition_end = message.rfind("] "); condition_end != std::string_view::npos)
    message.remove_prefix(condition_end + 2);
  if (message.ends_with(" 0")) message.remove_suffix(2);
  return std::string(trim(message));
}

/// The model with add_dummy_prefix off. Protocol buffers merge concatenated messages, so appending a ModelProto that
/// contains only normalizer_spec (field 3) { add_dummy_prefix (field 3) = false } sets that one field.
std::string without_dummy_prefix(std::string model) { return model.append("\x1a\x02\x18\x00", 4); }

constexpr const char* other_tokenizers =
    "with other tokenizers, encode the text yourself and use data.format = \"bin\"";

void load(sentencepiece::SentencePieceProcessor& processor, const std::string& model, const fs::path& path) {
  if (auto status = processor.LoadFromSerializedProto(model); !status.ok())
    throw usage_error("data.tokenizer: {} is not a SentencePiece model; {}", path.string(), other_tokenizers);
}

std::vector<int32_t> encode_with(const sentencepiece::SentencePieceProcessor& processor, std::string_view text) {
  std::vector<int> tokens;
  if (auto status = processor.Encode({text.data(), text.size()}, &tokens); !status.ok())
    throw environment_error("SentencePiece cannot encode the text: {}", reason(status));
  return tokens;
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

fs::path trained_model(const Recipe::Data& data, const std::string& cache_dir) {
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

/// The model file. The name of a missing file may be a misspelled word: "sentencepeice".
fs::path given_model(const std::string& name) {
  fs::path path = name;
  if (fs::is_regular_file(path)) return path;
  if (fs::is_directory(path))
    throw usage_error("data.tokenizer: {} is a folder; name the SentencePiece model in it", name);
  auto near = nearest(path.filename().string(), {"bytes", "sentencepiece"});
  if (!near) near = nearest_file(path);
  throw usage_error("data.tokenizer: there is no file {}, and it is neither \"bytes\" nor \"sentencepiece\"; {}", name,
                    near ? "did you mean " + *near + "?" : other_tokenizers);
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const fs::path& model) : impl_(std::make_unique<Impl>()) {
  std::string bytes = read_file(model);
  load(impl_->processor, bytes, model);
  // A model that drops line ends treats them as spaces between words. Then the prefix of a part is that space.
  load(impl_->continuation, without_dummy_prefix(bytes), model);
  if (encode_with(impl_->continuation, "\n").empty()) load(impl_->continuation, bytes, model);
  impl_->hash = xxh3_hex(bytes);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

int64_t SentencePieceTokenizer::vocab_size() const { return impl_->processor.GetPieceSize(); }

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  return encode_with(impl_->processor, text);
}

std::vector<int32_t> SentencePieceTokenizer::encode_continuation(std::string_view text) const {
  return encode_with(impl_->continuation, text);
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> tokens) const {
  for (int32_t token : tokens)
    if (token < 0 || token >= vocab_size())
      throw usage_error("token {} is not in the tokenizer's vocabulary of {}", token, vocab_size());
  std::string text;
  if (auto status = impl_->processor.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text); !status.ok())
    throw environment_error("SentencePiece cannot decode the tokens: {}", reason(status));
  return text;
}

int32_t SentencePieceTokenizer::unknown_token() const { return impl_->processor.unk_id(); }

const std::string& SentencePieceTokenizer::hash() const { return impl_->hash; }

fs::path sentencepiece_file(const Recipe::Data& data, const std::string& cache_dir) {
  return data.tokenizer == "sentencepiece" ? trained_model(data, cache_dir) : given_model(data.tokenizer);
}

std::unique_ptr<SentencePieceTokenizer> open_sentencepiece(const Recipe::Data& data, const std::string& cache_dir) {
  return std::make_unique<SentencePieceTokenizer>(sentencepiece_file(data, cache_dir));
}

}  // namespace runner
