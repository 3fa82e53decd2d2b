#include "runner/data/document_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/round_up.hpp"
#include "runner/data/order.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

/// Rows that have room left, found by the smallest sufficient room in O(log seq_len).
class OpenRows {
 public:
  explicit OpenRows(int64_t seq_len) : rows_(static_cast<size_t>(seq_len + 1)), filled_(2 * capacity(seq_len), 0) {}

  /// The row with the smallest room of at least `needed`, removed; -1: there is none.
  int64_t take(int64_t needed, int64_t& room) {
    size_t node = leaf(static_cast<size_t>(needed));
    if (filled_[node] == 0) {
      do {  // climb until there is a right neighbour, and on until that one has a row
        while (node > 1 && node % 2 == 1) node /= 2;
        if (node == 1) return -1;
        ++node;
      } while (filled_[node] == 0);
      while (node < half()) node = 2 * node + (filled_[2 * node] == 0);
    }
    room = static_cast<int64_t>(node - half());
    auto& rows = rows_[node - half()];
    const int64_t row = rows.back();
    rows.pop_back();
    count(node, -1);
    return row;
  }
  void put(int64_t row, int64_t room) {
    if (room == 0) return;
    rows_[static_cast<size_t>(room)].push_back(row);
    count(leaf(static_cast<size_t>(room)), +1);
  }

 private:
  static size_t capacity(int64_t seq_len) {
    size_t leaves = 1;
    while (leaves < static_cast<size_t>(seq_len + 1)) leaves *= 2;
    return leaves;
  }
  size_t half() const { return filled_.size() / 2; }
  size_t leaf(size_t room) const { return half() + room; }
  void count(size_t node, int change) {
    for (; node >= 1; node /= 2) filled_[node] += change;
  }

  std::vector<std::vector<int64_t>> rows_;  ///< of each room
  std::vector<int64_t> filled_;             ///< a binary tree: rows below each node
};

/// The row of each piece of a group, numbered from 0, and the number of rows.
std::vector<int64_t> rows_of_group(std::span<const DocumentPiece> pieces, int64_t seq_len, int64_t& rows) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return pieces[i].count; });
  OpenRows open(seq_len);
  std::vector<int64_t> row_of(pieces.size());
  rows = 0;
  for (size_t i : order) {
    RUNNER_CHECK(pieces[i].inputs() <= seq_len);
    int64_t room = seq_len, row = open.take(pieces[i].inputs(), room);
    if (row < 0) row = rows++;
    open.put(row, room - pieces[i].inputs());
    row_of[i] = row;
  }
  return row_of;
}

class DocumentDataset final : public Dataset {
 public:
  DocumentDataset(std::shared_ptr<const TokenStream> stream, Rows rows, const DocumentCounts& counts, int64_t seq_len,
                  const Recipe::Data& data)
      : stream_(std::move(stream)),
        rows_(std::move(rows)),
        counts_(counts),
        seq_len_(seq_len),
        packed_(data.packs_sequences()) {
    if (data.group_by_length) buckets_.emplace(rows_.size(), [this](int64_t sample) { return inputs_of(sample); });
  }

  int64_t size() const override { return rows_.size(); }
  std::string describe() const override;
  int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const override {
    return buckets_ && options.shuffle ? buckets_->at(epoch, position, options.seed)
                                       : Dataset::sample_at(epoch, position, options);
  }
  std::vector<BatchField> fields() const override { return fields_with(seq_len_); }

  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override {
    int64_t longest = 1;
    for (int64_t sample : samples) longest = std::max(longest, inputs_of(sample));
    return fields_with(padded_length(longest, seq_len_));
  }

  int64_t weight(int64_t sample) const override {
    int64_t weight = 0;
    for (const auto& piece : rows_.row(sample)) weight += piece.targets;
    return weight;
  }

