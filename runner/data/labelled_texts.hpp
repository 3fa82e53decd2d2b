// Texts with a label or numbers as samples: a text, or two, in a row of a batch.
#pragma once
#include <memory>

#include "runner/data/formats.hpp"

namespace runner {

/// Rows of text_fields() and a target (row_batch.hpp). `opened` has a document, or two, of each record of the split's files. The
/// tokenizer's frame is put around them. With data.validation_fraction the records for validation are drawn as those of tables.
///
/// data.too_long says what becomes of texts with more than seq_len tokens: with "truncate" their end is left out, and of two texts that
/// of the longer one, as the strategy longest_first of Hugging Face's tokenizers does. A batch is as long as its longest row, rounded up
/// to a multiple of 8. Throws Error(usage) with file and line for a record with another label than those of the training data, and if
/// no record is left. `source`: which of sources_of(data) has the texts; the labels are those of all sources. `learned` as in
/// open_table().
std::unique_ptr<Dataset> labelled_texts(const Recipe::Data& data, size_t source, Split split, OpenData opened,
                                        int64_t seq_len, const Tokenizer& tokenizer,
                                        const nlohmann::json& learned = nullptr);

/// All texts of `opened`, in order, with targets that are not known; those that are too long are cut. `learned` as in open_table().
std::unique_ptr<Dataset> unlabelled_texts(Recipe::Data data, OpenData opened, int64_t seq_len,
                                          const Tokenizer& tokenizer, const nlohmann::json& learned);

/// How many tokens of two texts remain if they may have `most` together.
struct PairLengths {
  int64_t first = 0, second = 0;
};
PairLengths truncated(PairLengths lengths, int64_t most);

/// data.columns of texts with labels (without sources): with `text_pair` if the recipe has no columns, and the first record has this
/// column.
std::optional<Recipe::Data::Columns> text_columns(const Recipe::Data& data);
/// The text_columns() of a file of data.format.
std::optional<Recipe::Data::Columns> text_columns(const Recipe::Data& data, const std::string& file);

}  // namespace runner
