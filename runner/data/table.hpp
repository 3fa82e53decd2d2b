// Tables of named columns, which data sets of features and targets are made of. Each format of tables has one function that
// reads its files. Independent of torch.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
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
  std::string code =
      {};  ///< of a numeric column: the first cell that is written as codes are, such as `01067` or `+49301`

  bool missing(size_t row) const { return numeric ? std::isnan(numbers[row]) : texts[row].empty(); }
};

struct Table {
  struct File {
    std::string path;
    int64_t rows = 0;
  };

  std::vector<TableColumn> columns = {};                 ///< with unique names
  std::vector<File> files = {};                          ///< in the order of their rows
  std::vector<int64_t> lines = {};                       ///< of each row in its file, from 1; empty: rows have no lines
  std::function<std::string(int64_t row)> placed = {};   ///< place() of records; unset: `files` and `lines` say it
  std::unordered_map<std::string, size_t> indices = {};  ///< of index_columns()

  int64_t rows() const;
  /// Null if there is none with this name.
  const TableColumn* find(const std::string& name) const;
  /// Lets find() take the same time for any number of columns. Readers call it when the columns have their names.
  void index_columns();
  std::vector<std::string> names() const;
  /// Where a row is: "iris.csv:12", or "iris.parquet, row 12" if rows have no lines.
  std::string place(int64_t row) const;
};

/// How a format reads its files.
struct TableReading {
  std::set<std::string> as_text = {};     ///< columns that have texts although their cells may be numbers
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

/// Reads all records of the files. Columns are the names in the records, in order of their first record; a record without one of them, or
/// with null, has a missing cell there. A column has numbers if each of its cells is a number, true or false. Throws Error(usage) with
/// file, record and column.
Table read_record_table(const Recipe::Data& data, const std::vector<std::string>& files, const TableReading& reading);

struct LabelFile {
  const Recipe::Data* data;  ///< the settings of its source; all sources have the same targets
  std::string path;
};
/// A row for each record of the files, in order, with the columns of data.target. A column has numbers if all its values are numbers
/// (TableColumn); true and false are texts. Throws Error(usage) with file and line for another value, and if no record has a column of
/// this name.
Table read_label_table(const std::vector<LabelFile>& files);

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

/// The categories that a column can have.
constexpr size_t categories_most = 1000;

/// The places that and_more() names.
constexpr size_t and_more_named = 10;
/// Says how many rows have mistakes beside the first one, which the message names: " (and 2 more rows: 9, 14)". `places`: "FILE:LINE" of
/// the first ones of `count` rows; `all`: the rest of the file was looked at. Empty: there is only the first one.
std::string and_more(const std::vector<std::string>& places, int64_t count, bool all = true);
std::string and_more(const Table& table, std::span<const int64_t> rows);
/// A number with the other decimal sign, written with `decimal`: "50,5" for "50.5". Empty: the cell is none.
std::string with_decimal(const std::string& text, char decimal);
/// The end of a message about such a cell: "; ... write `50,5`".
std::string decimal_hint(const std::string& text, char decimal);

/// Says what a column has that is probably meant in another way, and what can be done about it: of texts "it has dates or times, such as
/// `2024-09-12`; ...", of numbers that they look like codes or ids, and not like dates. Empty: nothing. `rows`: those of the training.
std::string column_advice(const Table& table, const TableColumn& column, std::span<const int64_t> rows);

}  // namespace runner