  int64_t units(int64_t sample) const override { return inputs_of(sample); }

  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    auto inputs = batch.row<int64_t>(token_field::inputs, row);
    auto targets = batch.row<int64_t>(token_field::targets, row);
    std::ranges::fill(inputs, 0);
    std::ranges::fill(targets, ignored_target);
    for (const auto& piece : rows_.row(sample)) {
      const auto count = static_cast<size_t>(piece.inputs());
      stream_->read(piece.first, inputs.first(count));
      stream_->read(piece.first + 1, targets.first(count));
      stream_->ignore_unsupervised(piece.first + 1, targets.first(count));
      inputs = inputs.subspan(count);
      targets = targets.subspan(count);
    }
    if (packed_) write_positions(sample, batch.row<int64_t>(token_field::positions, row));
  }

 private:
  std::vector<BatchField> fields_with(int64_t length) const {
    return packed_ ? packed_fields(length) : token_fields(length);
  }

  void write_positions(int64_t sample, std::span<int64_t> positions) const {
    for (const auto& piece : rows_.row(sample))
      positions = write_sequence(positions, static_cast<size_t>(piece.inputs()));
    write_padding(positions);
  }

  int64_t inputs_of(int64_t sample) const {
    int64_t inputs = 0;
    for (const auto& piece : rows_.row(sample)) inputs += piece.inputs();
    return inputs;
  }

  std::shared_ptr<const TokenStream> stream_;
  Rows rows_;
  DocumentCounts counts_;
  int64_t seq_len_;
  bool packed_;
  std::optional<LengthBuckets> buckets_;
};

std::string DocumentDataset::describe() const {
  const auto percent = [](int64_t part, int64_t all) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, all));
  };
  std::string text = fmt::format("{} of at most {} tokens (", counted(size(), "sample"), seq_len_);
  if (packed_) {
    int64_t inputs = 0;
    for (const auto& piece : rows_.pieces) inputs += piece.inputs();
    text += fmt::format("{} packed, which fill {:.1f} %; ", counted(std::ssize(rows_.pieces), "sequence"),
                        percent(inputs, size() * seq_len_));
  }
  text += fmt::format("{:.0f} % of the tokens are supervised",
                      percent(counts_.targets, counts_.tokens - counts_.documents));
  if (counts_.cut > 0) text += fmt::format("; {} too long and cut", counts_.cut);
  if (counts_.dropped > 0) text += fmt::format("; {} too long and left out", counts_.dropped);
  if (counts_.no_targets > 0) text += fmt::format("; {} left out without a supervised token", counts_.no_targets);
  return text + ")";
}

int32_t count_targets(const TokenStream& stream, int64_t first, int64_t count) {
  std::vector<int64_t> targets(static_cast<size_t>(count - 1), 0);
  stream.ignore_unsupervised(first + 1, targets);
  return static_cast<int32_t>(std::ranges::count(targets, 0));
}

/// Appends the pieces of a document that is too long.
void cut_document(const TokenStream& stream, int64_t begin, int64_t end, int64_t seq_len, DocumentPieces& out) {
  bool any = false;
  // The last target of a piece is the first input of the next one, so each token is a target once.
  for (int64_t at = begin; at + 1 < end; at += seq_len) {
    const int64_t count = std::min(seq_len + 1, end - at);
    const int32_t targets = count_targets(stream, at, count);
    if (targets == 0) continue;
    any = true;
    out.pieces.push_back({at, static_cast<int32_t>(count), targets});
  }
  ++out.counts.cut;
  out.counts.no_targets += !any;
}

TooLong too_long_of(const std::string& name) {
  if (name == "drop") return TooLong::drop;
  if (name == "split") return TooLong::split;
  if (name == "error") return TooLong::refuse;
  RUNNER_CHECK(name == "truncate", "data.too_long = {}", name);
  return TooLong::truncate;
}

[[noreturn]] void refuse_empty(const Recipe::Data& data, Split split, const DocumentCounts& counts, int64_t seq_len) {
  const char* key = split == Split::validation && !data.validation.empty() ? "data.validation" : "data.train";
  const char* name = split == Split::validation ? "validation" : "training";
  if (counts.documents == 0 && data.validation_fraction)
    throw usage_error("data.validation_fraction = {} leaves no document for {}", *data.validation_fraction, name);
  if (counts.documents == 0) throw usage_error("{}: the files have no records", key);
  if (counts.dropped == counts.documents)
    throw usage_error(
        "data.too_long = \"drop\" leaves no sample: all {} have more than data.seq_len = {} allows ({} tokens)",
        counted(counts.documents, "document"), seq_len, seq_len + 1);
  throw usage_error(
      "{}: no document of {} has a supervised token{}, so there is nothing to learn; data.train_on names the messages "
      "whose tokens are supervised",
      key, counts.documents,
      counts.cut > 0 ? fmt::format(" among its first {} (data.seq_len, data.too_long)", seq_len + 1) : "");
}

}  // namespace

