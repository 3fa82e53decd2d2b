// The targets of rows as numbers: classes, labels of two values, or numbers.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/data/table.hpp"
#include "runner/data/table_schema.hpp"
#include "strategies/engine/host_batch.hpp"

namespace runner {

class RowTargets {
 public:
  /// Throws Error(usage) with the place of a row whose class is not in the schema, or that has no number.
  RowTargets(const Recipe::Data& data, const Table& table, const std::vector<int64_t>& rows, const TableSchema& schema);
  /// Targets that are not known: those of all rows do not count.
  explicit RowTargets(const TableSchema& schema);

  /// labels_field() or targets_field().
  BatchField field() const;
  /// Writes those of the sample `at` of `rows` to field `field` of a batch.
  void write(size_t at, HostBatch& batch, size_t field, int64_t row) const;

 private:
  bool classes_;
  int64_t count_;  ///< of targets
  std::vector<std::vector<float>>
      values_;  ///< for each target, of all rows; classes are exact up to 2^24; empty: not known
};

/// The column of this name. Throws Error(usage).
const TableColumn& column_of(const Table& table, const std::string& name);
/// The number in a cell that is not missing. A column with one text has texts in all its cells.
std::optional<double> number_in(const TableColumn& column, int64_t row);
/// (number - mean) / scale. Throws Error(usage) with the place of the cell if this is too great for fp32.
float standardized(const Table& table, const TableColumn& column, int64_t row, double number, double mean,
                   double scale);
/// A cell as the schema writes it; "": it is missing.
std::string cell_text(const TableColumn& column, size_t row);
std::map<std::string, int32_t> class_indices(const std::vector<std::string>& values);

}  // namespace runner
