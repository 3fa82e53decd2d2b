// Trains a SentencePiece model on the texts of a recipe.
#include <sentencepiece_trainer.h>

#include <map>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/cache.hpp"
#include "runner/data/data.hpp"
#include "runner/data/record_reader.hpp"
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
/// The trainer keeps its sentences in memory.
constexpr size_t training_bytes_max = size_t{64} << 20;

/// Takes a line without its end from the beginning of a text.
std::string_view take_line(std::string_view& text) {
  const std::string_view near = text.substr(0, training_line_bytes_max + 1);
  const auto line = first_chunk(near.substr(0, near.find('\n')), training_line_bytes_max);
  text.remove_prefix(line.size());
  if (text.starts_with('\n')) text.remove_prefix(1);
  return line;
}

/// The lines that train a model. Of much text, these are every second line or record, every fourth and so on: this choice depends only
/// on the files.
class TrainingLines final : public sentencepiece::SentenceIterator {
 public:
  void add_text_file(const std::string& file) {
    const MappedFile map(file);
    check_utf8(map.path(), text_of(map), 0, map.bytes().size());
    for (auto rest = text_of(map); !rest.empty();)
      if (const auto line = take_line(rest); !line.empty() && wants_next()) keep(line);
  }
  void add_records(const Records& records, const RecordReader& reader) {
    for (const auto& part : records.parts(size_t{8} << 20))
      records.for_each(part, [&](const JsonRecord& record, size_t) {
        if (!wants_next()) return true;
        for (const auto& text : reader.texts(record))
          for (std::string_view rest = text; !rest.empty();)
            if (const auto line = take_line(rest); !line.empty()) keep(line);
        return true;
      });
  }
  size_t bytes() const { return bytes_; }
  const std::vector<std::string>& lines() const { return lines_; }
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  bool wants_next() { return seen_++ % stride_ == 0; }
  void keep(std::string_view line) {
    lines_.emplace_back(line);
    bytes_ += line.size();
    if (bytes_ <= training_bytes_max) return;
    stride_ *= 2;
    bytes_ = 0;
    for (size_t i = 0; 2 * i < lines_.size(); ++i) {
      std::swap(lines_[i], lines_[2 * i]);
      bytes_ += lines_[i].size();
    }
    lines_.resize((lines_.size() + 1) / 2);
  }

  std::vector<std::string> lines_;
  size_t bytes_ = 0, seen_ = 0, stride_ = 1, at_ = 0;
};

constexpr float character_coverage = 0.99995f;

/// Options for a lossless model: rare characters, also line ends, become tokens of bytes, and there is no normalisation
/// and no added space.
std::map<std::string, std::string> training_options(const Recipe::Data& data) {
  std::map<std::string, std::string> options{{"model_type", "bpe"},
                                             {"vocab_size", std::to_string(*data.tokenizer_vocab_size)},
                                             {"byte_fallback", "true"},
                                             {"split_digits", "true"},
                                             {"allow_whitespace_only_pieces", "true"},
                                             {"character_coverage", fmt::format("{}", character_coverage)},
                                             {"normalization_rule_name", "identity"},
                                             {"remove_extra_whitespaces", "false"},
                                             {"add_dummy_prefix", "false"},
                                             {"minloglevel", "2"}};
  const auto markers = markers_of_template(data);
  if (!markers.empty()) options["user_defined_symbols"] = join({markers.begin(), markers.end()}, ",");
  return options;
}

/// The texts of records that the loss or its context has, without tokens.
std::unique_ptr<RecordReader> reader_of_texts(const Recipe::Data& data) {
  return make_record_reader(data, data.train, make_bytes_tokenizer());
}

TrainingLines lines_of(const Recipe::Data& data) {
  TrainingLines lines;
  for (const auto& [name, source, weight, epochs, format] : sources_of(data)) {
    const auto reader = source.has_records() ? reader_of_texts(source) : nullptr;
    for (const auto& file : source.train)
      reader ? lines.add_records(*open_records(source, file), *reader) : lines.add_text_file(file);
  }
  return lines;
}

