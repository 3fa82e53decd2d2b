#include "runner/data/csv_reader.hpp"

#include <algorithm>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/table.hpp"

namespace runner {

namespace {

char delimiter_of(const std::string& setting, std::string_view text) {
  if (setting == "tab") return '\t';
  if (setting != "auto") return setting.at(0);
  std::string header;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '\n' || c == '\r')) break;
    if (!quoted) header += c;
  }
  const std::string candidates = ",;\t|";
  return *std::ranges::max_element(candidates, {}, [&](char c) { return std::ranges::count(header, c); });
}

}  // namespace

CsvReader::CsvReader(std::string path, std::string_view text, const std::string& delimiter, bool keeps_cells)
    : path_(std::move(path)), text_(text), guessed_(delimiter == "auto"), keeps_cells_(keeps_cells) {
  if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  if (const auto invalid = first_invalid_utf8(text_)) {
    const auto line = 1 + std::ranges::count(text_.substr(0, *invalid), '\n');
    throw usage_error("{}: the file is not UTF-8; convert it, for example with iconv", place(line));
  }
  delimiter_ = delimiter_of(delimiter, text_.substr(at_));
  if (text_.find('\n') == std::string_view::npos) line_end_ = '\r';
}

std::string CsvReader::place(int64_t line) const { return fmt::format("{}:{}", path_, line); }

void CsvReader::go_to(size_t at, int64_t line) {
  at_ = at;
  line_ = line;
  kept_.clear();
}

bool CsvReader::next(CsvLine& line) {
  while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) line_ += text_[at_++] == line_end_;
  if (at_ >= text_.size()) return false;
  if (!keeps_cells_) kept_.clear();
  line.cells.clear();
  line.line = line_;
  for (bool more = true; more;) more = read_cell(line);
  return true;
}

bool CsvReader::read_cell(CsvLine& line) {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  if (at_ < text_.size() && text_[at_] == '"') {
    line.cells.push_back(quoted());
    while (at_ < text_.size() && text_[at_] != line_end_ && (text_[at_] == ' ' || text_[at_] == '\r')) ++at_;
    if (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != line_end_)
      throw usage_error("{}: the quoted cell `{}` is followed by `{}`; a quote inside a quoted cell is written \"\"",
                        place(line_), line.cells.back(), text_[at_]);
  } else {
    const auto end = std::min(text_.find_first_of(std::string{delimiter_, line_end_}, at_), text_.size());
    line.cells.push_back(trim(text_.substr(at_, end - at_)));
    at_ = end;
  }
  if (at_ >= text_.size()) return false;
  line_ += text_[at_] == line_end_;
  return text_[at_++] == delimiter_;
}

std::string_view CsvReader::quoted() {
  const int64_t first_line = line_;
  const size_t begin = ++at_;
  std::string* own = nullptr;  // the cell without doubled quotes
  for (size_t from = begin; at_ < text_.size(); ++at_) {
    line_ += text_[at_] == line_end_;
    if (text_[at_] != '"') continue;
    const auto part = text_.substr(from, at_ - from);
    const bool doubled = at_ + 1 < text_.size() && text_[at_ + 1] == '"';
    if (doubled && !own) own = &kept_.emplace_back();
    if (own) own->append(part);
    if (!doubled) {
      ++at_;
      return own ? std::string_view(*own) : part;
    }
    own->push_back('"');
    from = ++at_ + 1;
  }
  throw usage_error("{}: a quoted cell has no end", place(first_line));
}

std::string CsvReader::width_mistake(const CsvLine& line, size_t columns) const {
  if (line.cells.size() == columns) return "";
  return fmt::format("{}: {} instead of {}, as the first line has{}", place(line.line),
                     counted(std::ssize(line.cells), "cell"), columns,
                     guessed_ ? fmt::format("; cells end at {}, and data.delimiter sets another character",
                                            delimiter_ == '\t' ? "tabs" : fmt::format("`{}`", delimiter_))
                              : "");
}

std::vector<std::string> CsvReader::header() {
  CsvLine record;
  if (!next(record)) throw usage_error("{}: the file has no line", path_);
  std::vector<std::string> names;
  std::set<std::string_view> seen;
  bool numbers = true;
  for (const auto& cell : record.cells) {
    numbers = numbers && finite_number(cell);
    const auto refuse = [&](const std::string& mistake) {
      throw usage_error("{}: {}; data.drop leaves columns of a table out", place(record.line), mistake);
    };
    if (cell.empty()) refuse(fmt::format("column {} has no name: give it one", names.size() + 1));
    if (!seen.insert(cell).second) refuse(fmt::format("two columns are called `{}`: give one another name", cell));
    names.emplace_back(cell);
  }
  if (numbers)
    throw usage_error("{}: the first line must name the columns, and here it has only numbers: add a line of names",
                      place(record.line));
  return names;
}

}  // namespace runner
