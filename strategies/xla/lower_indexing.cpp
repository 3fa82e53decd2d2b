// Elements and rows by index: reads, sums and writes.
#include "runner/base/error.hpp"
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

Value as_index(ModuleText& text, const Value& index) { return text.convert(index, ElementType::int64); }

/// The order in which a dimension is the first one.
Shape to_front(int64_t dim, int64_t rank) {
  Shape order{dim};
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim) order.push_back(d);
  return order;
}

// ---- a table and its rows

void embedding(Call& call) {
  call.give(call.text.rows(call.value("weight"), as_index(call.text, call.value("indices"))));
}

/// Rows with the index padding_idx get no gradient.
void embedding_backward(Call& call) {
  auto& text = call.text;
  if (call.boolean("scale_grad_by_freq"))
    throw run_error("the gradient of an embedding, divided by the number of uses, cannot be compiled");
  auto gradient = call.value("grad_output");
  const auto element = gradient.type.element;
  const Type type{wide(element), {call.integer("num_weights"), gradient.shape().back()}};
  gradient = text.convert(gradient, type.element);
  const auto ids = as_index(text, call.value("indices"));
  const int64_t padding = call.integer("padding_idx");
  if (padding >= 0) {
    const auto counts = text.compare(Comparison::not_equal, ids, text.whole(padding, ids.type));
    gradient = text.select(repeated(text, counts, gradient.shape(), {std::ssize(gradient.shape()) - 1}), gradient,
                           text.splat(0, gradient.type));
  }
  call.give(text.convert(text.add_rows(type, ids, gradient), element));
}

/// A tensor as a table whose rows are its parts along the argument `dim`, and the argument `index`.
struct Lines {
  Shape order;  ///< of the dimensions in the table
  Value table, index;
  Shape shape;  ///< of the tensor

  explicit Lines(Call& call) {
    auto& text = call.text;
    const auto self = call.value("self");
    shape = self.shape();
    const Shape at_least_one = shape.empty() ? Shape{1} : shape;
    order = to_front(call.dim("dim", std::ssize(shape)), std::ssize(at_least_one));
    table = text.transpose(text.reshape(self, at_least_one), order);
    index = as_index(text, call.value("index"));
    index = text.reshape(index, {index.type.numel()});
  }
  /// Rows, for each index.
  Value rows(ModuleText& text, const Value& given, ElementType element) const {
    const Shape at_least_one = given.shape().empty() ? Shape{1} : given.shape();
    return text.transpose(text.reshape(text.convert(given, element), at_least_one), order);
  }
  Value tensor(ModuleText& text, const Value& changed) const {
    const auto result = text.transpose(changed, inverse(order));
    return shape.empty() ? text.reshape(result, {}) : result;
  }
};

void index_select(Call& call) {
  const Lines lines(call);
  call.give(lines.tensor(call.text, call.text.rows(lines.table, lines.index)));
}

void index_add(Call& call) {
  auto& text = call.text;
  const Lines lines(call);
  const auto element = wide(lines.table.type.element);
  auto source = lines.rows(text, call.value("source"), element);
  if (const double alpha = call.number_or("alpha", 1); alpha != 1) source = text.multiply(source, alpha);
  const auto sums = text.add_rows({element, lines.table.shape()}, lines.index, source);
  const auto result = text.add(text.convert(lines.table, element), sums);
  call.give(text.convert(lines.tensor(text, result), lines.table.type.element));
}

void index_copy(Call& call) {
  const Lines lines(call);
  const auto source = lines.rows(call.text, call.value("source"), lines.table.type.element);
  call.give(lines.tensor(call.text, call.text.put_rows(lines.table, lines.index, source)));
}

void index_fill(Call& call) {
  const Lines lines(call);
  Type type = lines.table.type;
  type.shape[0] = lines.index.type.numel();
  call.give(lines.tensor(call.text, call.text.put_rows(lines.table, lines.index, call.value("value", type))));
}

// ---- lists of indices