/// Throws Error(usage) if the vocabulary has no room for the characters that the trainer requires: those that make up character_coverage
/// of the lines, the most frequent first. Tabs do not count, and neither do markers, for which the trainer writes tabs.
void check_vocabulary(const Recipe::Data& data, const TrainingLines& lines) {
  const auto markers = markers_of_template(data);
  std::map<char32_t, int64_t> counts;
  int64_t all = 0;
  for (auto line : lines.lines()) {
    if (line.find("\u2585") != std::string::npos) continue;  // the trainer skips them
    for (const auto& marker : markers)
      for (size_t at = 0; (at = line.find(marker, at)) != std::string::npos;) line.replace(at, marker.size(), "\t");
    for (size_t at = 0; at < line.size() && at + unicode::length_of(line[at]) <= line.size();) {
      const auto character = unicode::next(line, at);
      if (character == 0) continue;
      ++counts[character == ' ' ? U'\u2581' : character];
      ++all;
    }
  }
  std::vector<std::pair<int64_t, bool>> sorted;  // the bool: it is a tab, which is the first of equally frequent ones
  for (const auto& [character, count] : counts) sorted.emplace_back(count, character == '\t');
  std::ranges::sort(sorted, std::greater());
  int64_t covered = 0, needed = 3 + 256 + std::ssize(markers);  // special tokens and bytes
  for (const auto& [count, is_tab] : sorted) {
    if (static_cast<float>(1.0 * static_cast<double>(covered) / static_cast<double>(all)) >= character_coverage) break;
    covered += count;
    needed += !is_tab;
  }
  if (*data.tokenizer_vocab_size < needed)
    throw usage_error(
        "data.tokenizer_vocab_size = {} is too small: the texts need at least {} tokens, for their characters, for "
        "bytes, and special ones",
        *data.tokenizer_vocab_size, needed);
}

/// The end of a message about data.tokenizer_vocab_size, made from the message of the trainer.
std::string vocabulary_mistake(const std::string& message) {
  constexpr std::string_view most = "Please set it to a value <= ";
  const auto at = message.find(most);
  if (at == std::string::npos) return ": " + message;
  auto number = message.substr(at + most.size());
  number.resize(std::min(number.size(), number.find_first_not_of("0123456789")));
  return fmt::format(" is too large: the texts give at most {} tokens", number);
}

std::string train(const Recipe::Data& data, const std::map<std::string, std::string>& options) {
  auto lines = lines_of(data);
  check_vocabulary(data, lines);
  log::info("training a SentencePiece model of {} tokens on {} of text; this is done once", *data.tokenizer_vocab_size,
            format_bytes(static_cast<double>(lines.bytes())));
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train({options.begin(), options.end()}, &lines, &model);
  if (!status.ok())
    throw usage_error("data.tokenizer_vocab_size = {}{}", *data.tokenizer_vocab_size,
                      vocabulary_mistake(reason(status)));
  return model;
}

}  // namespace

void check_trained_vocabulary(const Recipe::Data& data) {
  if (data.tokenizer_vocab_size) check_vocabulary(data, lines_of(data));
}

fs::path trained_sentencepiece(const Recipe::Data& data, const std::string& cache_dir) {
  if (!data.tokenizer_vocab_size)
    throw usage_error(
        "data.tokenizer = \"sentencepiece\" trains a tokenizer and needs data.tokenizer_vocab_size, for example 8192");
  const auto options = training_options(data);
  std::string inputs;
  for (const auto& [option, value] : options) inputs += option + "=" + value + "\n";
  for (const auto& [name, source, weight, epochs, format] : sources_of(data)) {
    const std::string key = name.empty() ? "data.train" : "data.sources";
    source.is_plugin() ? check_source_paths(key, source.train) : check_source_files(key, source.train);
    inputs += fingerprint(source.train);
    if (source.has_records()) inputs += reader_of_texts(source)->settings().dump();
  }
  return make_once(cache_dir, "sentencepiece-" + xxh3_hex(inputs) + ".model", [&](CacheWriter& out) {
    const std::string model = train(data, options);
    out.append(std::as_bytes(std::span(model)));
  });
}

}  // namespace runner
