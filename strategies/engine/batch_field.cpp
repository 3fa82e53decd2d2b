#include "strategies/engine/batch_field.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

struct TypeFacts {
  const char* name;
  int64_t bytes;
};

TypeFacts facts_of(ElementType type) {
  switch (type) {
    case ElementType::int64:
      return {.name = "int64", .bytes = 8};
    case ElementType::int32:
      return {.name = "int32", .bytes = 4};
    case ElementType::uint8:
      return {.name = "uint8", .bytes = 1};
    case ElementType::boolean:
      return {.name = "bool", .bytes = 1};
    case ElementType::float32:
      return {.name = "float32", .bytes = 4};
  }
  RUNNER_CHECK(false, "element type {}", static_cast<int>(type));
  return {};
}

}  // namespace

int64_t bytes_of(ElementType type) { return facts_of(type).bytes; }

int64_t BatchField::row_elements() const {
  int64_t count = 1;
  for (int64_t size : row) count *= size;
  return count;
}

std::string describe(const std::vector<BatchField>& fields) {
  std::vector<std::string> list;
  for (const auto& field : fields)
    list.push_back(fmt::format("`{}` ({} [{}])", field.name, facts_of(field.type).name, fmt::join(field.row, ", ")));
  return join(list, ", ");
}

std::vector<BatchField> missing_fields(const std::vector<BatchField>& needed, const std::vector<BatchField>& provided) {
  std::vector<BatchField> missing;
  for (const auto& field : needed) {
    const auto provides = [&](const BatchField& other) {
      return other.name == field.name && other.type == field.type && other.row == field.row;
    };
    if (std::ranges::none_of(provided, provides)) missing.push_back(field);
  }
  return missing;
}

}  // namespace runner
