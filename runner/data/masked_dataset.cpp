// Samples of masked language modelling.
#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "runner/data/document_dataset.hpp"
#include "runner/data/stream_dataset.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

/// The rule by which tokens are masked, and the tokens around each window of a text.
struct MaskRule {
  double probability = 0;
  int64_t mask = 0, vocab_size = 0;
  std::optional<int64_t> before = {}, after = {};
  std::vector<bool> special = {};  ///< by id

  int64_t frame() const { return before.has_value() + after.has_value(); }
  int64_t predicted(int64_t candidates) const {
    return std::max<int64_t>(1, std::llround(probability * static_cast<double>(candidates)));
  }
};

MaskRule mask_rule(const Recipe::Data& data, const Tokenizer& tokenizer) {
  const auto mask = tokenizer.special_tokens().mask;
  if (!mask)
    throw usage_error(
        "data.objective = \"masked_lm\": the tokenizer \"{}\" has no mask token, such as [MASK] or <mask>",
        data.tokenizer);
  MaskRule rule{.probability = data.mlm_probability, .mask = *mask, .vocab_size = tokenizer.vocab_size()};
  for (int64_t id = 0; id < rule.vocab_size; ++id)
    rule.special.push_back(tokenizer.is_special(static_cast<int32_t>(id)));
  if (data.format != "text") return rule;
  const auto text = tokenizer.encode("a"), with_special = tokenizer.encode("a", /*add_special_tokens=*/true);
  const auto inside = std::ranges::search(with_special, text);
  if (inside.begin() != with_special.begin()) rule.before = with_special.front();
  if (inside.end() != with_special.end()) rule.after = with_special.back();
  return rule;
}

/// The numbers of the tokens [first, first + count) that may be predicted: those that are supervised and not special.
std::vector<int64_t> candidates_of(const TokenStream& stream, const MaskRule& rule, int64_t first,
                                   std::span<const int64_t> tokens) {
  std::vector<int64_t> supervised(tokens.size(), 0), candidates;
  stream.ignore_unsupervised(first, supervised);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (supervised[i] != ignored_target && !rule.special[static_cast<size_t>(tokens[i])])
      candidates.push_back(static_cast<int64_t>(i));
  return candidates;
}

class MaskedDataset final : public Dataset {
 public:
  MaskedDataset(std::shared_ptr<const TokenStream> stream, Rows rows, int64_t seq_len, MaskRule rule)
      : stream_(std::move(stream)), rows_(std::move(rows)), seq_len_(seq_len), rule_(std::move(rule)) {}

  int64_t size() const override { return rows_.size(); }
  std::string describe() const override {
    int64_t tokens = 0, predicted = 0;
    for (const auto& piece : rows_.pieces) {
      tokens += piece.targets;
      predicted += rule_.predicted(piece.targets);
    }
    return fmt::format("{} of at most {} tokens ({:.1f} % of the tokens are predicted)", counted(size(), "sample"),
                       seq_len_, 100 * static_cast<double>(predicted) / static_cast<double>(tokens));
  }
  std::vector<BatchField> fields() const override { return packed_fields(seq_len_); }
  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override {
    int64_t longest = 1;
    for (const int64_t sample : samples) longest = std::max(longest, units(sample));
    return packed_fields(padded_length(longest, seq_len_));
  }
  int64_t units(int64_t sample) const override {
    int64_t length = 0;
    for (const auto& piece : rows_.row(sample)) length += piece.inputs() + rule_.frame();
    return length;
  }
  int64_t weight(int64_t sample) const override {
    int64_t weight = 0;
    for (const auto& piece : rows_.row(sample)) weight += rule_.predicted(piece.targets);
    return weight;
  }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override { draw(sample, batch, row, {}); }

  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override {
    auto inputs = batch.row<int64_t>(token_field::inputs, row);
    auto targets = batch.row<int64_t>(token_field::targets, row);
    auto positions = batch.row<int64_t>(token_field::positions, row);
    std::ranges::fill(inputs, 0);
    std::ranges::fill(targets, ignored_target);
    uint64_t key = mix64(static_cast<uint64_t>(draw.seed) ^ 0x6d61736b65640000u);
    key = mix64(mix64(key + static_cast<uint64_t>(draw.epoch)) + static_cast<uint64_t>(sample));
    for (const auto& piece : rows_.row(sample)) {
      const auto length = static_cast<size_t>(piece.inputs() + rule_.frame());
      write(piece, key, inputs.first(length), targets.first(length));
      inputs = inputs.subspan(length);
      targets = targets.subspan(length);
      positions = write_sequence(positions, length);
      key = mix64(key);
    }
    write_padding(positions);
  }