/// A tensor whose indexed dimensions are joined to the first dimension of a table, and indices of them as one.
struct Joined {
  Value index;                  ///< of the shape that the indices have in common
  Shape order;                  ///< of the tensor's dimensions: the indexed ones first
  Shape ordered, table;         ///< sizes of the tensor in this order, and of the table
  std::vector<int64_t> places;  ///< of the indexed dimensions

  /// The order of the result's dimensions in [index..., rest...]. The index is in the place of its dimensions if these are neighbours.
  Shape result_order() const {
    const auto of_index = std::ssize(index.shape()), rest = std::ssize(table) - 1;
    const bool neighbours = places.back() - places.front() + 1 == std::ssize(places);
    const int64_t before = neighbours ? places.front() : 0;
    Shape result = counted_dims(of_index, of_index + before);
    for (const int64_t dim : counted_dims(0, of_index)) result.push_back(dim);
    for (const int64_t dim : counted_dims(of_index + before, of_index + rest)) result.push_back(dim);
    return result;
  }
};

/// The indices of the argument `indices`; undefined ones stand for whole dimensions.
std::vector<std::optional<Value>> given_indices(Call& call) {
  std::vector<std::optional<Value>> indices;
  for (const c10::IValue& index : call.argument("indices").toListRef()) {
    if (index.isNone() || !index.toTensor().defined()) {
      indices.emplace_back();
      continue;
    }
    indices.push_back(call.value_of(index.toTensor()));
    if (indices.back()->type.element == ElementType::boolean)
      throw run_error("selection by a mask cannot be compiled: the number of elements depends on values");
  }
  return indices;
}

Joined joined(Call& call, const Shape& self) {
  auto& text = call.text;
  auto indices = given_indices(call);
  indices.resize(self.size());
  Joined result;
  Shape common, rest;
  for (int64_t d = 0; d < std::ssize(self); ++d) {
    const auto& index = indices[static_cast<size_t>(d)];
    (index ? result.places : rest).push_back(d);
    if (index) common = at::infer_size(common, index->shape());
  }
  result.order = result.places;
  result.order.insert(result.order.end(), rest.begin(), rest.end());
  for (const int64_t d : result.order) result.ordered.push_back(self[static_cast<size_t>(d)]);
  int64_t rows = 1;
  for (const int64_t d : result.places) {
    const int64_t size = self[static_cast<size_t>(d)];
    auto index = text.expand(as_index(text, *indices[static_cast<size_t>(d)]), common);
    index = text.select(is_negative(text, index), text.add(index, static_cast<double>(size)), index);
    const bool first = d == result.places.front();
    result.index = first ? index : text.add(text.multiply(result.index, static_cast<double>(size)), index);
    rows *= size;
  }
  result.table = {rows};
  result.table.insert(result.table.end(), result.ordered.begin() + std::ssize(result.places), result.ordered.end());
  return result;
}

Value as_table(ModuleText& text, const Value& self, const Joined& where) {
  return text.reshape(text.transpose(self, where.order), where.table);
}
Value from_table(ModuleText& text, const Value& table, const Joined& where) {
  return text.transpose(text.reshape(table, where.ordered), inverse(where.order));
}

void index(Call& call) {
  auto& text = call.text;
  const auto self = call.value("self");
  const auto where = joined(call, self.shape());
  call.give(text.transpose(text.rows(as_table(text, self, where), where.index), where.result_order()));
}

/// A mask over the first dimensions, if the only index is one.
std::optional<Value> only_mask(Call& call) {
  const auto indices = call.argument("indices").toListRef();
  if (indices.size() != 1 || indices[0].isNone() || indices[0].toTensor().scalar_type() != torch::kBool)
    return std::nullopt;
  return call.value_of(indices[0].toTensor());
}

/// Puts one value into all elements where the mask is true.
void put_by_mask(Call& call, const Value& self, const Value& mask) {
  auto& text = call.text;
  if (call.tensor("values").numel() != 1)
    throw run_error("a write of several values by a mask cannot be compiled: their number depends on the mask");
  const auto rank = std::ssize(self.shape());
  const auto where = repeated(text, mask, self.shape(), counted_dims(std::ssize(mask.shape()), rank));
  const auto value = text.expand(text.reshape(text.convert(call.value("values"), self.type.element), {}), self.shape());
  call.give(text.select(where, call.boolean("accumulate") ? text.add(self, value) : value, self));
}

