// Writes Parquet files, in the Parquet module.
#pragma once
#include "runner/parquet/module.hpp"

namespace runner {

std::unique_ptr<ParquetWriter> create_parquet_file(const std::string& path,
                                                   const std::vector<ParquetWriter::Column>& columns);

}  // namespace runner
