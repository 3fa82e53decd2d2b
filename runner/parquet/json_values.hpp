// Arrow's values as JSON.
#pragma once
#include <arrow/type_fwd.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace runner {

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

/// Element `row` of an array; null if it is null. See ParquetRow. Adds its size to `bytes`.
nlohmann::ordered_json json_of(const arrow::Array& array, int64_t row, JsonBytes& bytes);

}  // namespace runner
