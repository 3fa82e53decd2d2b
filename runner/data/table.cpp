#include "runner/data/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <regex>
#include <set>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// A form of texts that are no categories.
struct CellForm {
  std::regex pattern;
  const char *what, *cure;
};

const std::vector<CellForm>& forms() {
  static const std::vector<CellForm> list = [] {
    const auto form = [](const char* pattern, const char* what, const char* cure) {
      return CellForm{std::regex(pattern, std::regex::optimize), what, cure};
    };
    return std::vector<CellForm>{
        form(R"([+-]?\d+,\d+)", "numbers with a comma",
             "if it is a decimal comma, set data.decimal = \",\"; commas between groups of digits must be removed"),
        form(R"([+-]?\d{1,3}(,\d{3})+(\.\d+)?|[+-]?\d{1,3}([. ']\d{3})+(,\d+)?)",
             "numbers with marks between groups of digits", "remove the marks"),
        form(R"([+-]?\d+([.,]\d+)? ?%)", "numbers with a percent sign", "remove the sign"),
        form("\xE2\x88\x92 ?\\d[\\d.,]*([eE][+-]?\\d+)?", "numbers with the sign U+2212 for minus", "write - instead"),
        form("[+-]?\\d[\\d.,]*((\xC2\xA0|\xE2\x80\xAF)\\d[\\d.,]*)+", "numbers with no-break spaces",
             "remove the spaces"),
        form("[+-]?0[xX][\\da-fA-F]+", "hexadecimal numbers", "write decimal numbers"),
        form("[+-]?[iI][nN][fF]([iI][nN][iI][tT][yY])?", "infinite numbers",
             "write finite numbers, or add the word to data.missing_values"),
        form(R"((\d{1,4}([-/.])\d{1,2}\2\d{1,4}([T ].*)?)|(\d{1,2}:\d\d(:\d\d.*)?))", "dates or times",
             "make numbers of them, or add the column to data.drop")};
  }();
  return list;
}

}  // namespace

int64_t Table::rows() const {
  int64_t count = 0;
  for (const auto& file : files) count += file.rows;
  return count;
}

const TableColumn* Table::find(const std::string& name) const {
  if (indices.size() == columns.size()) {
    const auto known = indices.find(name);
    return known == indices.end() ? nullptr : &columns[known->second];
  }
  const auto found = std::ranges::find(columns, name, &TableColumn::name);
  return found == columns.end() ? nullptr : &*found;
}

void Table::index_columns() {
  for (size_t c = 0; c < columns.size(); ++c) indices.emplace(columns[c].name, c);
}

std::vector<std::string> Table::names() const {
  std::vector<std::string> list;
  for (const auto& column : columns) list.push_back(column.name);
  return list;
}

std::string Table::place(int64_t row) const {
  if (placed) return placed(row);
  const int64_t global = row;
  for (const auto& file : files) {
    if (row < file.rows)
      return lines.empty() ? fmt::format("{}, row {}", file.path, row + 1)
                           : fmt::format("{}:{}", file.path, lines[static_cast<size_t>(global)]);
    row -= file.rows;
  }
  return {};
}

std::string number_text(double number) { return fmt::format("{}", number); }

void add_number(TableColumn& column, double number, const std::string& digits) {
  const auto text_of = [](double value) { return std::isnan(value) ? "" : number_text(value); };
  if (!digits.empty() && column.texts.empty())
    for (const double before : column.numbers) column.texts.push_back(text_of(before));
  column.numbers.push_back(number);
  if (!digits.empty() || !column.texts.empty()) column.texts.push_back(digits.empty() ? text_of(number) : digits);
}

std::optional<double> finite_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size()) return {};
  if (error == std::errc::result_out_of_range) number = std::strtod(std::string(text).c_str(), nullptr);
  if (error == std::errc::invalid_argument || !std::isfinite(number)) return {};
  return number;
}

