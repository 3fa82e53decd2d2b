#include "strategies/pjrt/module_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/base/error.hpp"

namespace runner::pjrt {

namespace {

const char* element_name(ElementType element) {
  switch (element) {
    case ElementType::boolean:
      return "i1";
    case ElementType::int32:
      return "i32";
    case ElementType::int64:
      return "i64";
    case ElementType::float16:
      return "f16";
    case ElementType::bfloat16:
      return "bf16";
    case ElementType::float32:
      return "f32";
    case ElementType::float64:
      return "f64";
  }
  return "";
}

bool is_float(ElementType element) { return element >= ElementType::float16; }

std::string text_of(const Type& type) {
  std::string text = "tensor<";
  for (const int64_t size : type.shape) text += std::to_string(size) + "x";
  return text + element_name(type.element) + ">";
}

std::string text_of(const Value& value) { return "%" + std::to_string(value.id); }

std::string list_of(const Shape& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

std::string array_of(const Shape& numbers) {
  return numbers.empty() ? "array<i64>" : fmt::format("array<i64: {}>", fmt::join(numbers, ", "));
}

/// A literal that XLA reads as this number exactly.
std::string literal(double number, ElementType element) {
  if (element == ElementType::boolean) return number != 0 ? "true" : "false";
  if (!is_float(element)) {
    RUNNER_CHECK(std::trunc(number) == number && std::abs(number) <= 0x1p53, "{} as an integer", number);
    return std::to_string(static_cast<int64_t>(number));
  }
  if (std::isfinite(number)) return fmt::format("{:.17e}", number);
  // Bits, because the text has no infinities. All formats are sign, exponent, fraction.
  const bool negative = std::signbit(number);
  switch (element) {
    case ElementType::float16:
      return std::isnan(number) ? "0x7E00" : negative ? "0xFC00" : "0x7C00";
    case ElementType::bfloat16:
      return std::isnan(number) ? "0x7FC0" : negative ? "0xFF80" : "0x7F80";
    case ElementType::float32:
      return std::isnan(number) ? "0x7FC00000" : negative ? "0xFF800000" : "0x7F800000";
    default:
      return std::isnan(number) ? "0x7FF8000000000000" : negative ? "0xFFF0000000000000" : "0x7FF0000000000000";
  }
}

const char* name_of(Binary kind) {
  constexpr const char* names[] = {"add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "and", "or"};
  return names[static_cast<size_t>(kind)];
}

const char* name_of(Unary kind) {
  constexpr const char* names[] = {"exponential", "log",    "log_plus_one", "tanh", "logistic",
                                   "rsqrt",       "sqrt",   "negate",       "abs",  "sign",
                                   "floor",       "cosine", "sine",         "not",  "is_finite"};
  return names[static_cast<size_t>(kind)];
}

const char* name_of(Comparison kind) {
  constexpr const char* names[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  return names[static_cast<size_t>(kind)];
}

std::string signature(const std::vector<Value>& operands, const Type& type) {
  std::vector<std::string> types;
  for (const auto& operand : operands) types.push_back(text_of(operand.type));
  return fmt::format("({}) -> {}", fmt::join(types, ", "), text_of(type));
}

Shape all_but(int64_t rank, const Shape& left_out) {
  Shape rest;
  for (int64_t i = 0; i < rank; ++i)
    if (std::ranges::find(left_out, i) == left_out.end()) rest.push_back(i);
  return rest;
}

Shape counted(int64_t first, int64_t count) {
  Shape numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

int64_t Type::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
}

ModuleText::ModuleText(int replicas) : replicas_(replicas) {}

Value ModuleText::result(const Type& type) { return {.id = next_++, .type = type}; }

Value ModuleText::argument(const Type& type) {
  arguments_.push_back(result(type));
  return arguments_.back();
}

Value ModuleText::operation(const std::string& text, const std::vector<Value>& operands, const Type& type) {
  const Value made = result(type);
  body_ += fmt::format("    {} = {} : {}\n", text_of(made), text, signature(operands, type));
  return made;
}

Value ModuleText::combining(const std::string& name, const std::string& operands, const char* combiner,
                            const std::string& attributes, const std::vector<Value>& types, const Type& type) {
  const Value made = result(type);
  const std::string scalar = text_of(Type{type.element, {}});
  // Names in a region must differ from all others, so they have the id of the result.
  body_ += fmt::format(
      "    %{0} = \"stablehlo.{1}\"({2}) ({{\n      ^bb0(%x{0}: {3}, %y{0}: {3}):\n        %z{0} = stablehlo.{4} "
      "%x{0}, %y{0} : {3}\n"
      "        stablehlo.return %z{0} : {3}\n    }}) {5} : {6}\n",
      made.id, name, operands, scalar, combiner, attributes, signature(types, type));
  return made;
}

std::string ModuleText::groups() const {
  return fmt::format("replica_groups = dense<[[{}]]> : tensor<1x{}xi64>", fmt::join(counted(0, replicas_), ", "),
                     replicas_);
}

std::string ModuleText::finish(const std::vector<Output>& outputs) {
  std::vector<std::string> arguments, types, values;
  for (const auto& argument : arguments_) {
    std::string text = fmt::format("{}: {}", text_of(argument), text_of(argument.type));
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].donated && outputs[i].donated->id == argument.id) {
        RUNNER_CHECK(outputs[i].value.type == argument.type, "an argument is donated to an output of another type");
        text += fmt::format(" {{tf.aliasing_output = {} : i32}}", i);
      }
    arguments.push_back(text);
  }
  for (const auto& output : outputs) {
    if (output.donated) {
      const auto uses = [&](const Output& other) { return other.donated && other.donated->id == output.donated->id; };
      RUNNER_CHECK(std::ranges::find(arguments_, output.donated->id, &Value::id) != arguments_.end() &&
                       std::ranges::count_if(outputs, uses) == 1,
                   "only an argument can be donated, and only to one output");
    }
    types.push_back(text_of(output.value.type));
    values.push_back(text_of(output.value));
  }
  return fmt::format(
      "module @program attributes {{mhlo.num_replicas = {} : i32, mhlo.num_partitions = 1 : i32}} {{\n"
      "  func.func public @main({}) -> ({}) {{\n{}    return {} : {}\n  }}\n}}\n",
      replicas_, fmt::join(arguments, ", "), fmt::join(types, ", "), body_, fmt::join(values, ", "),
      fmt::join(types, ", "));
}

Value ModuleText::splat(double number, const Type& type) {
  const Value made = result(type);
  body_ += fmt::format("    {} = stablehlo.constant dense<{}> : {}\n", text_of(made), literal(number, type.element),
                       text_of(type));
  return made;
}

Value ModuleText::iota(const Type& type, int64_t dim) {
  const Value made = result(type);
  body_ += fmt::format("    {} = stablehlo.iota dim = {} : {}\n", text_of(made), dim, text_of(type));
  return made;
}

Value ModuleText::replica() {
  const Value unsigned_id = result({ElementType::int32, {}});
  body_ += fmt::format("    {} = stablehlo.replica_id : tensor<ui32>\n", text_of(unsigned_id));
  const Value made = result({ElementType::int32, {}});
  body_ += fmt::format("    {} = stablehlo.convert {} : (tensor<ui32>) -> tensor<i32>\n", text_of(made),
                       text_of(unsigned_id));
  return made;
}

Value ModuleText::binary(Binary kind, const Value& a, const Value& b) {
  RUNNER_CHECK(a.type == b.type, "{} of {} and {}", name_of(kind), text_of(a.type), text_of(b.type));
  return operation(fmt::format("stablehlo.{} {}, {}", name_of(kind), text_of(a), text_of(b)), {a, b}, a.type);
}

Value ModuleText::unary(Unary kind, const Value& a) {
  const Type type{kind == Unary::is_finite ? ElementType::boolean : a.type.element, a.type.shape};
  return operation(fmt::format("stablehlo.{} {}", name_of(kind), text_of(a)), {a}, type);
}

Value ModuleText::compare(Comparison kind, const Value& a, const Value& b) {
  RUNNER_CHECK(a.type == b.type, "comparison of {} and {}", text_of(a.type), text_of(b.type));
  return operation(fmt::format("stablehlo.compare {}, {}, {}", name_of(kind), text_of(a), text_of(b)), {a, b},
                   {ElementType::boolean, a.type.shape});
}

Value ModuleText::select(const Value& condition, const Value& a, const Value& b) {
  RUNNER_CHECK(a.type == b.type && condition.type == Type(ElementType::boolean, a.type.shape), "select of {} and {}",
               text_of(a.type), text_of(b.type));
  return operation(fmt::format("stablehlo.select {}, {}, {}", text_of(condition), text_of(a), text_of(b)),
                   {condition, a, b}, a.type);
}

Value ModuleText::convert(const Value& a, ElementType element) {
  if (a.type.element == element) return a;
  return operation(fmt::format("stablehlo.convert {}", text_of(a)), {a}, {element, a.type.shape});
}

Value ModuleText::reshape(const Value& a, const Shape& shape) {
  const Type type{a.type.element, shape};
  RUNNER_CHECK(type.numel() == a.type.numel(), "reshape of {} to {}", text_of(a.type), text_of(type));
  return a.type == type ? a : operation(fmt::format("stablehlo.reshape {}", text_of(a)), {a}, type);
}

Value ModuleText::transpose(const Value& a, const Shape& order) {
  RUNNER_CHECK(order.size() == a.shape().size(), "{} dimensions of {} in another order", order.size(), text_of(a.type));
  if (order == counted(0, std::ssize(order))) return a;
  Type type{a.type.element, {}};
  for (const int64_t dim : order) type.shape.push_back(a.shape().at(static_cast<size_t>(dim)));
  return operation(fmt::format("stablehlo.transpose {}, dims = {}", text_of(a), list_of(order)), {a}, type);
}

Value ModuleText::broadcast(const Value& a, const Shape& shape, const Shape& dims) {
  RUNNER_CHECK(dims.size() == a.shape().size(), "broadcast of {} along {} dimensions", text_of(a.type), dims.size());
  return operation(fmt::format("stablehlo.broadcast_in_dim {}, dims = {}", text_of(a), list_of(dims)), {a},
                   {a.type.element, shape});
}

Value ModuleText::expand(const Value& a, const Shape& shape) {
  if (a.shape() == shape) return a;
  const auto more = std::ssize(shape) - std::ssize(a.shape());
  RUNNER_CHECK(more >= 0, "expansion of {} to {} dimensions", text_of(a.type), shape.size());
  return broadcast(a, shape, counted(more, std::ssize(a.shape())));
}

Value ModuleText::slice(const Value& a, int64_t dim, int64_t begin, int64_t end, int64_t step) {
  Type type = a.type;
  type.shape.at(static_cast<size_t>(dim)) = (end - begin + step - 1) / step;
  std::vector<std::string> ranges;
  for (int64_t i = 0; i < std::ssize(a.shape()); ++i)
    ranges.push_back(i == dim ? fmt::format("{}:{}:{}", begin, end, step)
                              : fmt::format("0:{}", a.shape()[static_cast<size_t>(i)]));
  return operation(fmt::format("stablehlo.slice {} [{}]", text_of(a), fmt::join(ranges, ", ")), {a}, type);
}

Value ModuleText::concatenate(const std::vector<Value>& parts, int64_t dim) {
  Type type = parts.front().type;
  type.shape.at(static_cast<size_t>(dim)) = 0;
  std::vector<std::string> names;
  for (const auto& part : parts) {
    type.shape[static_cast<size_t>(dim)] += part.shape()[static_cast<size_t>(dim)];
    names.push_back(text_of(part));
  }
  return operation(fmt::format("stablehlo.concatenate {}, dim = {}", fmt::join(names, ", "), dim), parts, type);
}

Value ModuleText::pad(const Value& a, int64_t dim, int64_t before, int64_t after, double number) {
  const Value fill = splat(number, {a.type.element, {}});
  Type type = a.type;
  type.shape.at(static_cast<size_t>(dim)) += before + after;
  Shape low(a.shape().size()), high(a.shape().size()), inside(a.shape().size());
  low[static_cast<size_t>(dim)] = before;
  high[static_cast<size_t>(dim)] = after;
  return operation(fmt::format("stablehlo.pad {}, {}, low = {}, high = {}, interior = {}", text_of(a), text_of(fill),
                               list_of(low), list_of(high), list_of(inside)),
                   {a, fill}, type);
}

Value ModuleText::reduce(Reduction kind, const Value& a, const Shape& dims) {
  if (dims.empty()) return a;
  const bool sum = kind == Reduction::sum;
  RUNNER_CHECK(sum || is_float(a.type.element), "maximum of {}", text_of(a.type));
  const Value start = splat(sum ? 0 : -INFINITY, {a.type.element, {}});
  Type type{a.type.element, {}};
  for (const int64_t dim : all_but(std::ssize(a.shape()), dims))
    type.shape.push_back(a.shape()[static_cast<size_t>(dim)]);
  return operation(fmt::format("stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = {}", text_of(a),
                               text_of(start), sum ? "add" : "maximum", list_of(dims)),
                   {a, start}, type);
}

Value ModuleText::product(const Value& a, const Value& b, const ProductDims& dims) {
  RUNNER_CHECK(a.type.element == b.type.element, "product of {} and {}", text_of(a.type), text_of(b.type));
  Type type{a.type.element, {}};
  const auto append = [&](const Value& value, const Shape& which) {
    for (const int64_t dim : which) type.shape.push_back(value.shape().at(static_cast<size_t>(dim)));
  };
  const auto both = [](const Shape& first, const Shape& second) {
    Shape all = first;
    all.insert(all.end(), second.begin(), second.end());
    return all;
  };
  append(a, dims.left_common);
  append(a, all_but(std::ssize(a.shape()), both(dims.left_common, dims.left_summed)));
  append(b, all_but(std::ssize(b.shape()), both(dims.right_common, dims.right_summed)));
  std::string text = fmt::format("stablehlo.dot_general {}, {}", text_of(a), text_of(b));
  if (!dims.left_common.empty())
    text += fmt::format(", batching_dims = {} x {}", list_of(dims.left_common), list_of(dims.right_common));
  text += fmt::format(", contracting_dims = {} x {}", list_of(dims.left_summed), list_of(dims.right_summed));
  return operation(text, {a, b}, type);
}

Value ModuleText::rows(const Value& table, const Value& ids) {
  const auto ids_rank = std::ssize(ids.shape()), row_rank = std::ssize(table.shape()) - 1;
  Shape sizes = table.shape(), shape = ids.shape();
  sizes[0] = 1;
  shape.insert(shape.end(), table.shape().begin() + 1, table.shape().end());
  const Type type{table.type.element, shape};
  const Value made = result(type);
  body_ += fmt::format(
      "    {} = \"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<offset_dims = {}, "
      "collapsed_slice_dims = [0], "
      "start_index_map = [0], index_vector_dim = {}>, slice_sizes = {}}}> : {}\n",
      text_of(made), text_of(table), text_of(ids), list_of(counted(ids_rank, row_rank)), ids_rank, array_of(sizes),
      signature({table, ids}, type));
  return made;
}

Value ModuleText::add_rows(const Type& table, const Value& ids, const Value& values) {
  const auto ids_rank = std::ssize(ids.shape()), row_rank = std::ssize(table.shape) - 1;
  const Value zeros = splat(0, table);
  return combining(
      "scatter", fmt::format("{}, {}, {}", text_of(zeros), text_of(ids), text_of(values)), "add",
      fmt::format(
          "{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {}, inserted_window_dims = [0], "
          "scatter_dims_to_operand_dims = [0], index_vector_dim = {}>}}",
          list_of(counted(ids_rank, row_rank)), ids_rank),
      {zeros, ids, values}, table);
}

Value ModuleText::all_reduce(const Value& a) {
  if (replicas_ == 1) return a;
  return combining("all_reduce", text_of(a), "add", "{" + groups() + "}", {a}, a.type);
}

Value ModuleText::all_gather(const Value& a, int64_t dim) {
  if (replicas_ == 1) return a;
  Type type = a.type;
  type.shape.at(static_cast<size_t>(dim)) *= replicas_;
  return operation(
      fmt::format("\"stablehlo.all_gather\"({}) {{all_gather_dim = {} : i64, {}}}", text_of(a), dim, groups()), {a},
      type);
}

Value ModuleText::reduce_scatter(const Value& a, int64_t dim) {
  if (replicas_ == 1) return a;
  Type type = a.type;
  auto& size = type.shape.at(static_cast<size_t>(dim));
  RUNNER_CHECK(size % replicas_ == 0, "reduce-scatter of {} among {}", text_of(a.type), replicas_);
  size /= replicas_;
  return combining("reduce_scatter", text_of(a), "add",
                   fmt::format("{{scatter_dimension = {} : i64, {}}}", dim, groups()), {a}, type);
}

}  // namespace runner::pjrt
