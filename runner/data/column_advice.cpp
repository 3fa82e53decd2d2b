#include "runner/data/column_advice.hpp"

#include <fmt/format.h>

#include <regex>
#include <set>

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

std::string column_advice(const Table& table, const TableColumn& column, std::span<const int64_t> rows) {
  constexpr size_t looked_at = 200, few = 20;
  std::set<std::string> texts;
  struct OfForm {
    size_t cells = 0;
    std::string first = {};
  };
  std::vector<OfForm> found(forms().size());
  size_t cells = 0, numbers = 0, texts_looked_at = 0;
  int64_t first_text = 0;
  for (const auto row : rows) {
    const auto at = static_cast<size_t>(row);
    if (column.missing(at)) continue;
    const auto& text = column.texts[at];
    ++cells;
    if (cell_number(text, column.decimal)) {
      ++numbers;
      continue;
    }
    if (texts.insert(text).second && texts.size() == 1) first_text = row;
    constexpr size_t longest_number = 64;
    if (cells > looked_at) continue;
    ++texts_looked_at;
    if (text.size() > longest_number) continue;
    for (size_t f = 0; f < found.size(); ++f)
      if (std::regex_match(text, forms()[f].pattern) && found[f].cells++ == 0) found[f].first = text;
  }
  const size_t others = cells - numbers;
  if (others == 0) return "";
  const auto example = column.texts[static_cast<size_t>(first_text)];
  for (size_t f = 0; f < found.size(); ++f)
    if (found[f].cells * 2 > texts_looked_at)
      return fmt::format("it has {}, such as `{}`; {}", forms()[f].what, found[f].first, forms()[f].cure);
  if (numbers > others || (numbers > 0 && texts.size() == 1))
    return fmt::format("`{}` is not a number ({}); if it stands for a missing cell, add it to data.missing_values",
                       example, table.place(first_text));
  if (cells < few || texts.size() * 2 <= cells) return "";
  return fmt::format("it has another text in nearly each row, such as `{}`; add it to data.drop", example);
}

}  // namespace runner
