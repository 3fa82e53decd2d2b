#include "runner/data/csv_reader.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
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

/// For each column of the table, the place of that column in this file.
std::vector<size_t> places_of(const std::string& path, const std::vector<std::string>& own, const Table& table) {
  std::vector<size_t> places;
  std::map<std::string_view, size_t> indices;
  for (size_t c = 0; c < own.size(); ++c) indices.emplace(own[c], c);
  for (const auto& column : table.columns) {
    const auto found = indices.find(column.name);
    if (found == indices.end())
      throw usage_error("{} has no column `{}`, which {} has", path, column.name, table.files.front().path);
    places.push_back(found->second);
  }
  for (const auto& name : own)
    if (!table.find(name))
      throw usage_error("{} has a column `{}`, which {} does not have", path, name, table.files.front().path);
  return places;
}

/// The cells of a file, column by column.
struct CsvFile {
  std::unique_ptr<MappedFile> map;
  std::unique_ptr<CsvReader> records;
  std::vector<std::vector<std::string_view>> columns;
};

/// Whether a number is written as codes are: 01067, or +4930123456, which is a phone number.
bool is_code(std::string_view cell) {
  constexpr size_t shortest_phone = 8;
  const bool phone = cell.starts_with('+');
  if (phone) cell.remove_prefix(1);
  return cell.size() >= (phone ? shortest_phone : 2) && (phone || cell.starts_with('0')) &&
         cell.find_first_not_of("0123456789") == std::string_view::npos;
}

CsvFile read_file_of(const std::string& path, const TableReading& reading, Table& table) {
  CsvFile file;
  file.map = std::make_unique<MappedFile>(path);
  const auto bytes = file.map->bytes();
  file.records = std::make_unique<CsvReader>(
      path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), reading.delimiter,
      /*keeps_cells=*/true);
  const auto names = file.records->header();
  CsvLine record;
  if (table.files.empty())
    for (const auto& name : names) table.columns.push_back({.name = name});
  table.index_columns();
  table.files.push_back({.path = path});
  const auto places = places_of(path, names, table);
  file.columns.resize(names.size());
  std::vector<std::string> mistakes;
  int64_t unnamed = 0;  // further mistakes
  while (file.records->next(record)) {
    if (auto mistake = file.records->width_mistake(record, names.size()); !mistake.empty()) {
      if (mistakes.size() < 10)
        mistakes.push_back(std::move(mistake));
      else
        ++unnamed;
      continue;
    }
    for (size_t c = 0; c < places.size(); ++c) file.columns[c].push_back(record.cells[places[c]]);
    table.lines.push_back(record.line);
    ++table.files.back().rows;
  }
  if (unnamed > 0) mistakes.push_back(fmt::format("and {} more {}", unnamed, unnamed == 1 ? "line" : "lines"));
  if (!mistakes.empty()) throw usage_error("{}", join(mistakes, "\n"));
  return file;
}

/// Converts the cells of one column of all files.
void convert(TableColumn& column, size_t index, const std::vector<CsvFile>& files, const TableReading& reading) {
  const auto is_missing = [&](std::string_view cell) {
    return cell.empty() || std::ranges::find(reading.missing_values, cell) != reading.missing_values.end();
  };
  column.decimal = reading.decimal;
  column.numeric = !reading.as_text.contains(column.name);
  for (const auto& file : files)
    for (const auto& cell : file.columns[index]) {
      if (!column.numeric) break;
      const auto number = cell_number(cell, reading.decimal);
      column.numeric = number || is_missing(cell);
      if (column.code.empty() && !is_missing(cell) && is_code(cell)) column.code = cell;
      column.numbers.push_back(is_missing(cell) ? std::nan("") : number.value_or(0));
    }
  const bool target = std::ranges::find(reading.targets, column.name) != reading.targets.end();
  if (column.numeric && !target) return;
  if (!column.numeric) column.numbers.clear();
  for (const auto& file : files)
    for (const auto& cell : file.columns[index])
      column.texts.emplace_back(is_missing(cell) ? std::string_view()
                                : column.numeric ? class_text(cell, reading.decimal)
                                                 : cell);
  if (column.numeric) drop_spare_texts(column);
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

CsvRecords::CsvRecords(const fs::path& path, const std::string& delimiter)
    : map_(path),
      reader_(path.string(), {reinterpret_cast<const char*>(map_.bytes().data()), map_.bytes().size()}, delimiter,
              /*keeps_cells=*/false),
      names_(reader_.header()) {}

std::vector<CsvRecords::Range> CsvRecords::parts(size_t bytes) const {
  std::vector<Range> parts;
  CsvReader reader = reader_;
  CsvLine line;
  size_t begin = reader.at();
  const std::lock_guard lock(mutex_);
  lines_[begin] = reader.line();
  while (reader.next(line)) {
    if (reader.at() - begin < bytes) continue;
    parts.push_back({begin, reader.at()});
    begin = reader.at();
    lines_[begin] = reader.line();
  }
  if (begin < size()) parts.push_back({begin, size()});
  return parts;
}

int64_t CsvRecords::line_of(size_t begin) const {
  const std::lock_guard lock(mutex_);
  const auto known = lines_.find(begin);
  RUNNER_CHECK(known != lines_.end(), "{} is not the beginning of a part of {}", begin, path().string());
  return known->second;
}

void CsvRecords::for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const {
  CsvReader reader = reader_;
  reader.go_to(part.begin, line_of(part.begin));
  CsvLine line;
  FaultyRows faulty;
  const auto place = [&] { return fmt::format("{}:{}", path().string(), line.line); };
  while (reader.at() < part.end && !faulty.enough()) {
    try {
      if (!reader.next(line)) break;
    } catch (const Error& error) {  // it is not known where the next line begins
      faulty.add(error, place);
      break;
    }
    if (const auto mistake = reader.width_mistake(line, names_.size()); !mistake.empty()) {
      faulty.add(usage_error("{}", mistake), place);
      continue;
    }
    JsonRecord record = JsonRecord::object();
    for (size_t c = 0; c < names_.size(); ++c) record[names_[c]] = std::string(line.cells[c]);
    try {
      if (!use(record, reader.at())) break;
    } catch (const Error& error) {
      faulty.add(Error(error.code(), fmt::format("{}: {}", place(), error.what())), place);
    }
  }
  faulty.raise(/*all=*/reader.at() >= size());
}

std::string CsvRecords::place_of(size_t end) const {
  CsvReader reader = reader_;
  CsvLine line;
  while (reader.next(line) && reader.at() < end) {
  }
  return fmt::format("{}:{}", path().string(), line.line);
}

Table read_csv(const std::vector<std::string>& paths, const TableReading& reading) {
  Table table;
  std::vector<CsvFile> files;
  for (const auto& path : paths) files.push_back(read_file_of(path, reading, table));
  for (size_t c = 0; c < table.columns.size(); ++c) convert(table.columns[c], c, files, reading);
  return table;
}

}  // namespace runner
