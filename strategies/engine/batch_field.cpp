#include "strategies/engine/batch_field.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

struct TypeFacts {
  ElementType type;
  const char* name;
  int64_t bytes;
};
constexpr TypeFacts types[] = {{.type = ElementType::int64, .name = "int64", .bytes = 8},
                               {.type = ElementType::int32, .name = "int32", .bytes = 4},
                               {.type = ElementType::uint8, .name = "uint8", .bytes = 1},
                               {.type = ElementType::boolean, .name = "bool", .bytes = 1},
                               {.type = ElementType::float32, .name = "float32", .bytes = 4}};

const TypeFacts& facts_of(ElementType type) {
  const auto* found = std::ranges::find(types, type, &TypeFacts::type);
  RUNNER_CHECK(found != std::end(types), "element type {}", static_cast<int>(type));
  return *found;
}

}  // namespace

int64_t bytes_of(ElementType type) { return facts_of(type).bytes; }

std::string name_of(ElementType type) { return facts_of(type).name; }

std::vector<ElementType> element_types() {
  std::vector<ElementType> list;
  for (const auto& facts : types) list.push_back(facts.type);
  return list;
}

ElementType element_type_named(const std::string& name) {
  for (const auto& facts : types)
    if (name == facts.name) return facts.type;
  RUNNER_CHECK(false, "element type `{}`", name);
  return {};
}

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
