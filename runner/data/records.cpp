// Selects the format of records.
#include "runner/data/records.hpp"

#include "runner/base/error.hpp"
#include "runner/data/csv_records.hpp"
#include "runner/data/json_records.hpp"
#include "runner/data/parquet_records.hpp"
#include "runner/data/plugin/records.hpp"

namespace runner {

std::unique_ptr<Records> open_records(const Recipe::Data& data, const fs::path& path) {
  if (data.is_plugin()) return std::make_unique<PluginRecords>(data, path);
  if (data.format == "parquet") return std::make_unique<ParquetRecords>(path);
  if (data.format == "csv") return std::make_unique<CsvRecords>(path, data.delimiter);
  RUNNER_CHECK(data.format == "jsonl", "data.format = {}", data.format);
  return std::make_unique<JsonRecords>(path);
}

}  // namespace runner