void index_put(Call& call) {
  auto& text = call.text;
  const auto self = call.value("self");
  if (const auto mask = only_mask(call)) return put_by_mask(call, self, *mask);
  const auto where = joined(call, self.shape());
  const auto order = where.result_order();
  Shape rows = where.index.shape();
  rows.insert(rows.end(), where.table.begin() + 1, where.table.end());
  Type result{self.type.element, {}};
  for (const int64_t d : order) result.shape.push_back(rows[static_cast<size_t>(d)]);
  const auto values = text.transpose(call.value("values", result), inverse(order));
  if (!call.boolean("accumulate"))
    return call.give(from_table(text, text.put_rows(as_table(text, self, where), where.index, values), where));
  const auto element = wide(self.type.element);
  const auto sums = text.add_rows({element, where.table}, where.index, text.convert(values, element));
  const auto sum = text.add(text.convert(self, element), from_table(text, sums, where));
  call.give(text.convert(sum, self.type.element));
}

// ---- single elements

/// The elements of a tensor as rows of a table, and for each element of `index` the number of the row that it means: that of its own
/// coordinates but for one.
struct Elements {
  Value table, index;
  Shape shape;

  explicit Elements(Call& call) {
    auto& text = call.text;
    const auto self = call.value("self");
    shape = self.shape();
    table = text.reshape(self, {self.type.numel()});
    const auto given = as_index(text, call.value("index"));
    if (shape.empty()) {
      index = text.reshape(given, given.type.numel() == 0 ? Shape{0} : Shape{1});
      return;
    }
    const int64_t dim = call.dim("dim", std::ssize(shape));
    index = text.splat(0, given.type);
    for (int64_t d = 0; d < std::ssize(shape); ++d) {
      const auto place = d == dim ? given : text.iota(given.type, d);
      index = text.add(text.multiply(index, static_cast<double>(shape[static_cast<size_t>(d)])), place);
    }
  }
  /// The elements of another tensor at the places that `index` has.
  Value at_places(ModuleText& text, Value source) const {
    if (source.shape().empty()) return text.reshape(source, index.shape());
    for (int64_t d = 0; d < std::ssize(index.shape()); ++d)
      if (const int64_t size = index.shape()[static_cast<size_t>(d)]; size != source.shape()[static_cast<size_t>(d)])
        source = text.slice(source, d, 0, size);
    return source;
  }
};

void gather(Call& call) {
  const Elements elements(call);
  call.give(call.text.reshape(call.text.rows(elements.table, elements.index), call.result_type().shape));
}

void scatter_add(Call& call) {
  auto& text = call.text;
  const Elements elements(call);
  const auto element = wide(elements.table.type.element);
  const auto source = text.convert(elements.at_places(text, call.value("src")), element);
  const auto sums = text.add_rows({element, elements.table.shape()}, elements.index, source);
  call.give(text.reshape(text.add(text.convert(elements.table, element), sums), elements.shape));
}

void scatter(Call& call) {
  auto& text = call.text;
  const Elements elements(call);
  const Type type{elements.table.type.element, elements.index.shape()};
  const auto source = call.has("src") ? text.convert(elements.at_places(text, call.value("src")), type.element)
                                      : call.value("value", type);
  call.give(text.reshape(text.put_rows(elements.table, elements.index, source), elements.shape));
}

}  // namespace

void add_indexing(Lowerings& table) {
  table.insert({{"aten::embedding", {embedding, true}},
                {"aten::embedding_dense_backward", {embedding_backward, true}},
                {"aten::index_select", {index_select, true}},
                {"aten::index_add", {index_add, true}},
                {"aten::index_copy", {index_copy, true}},
                {"aten::index_fill", {index_fill, true}},
                {"aten::index.Tensor", {index, true}},
                {"aten::index_put", {index_put, true}},
                {"aten::_index_put_impl", {index_put, true}},
                {"aten::gather", {gather}},
                {"aten::scatter_add", {scatter_add}},
                {"aten::scatter.src", {scatter}},
                {"aten::scatter.value", {scatter}}});
}

}  // namespace runner::xla
