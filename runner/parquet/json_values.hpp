// Arrow's values as JSON.
#pragma once
#include <arrow/type_fwd.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "runner/parquet/bounds.hpp"

namespace runner {

/// Element `row` of an array; null if it is null. See ParquetRow. Adds its size to `bytes`.
nlohmann::ordered_json json_of(const arrow::Array& array, int64_t row, JsonBytes& bytes);

}  // namespace runner
