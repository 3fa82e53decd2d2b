// Tables of named columns, which data sets of features and targets are made of. Each format of tables has one function that
// reads its files. Independent of torch.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// A column has numbers if each cell that is not missing is a finite number, and texts otherwise. A column of numbers has
/// both if a cell is not what number_text() makes of its number: a class such as `01`, or a whole number above 2^53.
struct TableColumn {
  std::string name;
  bool numeric = true;
  std::vector<double> numbers = {};     ///< of a numeric column, one for each row; NaN: the cell is missing
  std::vector<std::string> texts = {};  ///< UTF-8, one for each row, or none; empty: the cell is missing
  char decimal = '.';                   ///< what begins the fraction of a number in `texts`

  bool missing(size_t row) const { return numeric ? std::isnan(numbers[row]) : texts[row].empty(); }
};

struct Table {
  struct File {
    std::string path;
    int64_t rows = 0;
  };

  std::vector<TableColumn> columns = {};                ///< with unique names
  std::vector<File> files = {};                         ///< in the order of their rows
  std::vector<int64_t> lines = {};                      ///< of each row in its file, from 1; empty: rows have no lines
  std::function<std::string(int64_t row)> placed = {};  ///< place() of records; unset: `files` and `lines` say it

  int64_t rows() const;
  /// Null if there is none with this name.
  const TableColumn* find(const std::string& name) const;
  std::vector<std::string> names() const;
  /// Where a row is: "iris.csv:12", or "iris.parquet, row 12" if rows have no lines.
  std::string place(int64_t row) const;
};

/// How a format reads its files.
struct TableReading {
  std::vector<std::string> as_text = {};  ///< columns that have texts although their cells may be numbers
  std::vector<std::string> targets = {};  ///< columns of numbers that keep their texts, too, as classes need them
  std::vector<std::string> missing_values = {};  ///< texts that stand for a missing cell, in addition to the empty text
  std::string delimiter = "auto";                ///< of CSV
  char decimal = '.';                            ///< of CSV
};

/// Reads CSV (RFC 4180): the first line names the columns. Cells may be quoted with ", and a quoted cell may contain the
/// delimiter, line breaks, and "" for ". Spaces around cells that are not quoted do not count, and blank lines are left out.
/// delimiter "auto": the one of `,` `;` tab `|` that is most frequent in the first line, outside of quotes. The files have the same
/// columns, in any order. Throws Error(usage) with file and line; of lines with a wrong number of cells, it names the first ten.
Table read_csv(const std::vector<std::string>& files, const TableReading& reading);

/// Reads Parquet files, whose types decide which columns have numbers: integers, floating point numbers and booleans. The files have the
/// same columns, in any order. Throws Error(usage) with file, row and column, and Error(environment) without the Parquet module.
Table read_parquet(const std::vector<std::string>& files, const TableReading& reading);

/// data.decimal, if the cells are texts.
inline char decimal_of(const Recipe::Data& data) { return data.format == "csv" ? data.decimal.at(0) : '.'; }
/// A number as a text: 1.0 becomes "1", 0.5 becomes "0.5".
std::string number_text(double number);
/// Adds a number to a column of numbers; `digits`: its text, if number_text() says another one.
void add_number(TableColumn& column, double number, const std::string& digits = "");
/// The number that a cell is, if it is a finite one. What is too small for a double is 0.
std::optional<double> finite_number(std::string_view text);
/// The number in a cell whose fraction begins with `decimal`.
std::optional<double> cell_number(std::string_view text, char decimal);
/// The class that a cell of a column of numbers stands for: its text. A whole number may end in ".0", as pandas writes it: 1.0 is 1.
/// `decimal`: what begins the fraction.
std::string_view class_text(std::string_view cell, char decimal = '.');
/// Leaves out the texts of a column of numbers if number_text() says them all.
void drop_spare_texts(TableColumn& column);

}  // namespace runner