std::optional<double> cell_number(std::string_view text, char decimal) {
  if (decimal == '.') return finite_number(text);
  if (text.find('.') != std::string_view::npos) return {};
  std::string own(text);
  std::ranges::replace(own, decimal, '.');
  return finite_number(own);
}

std::string_view class_text(std::string_view cell, char decimal) {
  auto whole = cell;
  if (!whole.ends_with(std::string{decimal, '0'})) return cell;
  whole.remove_suffix(2);
  const auto digits = whole.starts_with('-') ? whole.substr(1) : whole;
  const bool plain = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos &&
                     (digits.size() == 1 || !digits.starts_with('0'));
  return plain ? whole : cell;
}

void drop_spare_texts(TableColumn& column) {
  for (size_t row = 0; row < column.texts.size(); ++row)
    if (!column.missing(row) && column.texts[row] != number_text(column.numbers[row])) return;
  column.texts = {};
}

std::string and_more(const std::vector<std::string>& places, int64_t count, bool all) {
  if (count < 2) return "";
  // "FILE:" is told once.
  const auto file = places[0].substr(0, places[0].find_last_not_of("0123456789") + 1);
  std::vector<std::string> named;
  for (size_t i = 1; i < std::min(places.size(), and_more_named + 1); ++i)
    named.push_back(places[i].starts_with(file) ? places[i].substr(file.size()) : places[i]);
  return fmt::format(" (and {}{} more {}: {}{})", all ? "" : "at least ", count - 1, count == 2 ? "row" : "rows",
                     join(named, ", "), std::ssize(named) + 1 < count ? " ..." : "");
}

std::string and_more(const Table& table, std::span<const int64_t> rows) {
  std::vector<std::string> places;
  for (const auto row : rows.first(std::min(rows.size(), and_more_named + 1))) places.push_back(table.place(row));
  return and_more(places, std::ssize(rows));
}

std::string with_decimal(const std::string& text, char decimal) {
  const char other = decimal == '.' ? ',' : '.';
  if (text.find(other) == std::string::npos || !cell_number(text, other)) return "";
  std::string own = text;
  std::ranges::replace(own, other, decimal);
  return own;
}

std::string decimal_hint(const std::string& text, char decimal) {
  const auto own = with_decimal(text, decimal);
  if (own.empty()) return "";
  return fmt::format("; the decimal sign is `{}` here{}: if this cell has another one, write `{}`", decimal,
                     decimal == ',' ? ", because the training has data.decimal = \",\"" : "", own);
}

namespace {

constexpr size_t few_cells = 20;

/// Whether the sign in a number may stand between groups of digits: 1,234.
bool may_be_grouped(std::string_view number) {
  if (number.starts_with('-') || number.starts_with('+')) number.remove_prefix(1);
  const auto sign = number.find_first_of(".,");
  return sign >= 1 && sign <= 3 && number[0] != '0' && number.size() == sign + 4;
}

/// Whether whole numbers are years, months, days or Unix times, by the name of their column or by their values. Without such a name,
/// numbers that count from 1 may be an id, and only 01 to 31 are days.
bool are_dates(const TableColumn& column, const std::set<double>& values) {
  static constexpr const char* units[] = {"year", "month", "day", "time", "epoch"};
  static constexpr const char* codes[] = {"id", "code", "no", "nr", "number", "zip"};
  constexpr double least_seconds = 1e9, most_seconds = 4133980799;  // of ten digits, up to the end of 2100
  const auto small = lower(column.name);
  const auto ends = [&](const char* word) { return small.ends_with(word); };
  const auto within = [&](double least, double most) { return *values.begin() >= least && *values.rbegin() <= most; };
  const bool named =
      std::ranges::any_of(units, [&](const char* word) { return small.find(word) != std::string::npos; });
  if (named && !ends("id") && !ends("code")) return true;
  return std::ranges::none_of(codes, ends) &&
         ((!column.code.empty() && within(1, 31)) || within(1900, 2100) || within(least_seconds, most_seconds) ||
          within(1000 * least_seconds, 1000 * most_seconds + 999));
}

/// column_advice() for a column of numbers.
std::string number_advice(const TableColumn& column, std::span<const int64_t> rows) {
  constexpr size_t many_cells = 50;
  std::set<double> values;
  size_t cells = 0;
  for (const auto row : rows) {
    const double number = column.numbers[static_cast<size_t>(row)];
    if (std::isnan(number)) continue;
    if (number < 0 || number != std::floor(number)) return "";
    ++cells;
    if (!values.insert(number).second && column.code.empty()) return "";
  }
  const bool unique = cells >= few_cells && values.size() == cells;
  if (values.empty() || (column.code.empty() && !unique)) return "";
  if (column.code.size() <= 2 && are_dates(column, values)) return "";  // a month may be 01
  if (!column.code.empty())
    return fmt::format("`{}` is written as codes are, and not as amounts; if it is one, add the column to {}",
                       column.code, unique || values.size() > categories_most ? "data.drop" : "data.categorical");
  // Some numbers of the sequence may be in the rows for validation.
  const bool dense = *values.rbegin() - *values.begin() < 2 * static_cast<double>(cells);
  if (!dense && cells < many_cells) return "";
  return fmt::format("it has another {} in each row, such as {}, as an id has; if it is one, add it to data.drop",
                     dense ? "consecutive number" : "whole number", number_text(*values.begin()));
}

}  // namespace

