// Arrow's values as JSON.
#pragma once
#include <arrow/type_fwd.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace runner {

/// Element `row` of an array; null if it is null. See ParquetRow.
nlohmann::ordered_json json_of(const arrow::Array& array, int64_t row);

}  // namespace runner
