// The fields of a batch whose samples come from several data sets.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "strategies/engine/host_batch.hpp"

namespace runner {

/// For each field the largest row of any sample. `fields_of(sample)` gives the fields of a batch of this sample alone.
template <typename FieldsOf>
std::vector<BatchField> largest_fields(std::span<const int64_t> samples, FieldsOf&& fields_of) {
  std::vector<BatchField> largest;
  for (int64_t sample : samples) {
    const std::vector<BatchField> fields = fields_of(sample);
    if (largest.empty()) largest = fields;
    for (size_t i = 0; i < fields.size(); ++i)
      for (size_t d = 0; d < fields[i].row.size(); ++d)
        largest[i].row[d] = std::max(largest[i].row[d], fields[i].row[d]);
  }
  return largest;
}

}  // namespace runner
