// The table format "csv".
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/data/table.hpp"

namespace runner {

namespace {

struct Record {
  std::vector<std::string_view> cells;
  int64_t line = 0;
};

/// Cuts the text of one file into records. Cells are views of the text, or of texts that the reader keeps.
class CsvRecords {
 public:
  CsvRecords(const std::string& path, std::string_view text) : path_(path), text_(text) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
    if (const auto invalid = first_invalid_utf8(text_)) {
      const auto line = 1 + std::ranges::count(text_.substr(0, *invalid), '\n');
      throw usage_error("{}:{}: the file is not UTF-8; convert it, for example with iconv", path_, line);
    }
  }

  char guess_delimiter() const {
    const auto header = text_.substr(0, text_.find('\n'));
    const std::string candidates = ",;\t|";
    return *std::ranges::max_element(candidates, {}, [&](char c) { return std::ranges::count(header, c); });
  }

  /// False at the end of the file. Leaves out blank lines.
  bool next(Record& record, char delimiter) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) line_ += text_[at_++] == '\n';
    if (at_ >= text_.size()) return false;
    record.cells.clear();
    record.line = line_;
    for (bool more = true; more;) more = read_cell(record, delimiter);
    return true;
  }

 private:
  /// Reads one cell and what ends it. Returns whether it ended with a delimiter.
  bool read_cell(Record& record, char delimiter) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ < text_.size() && text_[at_] == '"') {
      record.cells.push_back(quoted());
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\r')) ++at_;
      if (at_ < text_.size() && text_[at_] != delimiter && text_[at_] != '\n')
        throw usage_error(
            "{}:{}: the quoted cell `{}` is followed by `{}`; a quote inside a quoted cell is written \"\"", path_,
            line_, record.cells.back(), text_[at_]);
    } else {
      const auto end = std::min(text_.find_first_of(std::string{delimiter, '\n'}, at_), text_.size());
      record.cells.push_back(trim(text_.substr(at_, end - at_)));
      at_ = end;
    }
    if (at_ >= text_.size()) return false;
    line_ += text_[at_] == '\n';
    return text_[at_++] == delimiter;
  }

  std::string_view quoted() {
    const int64_t first_line = line_;
    const size_t begin = ++at_;
    std::string* own = nullptr;  // the cell without doubled quotes
    for (size_t from = begin; at_ < text_.size(); ++at_) {
      line_ += text_[at_] == '\n';
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
    throw usage_error("{}:{}: a quoted cell has no end", path_, first_line);
  }

  std::string path_;
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::deque<std::string> kept_;
};

std::vector<std::string> header_of(const std::string& path, const Record& record) {
  std::vector<std::string> names;
  std::set<std::string_view> seen;
  bool numbers = true;
  for (const auto& cell : record.cells) {
    numbers = numbers && finite_number(cell);
    if (cell.empty()) throw usage_error("{}:{}: column {} has no name", path, record.line, names.size() + 1);
    if (!seen.insert(cell).second) throw usage_error("{}:{}: two columns are called `{}`", path, record.line, cell);
    names.emplace_back(cell);
  }
  if (numbers)
    throw usage_error("{}:{}: the first line must name the columns, and here it has only numbers: add a line of names",
                      path, record.line);
  return names;
}

/// For each column of the table, the place of that column in this file.
std::vector<size_t> places_of(const std::string& path, const std::vector<std::string>& own, const Table& table) {
  std::vector<size_t> places;
  for (const auto& column : table.columns) {
    const auto found = std::ranges::find(own, column.name);
    if (found == own.end())
      throw usage_error("{} has no column `{}`, which {} has", path, column.name, table.files.front().path);
    places.push_back(static_cast<size_t>(found - own.begin()));
  }
  for (const auto& name : own)
    if (!table.find(name))
      throw usage_error("{} has a column `{}`, which {} does not have", path, name, table.files.front().path);
  return places;
}

/// The cells of a file, column by column.
struct CsvFile {
  std::unique_ptr<MappedFile> map;
  std::unique_ptr<CsvRecords> records;
  std::vector<std::vector<std::string_view>> columns;
};

CsvFile read_file_of(const std::string& path, const TableReading& reading, Table& table) {
  CsvFile file;
  file.map = std::make_unique<MappedFile>(path);
  const auto bytes = file.map->bytes();
  file.records =
      std::make_unique<CsvRecords>(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  const char delimiter = reading.delimiter == "auto"  ? file.records->guess_delimiter()
                         : reading.delimiter == "tab" ? '\t'
                                                      : reading.delimiter.at(0);
  Record record;
  if (!file.records->next(record, delimiter)) throw usage_error("{}: the file has no line", path);
  const auto names = header_of(path, record);
  if (table.files.empty())
    for (const auto& name : names) table.columns.push_back({.name = name});
  table.files.push_back({.path = path});
  const auto places = places_of(path, names, table);
  file.columns.resize(names.size());
  while (file.records->next(record, delimiter)) {
    if (record.cells.size() != names.size())
      throw usage_error("{}:{}: {} instead of {}, as the first line has", path, record.line,
                        counted(std::ssize(record.cells), "cell"), names.size());
    for (size_t c = 0; c < places.size(); ++c) file.columns[c].push_back(record.cells[places[c]]);
    table.lines.push_back(record.line);
    ++table.files.back().rows;
  }
  return file;
}

/// Converts the cells of one column of all files.
void convert(TableColumn& column, size_t index, const std::vector<CsvFile>& files, const TableReading& reading) {
  const auto is_missing = [&](std::string_view cell) {
    return cell.empty() || std::ranges::find(reading.missing_values, cell) != reading.missing_values.end();
  };
  column.numeric = std::ranges::find(reading.as_text, column.name) == reading.as_text.end();
  for (const auto& file : files)
    for (const auto& cell : file.columns[index]) {
      if (!column.numeric) break;
      const auto number = finite_number(cell);
      column.numeric = number || is_missing(cell);
      column.numbers.push_back(is_missing(cell) ? std::nan("") : number.value_or(0));
    }
  if (column.numeric) return;
  column.numbers.clear();
  for (const auto& file : files)
    for (const auto& cell : file.columns[index])
      column.texts.emplace_back(is_missing(cell) ? std::string_view() : cell);
}

}  // namespace

Table read_csv(const std::vector<std::string>& paths, const TableReading& reading) {
  Table table;
  std::vector<CsvFile> files;
  for (const auto& path : paths) files.push_back(read_file_of(path, reading, table));
  for (size_t c = 0; c < table.columns.size(); ++c) convert(table.columns[c], c, files, reading);
  return table;
}

}  // namespace runner
