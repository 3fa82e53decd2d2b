#include "runner/data/labelled_texts.hpp"

#include <algorithm>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/data/data.hpp"
#include "runner/data/document_dataset.hpp"
#include "runner/data/order.hpp"
#include "runner/data/records.hpp"
#include "runner/data/row_targets.hpp"
#include "runner/data/table_data.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

/// The tokens of a record in the stream, after truncation.
struct TextRow {
  int64_t first = 0, second = 0;  ///< where they begin
  PairLengths lengths = {};
};

/// The tokens around the texts of a row, and its padding.
struct TextForm {
  TokenFrame frame;
  int64_t pad_id = 0;
};

TextForm form_of(const Tokenizer& tokenizer, bool pairs) {
  const auto roles = tokenizer.special_tokens();
  return {.frame = tokenizer.frame(pairs), .pad_id = roles.pad.value_or(roles.eos.value_or(0))};
}

class LabelledTexts final : public Dataset {
 public:
  LabelledTexts(const Recipe::Data& data, OpenData opened, std::vector<TextRow> rows, RowTargets targets, TextForm form,
                TableSchema schema, int64_t seq_len)
      : stream_(std::move(opened.stream)),
        rows_(std::move(rows)),
        targets_(std::move(targets)),
        frame_(std::move(form.frame)),
        pad_id_(form.pad_id),
        schema_(std::move(schema)),
        seq_len_(seq_len),
        pairs_(data.has_text_pairs()) {
    frame_tokens_ = std::ranges::count(frame_, FramePart::Kind::token, &FramePart::kind);
    if (data.group_by_length) buckets_.emplace(size(), [this](int64_t sample) { return length(sample); });
  }

  int64_t size() const override { return std::ssize(rows_); }
  int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const override {
    return buckets_ && options.shuffle ? buckets_->at(epoch, position, options.seed)
                                       : Dataset::sample_at(epoch, position, options);
  }
  std::string describe() const override {
    std::string text =
        fmt::format("{} of at most {} tokens", counted(size(), pairs_ ? "pair of texts" : "text"), seq_len_);
    if (pairs_ && size() != 1) text = fmt::format("{} pairs of texts of at most {} tokens", size(), seq_len_);
    if (schema_.target_type == "class")
      text += fmt::format(" with one of {} labels", schema_.targets.front().classes.size());
    if (cut > 0) text += fmt::format(" ({} too long and cut)", cut);
    if (dropped > 0) text += fmt::format(" ({} too long and left out)", dropped);
    return text;
  }
  std::vector<BatchField> fields() const override { return fields_with(seq_len_); }
  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override {
    int64_t longest = 1;
    for (const auto sample : samples) longest = std::max(longest, length(sample));
    return fields_with(padded_length(longest, seq_len_));
  }
  int64_t weight(int64_t) const override { return 1; }
  int64_t units(int64_t) const override { return 1; }
  nlohmann::json learned() const override { return schema_.to_json(); }

  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    const auto& texts = rows_[static_cast<size_t>(sample)];
    const auto inputs = batch.row<int64_t>(inputs_field, row), positions = batch.row<int64_t>(positions_field, row);
    const auto types = pairs_ ? batch.row<int64_t>(types_field, row) : std::span<int64_t>();
    std::ranges::fill(inputs, pad_id_);
    std::ranges::fill(types, 0);
    size_t at = 0;
    for (const auto& part : frame_) {
      const bool token = part.kind == FramePart::Kind::token, first = part.kind == FramePart::Kind::first_text;
      const auto count = static_cast<size_t>(token ? 1 : first ? texts.lengths.first : texts.lengths.second);
      if (token)
        inputs[at] = part.id;
      else if (count > 0)
        stream_->read(first ? texts.first : texts.second, inputs.subspan(at, count));
      if (pairs_) std::ranges::fill(types.subspan(at, count), part.type);
      at += count;
    }
    at = std::max<size_t>(at, 1);  // an empty text has one token, the pad token
    write_padding(write_sequence(positions, at));
    targets_.write(static_cast<size_t>(sample), batch, batch.fields.size() - 1, row);
  }

  int64_t cut_texts() const override { return cut; }

  int64_t cut = 0, dropped = 0;

 private:
  static constexpr size_t inputs_field = 0, positions_field = 1, types_field = 2;

  int64_t length(int64_t sample) const {
    const auto& lengths = rows_[static_cast<size_t>(sample)].lengths;
    return frame_tokens_ + lengths.first + lengths.second;
  }
  std::vector<BatchField> fields_with(int64_t length) const {
    auto fields = text_fields(length, pairs_);
    fields.push_back(targets_.field());
    return fields;
  }

  std::shared_ptr<const TokenStream> stream_;
  std::vector<TextRow> rows_;
  RowTargets targets_;
  TokenFrame frame_;
  int64_t pad_id_;
  TableSchema schema_;
  int64_t seq_len_, frame_tokens_ = 0;
  bool pairs_;
  std::optional<LengthBuckets> buckets_;
};

/// The records of a split, and what is done to those that are too long.
class TextRows {
 public:
  TextRows(const Recipe::Data& data, const Table* table, int64_t first, const DocumentIndex& documents, int64_t most)
      : data_(data), table_(table), first_(first), documents_(documents), most_(most) {}

