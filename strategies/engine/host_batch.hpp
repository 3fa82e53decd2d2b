// One micro-batch of one rank in host memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/base/error.hpp"
#include "strategies/engine/batch_field.hpp"

namespace runner {

struct HostBatch {
  struct Field {
    BatchField spec;               ///< `row` is the shape of this batch's rows
    std::vector<std::byte> bytes;  ///< row after row, row-major
  };

  HostBatch() = default;
  /// All elements are 0.
  HostBatch(int64_t rows, const std::vector<BatchField>& specs) : rows(rows) {
    for (const auto& spec : specs)
      fields.push_back({spec, std::vector<std::byte>(static_cast<size_t>(rows * spec.row_bytes()))});
  }

  /// The elements of all rows of a field.
  template <typename Element>
  std::span<Element> values(size_t field) {
    auto& [spec, bytes] = fields.at(field);
    RUNNER_CHECK(spec.type == element_type<Element>(), "field `{}` has another element type", spec.name);
    return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
  }
  template <typename Element>
  std::span<const Element> values(size_t field) const {
    return const_cast<HostBatch*>(this)->values<Element>(field);
  }
  /// The elements of one row of a field.
  template <typename Element>
  std::span<Element> row(size_t field, int64_t row) {
    const auto count = static_cast<size_t>(fields.at(field).spec.row_elements());
    return values<Element>(field).subspan(static_cast<size_t>(row) * count, count);
  }
  template <typename Element>
  std::span<const Element> row(size_t field, int64_t row) const {
    return const_cast<HostBatch*>(this)->row<Element>(field, row);
  }

  int64_t rows = 0;  ///< at most micro_batch_size; fewer, or 0, at the end of an epoch
  std::vector<Field> fields;
};

}  // namespace runner
