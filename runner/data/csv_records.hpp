// Records of a CSV file: its lines, with the names of columns from the first line. All cells are texts.
#pragma once
#include <map>
#include <mutex>

#include "runner/data/csv_reader.hpp"
#include "runner/data/records.hpp"

namespace runner {

/// Ranges are of bytes. Places are file and line.
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
