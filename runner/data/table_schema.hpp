// The schema that is learned from a table of training data: which columns are features and targets, and how their cells become numbers.
//
// Numbers are standardized to mean 0 and standard deviation 1 with the statistics of the training rows. A category becomes a
// feature that is 0 or 1; a category that the training rows do not have is 0 in all of them. Checkpoints contain the schema as
// JSON, so that data of a later time become the same numbers.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/table.hpp"

namespace runner {

struct TableSchema {
  struct Feature {
    std::string column;
    double mean = 0, scale = 1;                ///< a number becomes (number - mean) / scale
    double fill = 0;                           ///< the number of missing cells
    bool marks_missing = false;                ///< one more feature is 1 where the number is missing
    std::vector<std::string> categories = {};  ///< in order of their bytes; "" stands for missing cells
    bool categorical = false;
    int64_t width() const {
      return categorical ? static_cast<int64_t>(categories.size()) : 1 + static_cast<int64_t>(marks_missing);
    }
  };
  struct Target {
    std::string column;
    double mean = 0, scale = 1;
    std::vector<std::string> classes = {};  ///< numbers in their order, texts in order of their bytes
    bool numbered = false;                  ///< a whole number that is no class stands for the class at this place
  };

  /// 1 had no number. Since 2, durations in Parquet files are seconds, and texts of their floats and times have no spare digits.
  static constexpr int64_t current_version = 2;

  std::vector<Feature> features;
  std::vector<Target> targets;
  std::string target_type;  ///< class, binary or number
  int64_t version = current_version;

  int64_t inputs() const;   ///< numbers of a row after all columns have been encoded
  int64_t outputs() const;  ///< classes, or target columns
  /// Columns that have texts also in a file in which all their cells look like numbers.
  std::vector<std::string> text_columns() const;

  nlohmann::json to_json() const;
  static TableSchema from_json(const nlohmann::json& json);
};

/// Mean and population standard deviation of the cells of a column of numbers that are not missing, and the number of those that are.
struct ColumnMoments {
  double mean = 0, deviation = 0;
  int64_t missing = 0;
};
ColumnMoments moments_of(const TableColumn& column, std::span<const int64_t> rows);

/// The numbers that targets were divided by, of Dataset::learned(); empty: they are not numbers of a table.
std::vector<double> target_scales(const nlohmann::json& learned);

/// The rows whose cells are missing in a column.
std::vector<int64_t> rows_without(const TableColumn& column, std::span<const int64_t> rows);

/// Removes the rows from `rows` that data.missing leaves out. Throws Error(usage) with the place of a row without a target or,
/// with data.missing = "error", without a feature.
void leave_out_missing(const Recipe::Data& data, const Table& table, std::vector<int64_t>& rows);

/// Learns from the rows of a table. Throws Error(usage) that begins with the recipe's key for a column that does not exist, for
/// a target that does not fit data.target_type, or if target_type = "auto" cannot be decided.
TableSchema learn_schema(const Recipe::Data& data, const Table& table, std::span<const int64_t> rows);

/// A column of the training rows.
struct ColumnSummary {
  std::string name;
  std::string kind = "";  ///< "number", "categories", "target: number", "target: 3 classes", or "left out"
  int64_t features = 0;   ///< numbers of a row that it becomes
  int64_t missing = 0;    ///< cells
  std::optional<double> mean = {}, std = {};  ///< of numbers
  std::vector<std::string> examples = {};     ///< the first different cells
};

/// The columns in the order of the file. Throws Error(usage) as training_table() does.
std::vector<ColumnSummary> table_summary(const Recipe::Data& data);

}  // namespace runner
