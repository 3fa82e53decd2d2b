// Reads CSV files (RFC 4180): cuts the text into lines of cells, which are records.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/data/records.hpp"

namespace runner {

/// Cells are views of the text, or of texts that the reader keeps until the next line, or for ever.
struct CsvLine {
  std::vector<std::string_view> cells;
  int64_t line = 0;  ///< in the file, from 1: of the first cell
};

/// Cells may be quoted with ", and a quoted cell may contain the delimiter, line breaks, and "" for ". Spaces around cells that are
/// not quoted do not count, and blank lines are left out. Lines end with LF or CR LF; with CR if the text has no LF.
class CsvReader {
 public:
  /// `delimiter` as data.delimiter. `keeps_cells`: cells of all lines stay valid, for which the reader keeps a copy of those with "".
  /// Throws Error(usage) with file and line if the text is not UTF-8.
  CsvReader(std::string path, std::string_view text, const std::string& delimiter, bool keeps_cells);

  /// The names of the columns, from the first line. Throws Error(usage) with file and line if it has no unique names. To be called once,
  /// before next().
  std::vector<std::string> header();
  /// False at the end of the file. Throws Error(usage) with file and line.
  bool next(CsvLine& line);
  /// Says what is wrong with a line that should have `columns` cells, with file and line; empty: nothing.
  std::string width_mistake(const CsvLine& line, size_t columns) const;

  /// The place of the next line in the text.
  size_t at() const { return at_; }
  /// The number of the line there.
  int64_t line() const { return line_; }
  /// Continues at a place where at() was, in the line that line() was. Cells that were read before may become invalid.
  void go_to(size_t at, int64_t line);

 private:
  /// Reads one cell and what ends it. Returns whether it ended with a delimiter.
  bool read_cell(CsvLine& line);
  std::string_view quoted();
  std::string place(int64_t line) const;

  std::string path_;
  std::string_view text_;
  char delimiter_, line_end_ = '\n';
  bool guessed_, keeps_cells_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::deque<std::string> kept_;  ///< cells without doubled quotes
};

/// The records of a CSV file: its lines, with the names of columns from the first line. All cells are texts. Ranges are of bytes. Places
/// are file and line.
class CsvRecords final : public Records {
 public:
  /// `delimiter` as data.delimiter.
  CsvRecords(const fs::path& path, const std::string& delimiter);
  const fs::path& path() const override { return map_.path(); }
  size_t size() const override { return map_.bytes().size(); }
  size_t bytes() const override { return map_.bytes().size(); }
  std::vector<Range> parts(size_t bytes) const override;
  void for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const override;
  std::string place_of(size_t end) const override;

 private:
  /// The number of the line where a range of parts() begins.
  int64_t line_of(size_t begin) const;
  MappedFile map_;
  CsvReader reader_;  ///< before the first record; copied, because each thread needs its own place
  std::vector<std::string> names_;
  mutable std::mutex mutex_;  ///< guards lines_
  /// The numbers of the lines where parts begin. Counting them again would read the file again.
  mutable std::map<size_t, int64_t> lines_;
};

}  // namespace runner