  void add(int64_t record) {
    const int64_t of_record = data_.has_text_pairs() ? 2 : 1, document = (record - first_) * of_record;
    TextRow row{.first = documents_.begin(document)};
    row.lengths.first = documents_.end(document) - row.first;
    if (of_record == 2) {
      row.second = documents_.begin(document + 1);
      row.lengths.second = documents_.end(document + 1) - row.second;
    }
    const int64_t tokens = row.lengths.first + row.lengths.second;
    if (table_ && tokens > most_ && data_.too_long == "error")
      throw usage_error("{}: data.too_long = \"error\": the text has {} tokens, and data.seq_len allows {}",
                        table_->place(record), tokens, most_);
    if (table_ && tokens > most_ && data_.too_long == "drop") {
      ++dropped;
      return;
    }
    cut += tokens > most_;
    row.lengths = truncated(row.lengths, most_);
    rows.push_back(row);
    records.push_back(record);
  }

  std::vector<TextRow> rows;
  std::vector<int64_t> records;
  int64_t cut = 0, dropped = 0;

 private:
  const Recipe::Data& data_;
  const Table* table_;  ///< null: no text may be left out
  int64_t first_;       ///< the row of the table with the first of the documents
  const DocumentIndex& documents_;
  int64_t most_;
};

/// The texts of `records`, rows of the table, whose row `first` has the first document. Without a table their targets are not known.
std::unique_ptr<Dataset> texts_of(const Recipe::Data& data, const Table* table, int64_t first,
                                  const std::vector<int64_t>& records, OpenData opened, const TableSchema& schema,
                                  int64_t seq_len, TextForm form) {
  const auto& documents = opened.documents.value();
  RUNNER_CHECK(records.empty() || (records.back() - first + 1) * (data.has_text_pairs() ? 2 : 1) <= documents.size());
  const auto added = std::ranges::count(form.frame, FramePart::Kind::token, &FramePart::kind);
  if (seq_len < added)
    throw usage_error("data.seq_len = {}: the tokenizer puts {} tokens around the texts", seq_len, added);
  TextRows rows(data, table, first, documents, seq_len - added);
  for (const auto record : records) rows.add(record);
  if (rows.rows.empty())
    throw usage_error("data.too_long = \"drop\" leaves no text: all {} have more tokens than data.seq_len = {} allows",
                      records.size(), seq_len);
  auto targets = table ? RowTargets(data, *table, rows.records, schema) : RowTargets(schema);
  auto texts = std::make_unique<LabelledTexts>(data, std::move(opened), std::move(rows.rows), std::move(targets),
                                               std::move(form), schema, seq_len);
  texts->cut = rows.cut;
  texts->dropped = rows.dropped;
  return texts;
}

}  // namespace

PairLengths truncated(PairLengths lengths, int64_t most) {
  const auto [shorter, longer] = std::minmax(lengths.first, lengths.second);
  if (shorter + longer <= most) return lengths;
  // The longer one loses its end until both are equally long.
  const int64_t kept = std::max(shorter, most - shorter);
  PairLengths sorted{shorter, shorter > most ? shorter : kept};
  if (sorted.first + sorted.second > most) sorted = {most / 2, most / 2 + most % 2};
  return lengths.first > lengths.second ? PairLengths{sorted.second, sorted.first} : sorted;
}

std::optional<Recipe::Data::Columns> text_columns(const Recipe::Data& data) {
  return data.train.empty() ? data.columns : text_columns(data, data.train.front());
}

std::optional<Recipe::Data::Columns> text_columns(const Recipe::Data& data, const std::string& file) {
  if (data.columns) return data.columns;
  return first_record(data, file).contains("text_pair")
             ? std::optional(Recipe::Data::Columns{{"text_pair", "text_pair"}})
             : std::nullopt;
}

std::unique_ptr<Dataset> labelled_texts(const Recipe::Data& data, size_t source, Split split, OpenData opened,
                                        int64_t seq_len, const Tokenizer& tokenizer, const nlohmann::json& learned) {
  const auto own = sources_of(data).at(source).data;
  const bool own_files = split == Split::validation && !own.validation.empty();
  const auto training = own_files && !learned.is_null() ? nullptr : training_table(data);
  const auto schema = learned.is_null() ? training->schema : TableSchema::from_json(learned);
  auto form = form_of(tokenizer, own.has_text_pairs());
  const auto make = [&](const Table& table, int64_t first, const std::vector<int64_t>& records) {
    return texts_of(own, &table, first, records, std::move(opened), schema, seq_len, std::move(form));
  };
  if (own_files) {
    const auto validation = validation_table(own, schema);
    return make(validation.table, 0, validation.rows);
  }
  const auto& rows = split == Split::train ? training->rows : training->validation_rows;
  return make(training->table, training->firsts.at(source), training->of_source(rows, source));
}

std::unique_ptr<Dataset> unlabelled_texts(Recipe::Data data, OpenData opened, int64_t seq_len,
                                          const Tokenizer& tokenizer, const nlohmann::json& learned) {
  data.group_by_length = false;
  std::vector<int64_t> records(static_cast<size_t>(opened.documents.value().size() / (data.has_text_pairs() ? 2 : 1)));
  std::iota(records.begin(), records.end(), int64_t{0});
  if (records.empty()) throw usage_error("the input has no text");
  return texts_of(data, nullptr, 0, records, std::move(opened), TableSchema::from_json(learned), seq_len,
                  form_of(tokenizer, data.has_text_pairs()));
}

}  // namespace runner
