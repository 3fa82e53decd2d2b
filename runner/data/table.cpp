#include "runner/data/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace runner {

int64_t Table::rows() const {
  int64_t count = 0;
  for (const auto& file : files) count += file.rows;
  return count;
}

const TableColumn* Table::find(const std::string& name) const {
  const auto found = std::ranges::find(columns, name, &TableColumn::name);
  return found == columns.end() ? nullptr : &*found;
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

}  // namespace runner
