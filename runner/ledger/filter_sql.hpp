// Translates filters to SQL with bound parameters.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runner/ledger/filter.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner {

using SqlValue = std::variant<int64_t, double, std::string>;

/// An expression over the table `run`, and what its values are.
struct RunExpression {
  std::string sql;
  FieldKind kind = FieldKind::number;
  const RunField* field = nullptr;  ///< null for recipe keys and metrics
  std::string json_path = "";       ///< of a recipe key in the run's config
  std::string cell_sql = "";  ///< what a column shows, if it is not `sql`: JSON of a recipe key, 'NaN' of a metric
  std::string has_value_sql =
      "";  ///< of a metric: whether the run has points; its value is NULL if the last one is not a number
};

/// Builds the parts of one statement. Names are resolved with the recipe keys and metrics of the ledger; a name that is neither
/// is a FilterError with the nearest one.
class FilterSql {
 public:
  /// `lost`: runs that are lost, though their row says "running".
  FilterSql(sqlite::Database& database, const RunFilter& filter, const std::map<int64_t, double>& lost);

  std::string where();     ///< of all terms, without "WHERE"
  std::string order_by();  ///< with "ORDER BY", and LIMIT
  /// `text` is what the operand was read from.
  RunExpression expression(const RunOperand& operand, const std::string& text);
  void bind(sqlite::Statement& statement) const;

 private:
  std::string parameter(SqlValue value);  ///< "?3"
  std::string condition(const RunTerm& term);
  std::string matches(const RunExpression& expression, const std::string& value);
  std::string compares(const RunTerm& term, const RunExpression& expression);
  std::string search(const std::string& word);
  std::string text_matches(const std::string& sql, const std::string& value);
  std::string key_matches(const RunExpression& expression, const std::string& value);
  double number(const RunExpression& expression, const std::string& value) const;
  /// The parameter that number() is, or the whole number that a double cannot have. Not for NaN.
  std::string number_parameter(const RunExpression& expression, const std::string& value);
  RunExpression named(const RunOperand& operand, const std::string& text);
  [[noreturn]] void unknown(const RunOperand& operand, const std::string& text);

  sqlite::Database& database_;
  const RunFilter& filter_;
  std::string status_sql_;
  double now_;
  std::vector<SqlValue> values_;
};

}  // namespace runner
