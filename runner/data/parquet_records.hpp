// Records of a Parquet file: its rows. A part is one or more whole row groups.
#pragma once
#include <memory>

#include "runner/data/records.hpp"
#include "runner/parquet/module.hpp"

namespace runner {

class ParquetRecords final : public Records {
 public:
  /// Throws Error(environment) if the Parquet module is not installed, and Error(usage) if the file cannot be read.
  explicit ParquetRecords(const fs::path& path);
  const fs::path& path() const override { return path_; }
  size_t size() const override { return first_rows_.back(); }
  size_t bytes() const override { return bytes_; }
  std::vector<Range> parts(size_t bytes) const override;
  /// Places are "data/chat.parquet, row 17".
  std::string place_of(size_t end) const override;
  void for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const override;

 private:
  fs::path path_;
  size_t bytes_;
  std::unique_ptr<ParquetFile> file_;
  std::vector<size_t> first_rows_;  ///< of each row group, and the number of all rows
};

}  // namespace runner
