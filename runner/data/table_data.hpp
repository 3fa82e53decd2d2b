// Data sets of tables: a row is a sample of features and a target (row_batch.hpp).
#pragma once
#include <memory>
#include <vector>

#include "runner/data/data.hpp"
#include "runner/data/table.hpp"
#include "runner/data/table_schema.hpp"

namespace runner {

/// The table of data.train, or of the texts with labels of all data.sources, its rows for training and, with
/// data.validation_fraction, for validation, and what the former teach.
struct TrainingTable {
  Table table = {};
  std::vector<int64_t> rows = {}, validation_rows = {};  ///< sorted
  TableSchema schema = {};
  std::vector<int64_t> firsts = {};  ///< the first row of each of sources_of(data)

  /// The part of `rows` that is of source `source`.
  std::vector<int64_t> of_source(const std::vector<int64_t>& rows, size_t source) const;
};

/// Reads and learns; of texts with labels, the labels. The result of the last call is kept, and returned again for the
/// same settings and files. The rows for validation are drawn at random, always the same ones of the same number of
/// rows. Throws Error(usage).
std::shared_ptr<const TrainingTable> training_table(const Recipe::Data& data);

/// The table of data.validation, and its usable rows. `schema`: that of the training data, which knows the columns of texts.
struct ValidationTable {
  Table table;
  std::vector<int64_t> rows = {};
};
ValidationTable validation_table(const Recipe::Data& data, const TableSchema& schema);

/// Opens a table as open_dataset() does. `learned`: a schema of a checkpoint, which is used instead of that of the training data; null:
/// none. With it, the files of data.validation are read without those of data.train.
std::unique_ptr<Dataset> open_table(const Recipe::Data& data, Split split, const nlohmann::json& learned = nullptr);

/// Opens all rows of CSV or Parquet files as open_inputs() does. A column `id` that is not a feature names the rows.
InputData open_table_inputs(const Recipe::Data& data, const std::vector<std::string>& files,
                            const nlohmann::json& learned);

/// Notes about missing cells, categories, and columns that look like ids, codes or the target.
std::vector<std::string> table_notes(const Recipe::Data& data);

/// Notes about the files of data.validation, for a model that learned `learned` from other data. Data that are no table have none.
std::vector<std::string> evaluation_notes(const Recipe::Data& data, const nlohmann::json& learned);

/// A note about columns of Parquet files that a model knows with other cells, because runners before TableSchema::current_version trained
/// it; empty: there are none.
std::string older_reading_note(const Recipe::Data& data, const nlohmann::json& learned,
                               const std::vector<std::string>& files);

}  // namespace runner
