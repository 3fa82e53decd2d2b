#include "runner/parquet/bounds.hpp"

#include <parquet/metadata.h>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

void check_group(const parquet::FileMetaData& metadata, int index, uintmax_t file_bytes, const std::string& path) {
  const auto group = metadata.RowGroup(index);
  const auto where = fmt::format("{}, row group {}", path, index + 1);
  if (group->num_rows() < 0 || group->num_columns() != metadata.num_columns())
    throw usage_error("{}: the file is damaged: it has {} rows and {} columns", where, group->num_rows(),
                      group->num_columns());
  if (group->num_rows() > parquet_group_rows_max)
    throw usage_error("{}: it has {} rows; at most {} are allowed", where, group->num_rows(), parquet_group_rows_max);
  int64_t unpacked = 0;
  for (int c = 0; c < metadata.num_columns(); ++c) {
    const auto chunk = group->ColumnChunk(c);
    const int64_t stored = chunk->total_compressed_size(), whole = chunk->total_uncompressed_size();
    if (stored < 0 || static_cast<uintmax_t>(stored) > file_bytes || whole < 0)
      throw usage_error("{}: the file is damaged: column {} has {} bytes, and {} without compression", where, c + 1,
                        stored, whole);
    if (whole > parquet_group_bytes_max - unpacked)
      throw usage_error("{}: it has more than {} without compression, which is the most that is allowed", where,
                        format_bytes(parquet_group_bytes_max));
    unpacked += whole;
  }
}

}  // namespace

void check_parquet_metadata(const parquet::FileMetaData& metadata, uintmax_t file_bytes, const std::string& path) {
  if (metadata.num_schema_elements() > parquet_fields_max)
    throw usage_error("{}: it has {} columns and groups of columns; at most {} are allowed", path,
                      metadata.num_schema_elements(), parquet_fields_max);
  int64_t rows = 0;
  for (int g = 0; g < metadata.num_row_groups(); ++g) {
    check_group(metadata, g, file_bytes, path);
    rows += metadata.RowGroup(g)->num_rows();
  }
  if (rows > 0 && metadata.num_columns() == 0) throw usage_error("{}: it has rows, but no column", path);
}

std::string too_much_memory() {
  return fmt::format("the data need more than {} of memory at once, which is the most that is allowed",
                     format_bytes(parquet_reader_bytes_max));
}

void JsonBytes::add(size_t bytes) {
  const auto more = static_cast<int64_t>(bytes);
  row_ += more;
  group_ += more;
  if (row_ > parquet_row_bytes_max)
    throw usage_error("a row has more than {}, which is the most that is allowed", format_bytes(parquet_row_bytes_max));
  if (group_ > parquet_group_bytes_max)
    throw usage_error("the rows of a row group have more than {}, which is the most that is allowed",
                      format_bytes(parquet_group_bytes_max));
}

}  // namespace runner
