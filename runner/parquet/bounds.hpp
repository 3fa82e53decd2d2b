// Bounds of Parquet files (limits.hpp): a small file may promise, or unpack to, more than any memory holds.
#pragma once
#include <arrow/memory_pool.h>
#include <parquet/type_fwd.h>

#include <cstdint>
#include <string>

#include "runner/base/limits.hpp"

namespace runner {

/// Throws Error(usage) that names the file and its row group, if what the file says about itself is wrong or exceeds a bound.
void check_parquet_metadata(const parquet::FileMetaData& metadata, uintmax_t file_bytes, const std::string& path);

/// The memory of one reader: at most parquet_reader_bytes_max. Arrow unpacks pages into it, whatever their sizes are said to be.
class ReaderMemory {
 public:
  arrow::MemoryPool* pool() { return &capped_; }

 private:
  arrow::ProxyMemoryPool counted_{arrow::default_memory_pool()};
  arrow::CappedMemoryPool capped_{&counted_, parquet_reader_bytes_max};
};

/// The message if ReaderMemory was not sufficient.
std::string too_much_memory();

/// Counts the bytes of JSON values, before they are made: at most parquet_row_bytes_max for a row, and parquet_group_bytes_max for the
/// rows of a row group. The same text of a dictionary may be in all rows.
class JsonBytes {
 public:
  void begin_row() { row_ = 0; }
  /// Throws Error(usage).
  void add(size_t bytes);

 private:
  int64_t row_ = 0, group_ = 0;
};

}  // namespace runner