std::span<const DocumentPiece> Rows::row(int64_t index) const {
  if (ends.empty()) return std::span(pieces).subspan(static_cast<size_t>(index), 1);
  const int64_t begin = index == 0 ? 0 : ends[static_cast<size_t>(index - 1)];
  return std::span(pieces).subspan(static_cast<size_t>(begin),
                                   static_cast<size_t>(ends[static_cast<size_t>(index)] - begin));
}

Rows pack(std::vector<DocumentPiece> pieces, int64_t seq_len, size_t group) {
  Rows packed;
  packed.pieces.reserve(pieces.size());
  for (size_t begin = 0; begin < pieces.size(); begin += group) {
    const auto members = std::span(pieces).subspan(begin, std::min(group, pieces.size() - begin));
    int64_t rows = 0;
    const auto row_of = rows_of_group(members, seq_len, rows);
    // Counting sort by row: the pieces of a row stay in the order of the data.
    std::vector<int64_t> ends(static_cast<size_t>(rows), 0);
    for (int64_t row : row_of) ++ends[static_cast<size_t>(row)];
    const auto first = std::ssize(packed.pieces);
    std::exclusive_scan(ends.begin(), ends.end(), ends.begin(), first);
    packed.pieces.resize(packed.pieces.size() + members.size());
    for (size_t i = 0; i < members.size(); ++i)
      packed.pieces[static_cast<size_t>(ends[static_cast<size_t>(row_of[i])]++)] = members[i];
    packed.ends.insert(packed.ends.end(), ends.begin(), ends.end());
  }
  return packed;
}

int64_t padded_length(int64_t longest, int64_t seq_len) { return std::min(seq_len, round_up(longest, 8)); }

int64_t training_documents(const DocumentIndex& documents, double fraction) {
  const int64_t tokens = documents.ends.back();
  const auto wanted = tokens - static_cast<int64_t>(std::llround(static_cast<double>(tokens) * fraction));
  const auto after = std::ranges::lower_bound(documents.ends, wanted);
  const int64_t index = after - documents.ends.begin();
  return *after - wanted < wanted - documents.begin(index) ? index + 1 : index;
}

DocumentPieces cut_documents(const OpenData& data, int64_t first, int64_t last, int64_t seq_len, TooLong too_long,
                             bool of_part) {
  DocumentPieces cut;
  auto& counts = cut.counts;
  for (int64_t d = first; d < last; ++d) {
    const int64_t begin = data.documents->begin(d), end = data.documents->end(d), tokens = end - begin;
    const int32_t targets = data.documents->targets[static_cast<size_t>(d)];
    ++counts.documents;
    counts.tokens += tokens;
    counts.targets += targets;
    if (targets == 0) {
      ++counts.no_targets;
    } else if (tokens <= seq_len + 1) {
      cut.pieces.push_back({begin, static_cast<int32_t>(tokens), targets});
    } else if (too_long == TooLong::refuse) {
      throw usage_error("data.too_long = \"error\": document {} of {}{} has {} tokens, and data.seq_len = {} allows {}",
                        d + 1, data.documents->size(), of_part ? " in a part of the data" : "", tokens, seq_len,
                        seq_len + 1);
    } else if (too_long == TooLong::drop) {
      ++counts.dropped;
    } else {
      cut_document(*data.stream, begin, too_long == TooLong::split ? end : begin + seq_len + 1, seq_len, cut);
    }
  }
  return cut;
}

std::unique_ptr<Dataset> document_dataset(const Recipe::Data& data, Split split, OpenData opened, int64_t seq_len,
                                          StreamedPart* part) {
  int64_t first = 0, last = opened.documents->size();
  if (data.validation_fraction && last > 0)
    (split == Split::validation ? first : last) = training_documents(*opened.documents, *data.validation_fraction);
  auto [pieces, counts] = cut_documents(opened, first, last, seq_len, too_long_of(data.too_long), part != nullptr);
  if (part) part->used = opened.stream->size();
  if (pieces.empty() && part) return nullptr;
  if (pieces.empty()) refuse_empty(data, split, counts, seq_len);
  auto rows = data.packing == "best_fit" ? pack(std::move(pieces), seq_len) : Rows{.pieces = std::move(pieces)};
  return std::make_unique<DocumentDataset>(std::move(opened.stream), std::move(rows), counts, seq_len, data);
}

}  // namespace runner