std::string column_advice(const Table& table, const TableColumn& column, std::span<const int64_t> rows) {
  if (column.numeric) return number_advice(column, rows);
  constexpr size_t looked_at = 200;
  std::set<std::string> texts;
  struct OfForm {
    size_t cells = 0;
    std::string first = {};
  };
  std::vector<OfForm> found(forms().size());
  size_t cells = 0, numbers = 0, texts_looked_at = 0;
  bool pointed = false;  // numbers have fractions
  std::vector<int64_t> others;
  for (const auto row : rows) {
    const auto at = static_cast<size_t>(row);
    if (column.missing(at)) continue;
    const auto& text = column.texts[at];
    ++cells;
    if (cell_number(text, column.decimal)) {
      ++numbers;
      pointed = pointed || text.find(column.decimal) != std::string::npos;
      continue;
    }
    texts.insert(text);
    others.push_back(row);
    constexpr size_t longest_number = 64;
    if (cells > looked_at) continue;
    ++texts_looked_at;
    if (text.size() > longest_number) continue;
    for (size_t f = 0; f < found.size(); ++f)
      if (std::regex_match(text, forms()[f].pattern) && found[f].cells++ == 0) found[f].first = text;
  }
  if (others.empty()) return "";
  const auto& example = column.texts[static_cast<size_t>(others.front())];
  if (const auto own = may_be_grouped(example) ? "" : with_decimal(example, column.decimal); pointed && !own.empty())
    return fmt::format("`{}` is not a number ({}){}; the decimal sign of the other cells is `{}`: write `{}`", example,
                       table.place(others.front()), and_more(table, others), column.decimal, own);
  else if (column.decimal == ',' && !own.empty())
    return fmt::format("it has numbers with a point, such as `{}`; if it is a decimal point, set data.decimal = \".\"",
                       example);
  for (size_t f = 0; f < found.size(); ++f)
    if (found[f].cells * 2 > texts_looked_at)
      return fmt::format("it has {}, such as `{}`; {}", forms()[f].what, found[f].first, forms()[f].cure);
  if (numbers > others.size() || (numbers > 0 && texts.size() == 1))
    return fmt::format("`{}` is not a number ({}){}; if it stands for a missing cell, add it to data.missing_values",
                       example, table.place(others.front()), and_more(table, others));
  if (cells < few_cells || texts.size() * 2 <= cells) return "";
  return fmt::format("it has another text in nearly each row, such as `{}`; add it to data.drop", example);
}

}  // namespace runner
