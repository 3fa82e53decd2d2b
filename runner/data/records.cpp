// Selects the format of records.
#include "runner/data/records.hpp"

#include "runner/base/error.hpp"
#include "runner/data/json_records.hpp"
#include "runner/data/parquet_records.hpp"

namespace runner {

std::unique_ptr<Records> open_records(const std::string& format, const fs::path& path) {
  if (format == "parquet") return std::make_unique<ParquetRecords>(path);
  RUNNER_CHECK(format == "jsonl", "data.format = {}", format);
  return std::make_unique<JsonRecords>(path);
}

}  // namespace runner