 private:
  void write(const DocumentPiece& piece, uint64_t key, std::span<int64_t> inputs, std::span<int64_t> targets) const {
    if (rule_.before) inputs.front() = *rule_.before;
    if (rule_.after) inputs.back() = *rule_.after;
    const auto first = static_cast<size_t>(rule_.before.has_value()), count = static_cast<size_t>(piece.inputs());
    const auto tokens = inputs.subspan(first, count), predictions = targets.subspan(first, count);
    stream_->read(piece.first, tokens);
    auto chosen = candidates_of(*stream_, rule_, piece.first, tokens);
    const auto number = static_cast<size_t>(rule_.predicted(std::ssize(chosen)));
    std::ranges::sort(chosen, {}, [&](int64_t place) { return draw_of(key, place, 0); });
    chosen.resize(std::min(number, chosen.size()));
    for (const int64_t place : chosen) {
      auto& token = tokens[static_cast<size_t>(place)];
      predictions[static_cast<size_t>(place)] = token;
      const auto part = draw_of(key, place, 1) % 10;
      if (part < 8) token = rule_.mask;
      if (part == 8) token = static_cast<int64_t>(draw_of(key, place, 2) % static_cast<uint64_t>(rule_.vocab_size));
    }
  }

  /// A random number for a place of a sequence.
  static uint64_t draw_of(uint64_t key, int64_t place, uint64_t purpose) {
    return mix64(key + mix64(3 * static_cast<uint64_t>(place) + purpose));
  }

  std::shared_ptr<const TokenStream> stream_;
  Rows rows_;  ///< the `count` of a piece is one more than its tokens, and `targets` are its candidates
  int64_t seq_len_;
  MaskRule rule_;
};

/// Collects pieces with candidates.
class PieceList {
 public:
  PieceList(const TokenStream& stream, const MaskRule& rule) : stream_(stream), rule_(rule) {}
  void add(int64_t first, int64_t tokens) {
    std::vector<int64_t> ids(static_cast<size_t>(tokens));
    stream_.read(first, ids);
    const auto candidates = std::ssize(candidates_of(stream_, rule_, first, ids));
    if (candidates > 0) pieces.push_back({first, static_cast<int32_t>(tokens + 1), static_cast<int32_t>(candidates)});
  }
  std::vector<DocumentPiece> pieces;

 private:
  const TokenStream& stream_;
  const MaskRule& rule_;
};

void add_documents(PieceList& list, const Recipe::Data& data, Split split, const DocumentIndex& documents,
                   int64_t seq_len, bool of_part) {
  int64_t first = 0, last = documents.size();
  if (data.validation_fraction && last > 0)
    (split == Split::validation ? first : last) = training_documents(documents, *data.validation_fraction);
  for (int64_t d = first; d < last; ++d) {
    const int64_t begin = documents.begin(d), end = documents.ends[static_cast<size_t>(d)];
    if (end - begin > seq_len && data.too_long == "drop") continue;
    if (end - begin > seq_len && data.too_long == "error")
      throw usage_error("data.too_long = \"error\": document {} of {}{} has {} tokens, and data.seq_len = {}", d + 1,
                        documents.size(), of_part ? " in a part of the data" : "", end - begin, seq_len);
    const int64_t until = data.too_long == "split" ? end : std::min(end, begin + seq_len);
    for (int64_t at = begin; at < until; at += seq_len) list.add(at, std::min(seq_len, until - at));
  }
}

}  // namespace

std::unique_ptr<Dataset> masked_dataset(const Recipe::Data& data, Split split, OpenData opened, int64_t seq_len,
                                        const Tokenizer& tokenizer, StreamedPart* streamed) {
  auto rule = mask_rule(data, tokenizer);
  PieceList list(*opened.stream, rule);
  if (opened.documents) {
    add_documents(list, data, split, *opened.documents, seq_len, streamed != nullptr);
    if (streamed) streamed->used = opened.stream->size();
  } else {
    StreamPart part{0, opened.stream->size()};
    if (data.validation_fraction) part = part_of_split(part.count, *data.validation_fraction, split);
    const int64_t window = seq_len - rule.frame();
    if (window < 1)
      throw usage_error("data.seq_len = {}: the tokenizer puts {} tokens around each sample", seq_len, rule.frame());
    if (streamed) part = {streamed->begin, opened.stream->size() - streamed->begin};
    int64_t at = 0;
    for (; at + window <= part.count; at += window) list.add(part.first + at, window);
    if (streamed) streamed->used = part.first + at;
  }
  if (list.pieces.empty() && streamed) return nullptr;
  if (list.pieces.empty())
    throw usage_error("{} has no sample for {} with a token that can be predicted", opened.stream->describe(),
                      split == Split::validation ? "validation" : "training");
  auto rows =
      data.packing == "best_fit" ? pack(std::move(list.pieces), seq_len) : Rows{.pieces = std::move(list.pieces)};
  return std::make_unique<MaskedDataset>(std::move(opened.stream), std::move(rows), seq_len, std::move(rule));
}

}  // namespace runner
