// The operations of a program that take rows of a table, put rows into it, and find the largest elements of rows.
#include "strategies/pjrt/module_text.hpp"
#include "strategies/pjrt/module_words.hpp"

namespace runner::pjrt {

Value ModuleText::rows(const Value& table, const Value& ids) {
  const auto ids_rank = std::ssize(ids.shape()), row_rank = std::ssize(table.shape()) - 1;
  Shape sizes = table.shape(), shape = ids.shape();
  sizes[0] = 1;
  shape.insert(shape.end(), table.shape().begin() + 1, table.shape().end());
  const Type type{table.type.element, shape};
  const Value made = result(type);
  body_ += fmt::format(
      "    {} = \"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<offset_dims = {}, "
      "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = {}>, slice_sizes = {}}}> : {}\n",
      text_of(made), text_of(table), text_of(ids), list_of(counted_dims(ids_rank, ids_rank + row_rank)), ids_rank,
      array_of(sizes), signature({table, ids}, type));
  return made;
}

Value ModuleText::scattered(const Value& table, const Value& ids, const Value& values, const char* combiner) {
  const auto ids_rank = std::ssize(ids.shape()), row_rank = std::ssize(table.shape()) - 1;
  return combining(
      "scatter", fmt::format("{}, {}, {}", text_of(table), text_of(ids), text_of(values)), combiner,
      fmt::format(
          "{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {}, inserted_window_dims = [0], "
          "scatter_dims_to_operand_dims = [0], index_vector_dim = {}>}}",
          list_of(counted_dims(ids_rank, ids_rank + row_rank)), ids_rank),
      {table, ids, values}, table.type);
}

Value ModuleText::add_rows(const Type& table, const Value& ids, const Value& values) {
  return scattered(splat(0, table), ids, values, "add");
}

Value ModuleText::put_rows(const Value& table, const Value& ids, const Value& values) {
  return scattered(table, ids, values, nullptr);
}

std::pair<Value, Value> ModuleText::largest(const Value& a, int64_t count) {
  Type type = a.type;
  RUNNER_CHECK(!type.shape.empty() && count <= type.shape.back(), "the largest {} of {}", count, text_of(a.type));
  type.shape.back() = count;
  const Type places{ElementType::int32, type.shape};
  const int64_t id = next_++;
  body_ += fmt::format("    %{}:2 = \"chlo.top_k\"({}) <{{k = {} : i64}}> : ({}) -> ({}, {})\n", id, text_of(a), count,
                       text_of(a.type), text_of(type), text_of(places));
  return {{.id = id, .part = 0, .type = type}, {.id = id, .part = 1, .type = places}};
}

}  // namespace runner::pjrt
