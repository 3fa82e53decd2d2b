#include "strategies/pjrt/module_text.hpp"

#include "strategies/pjrt/module_words.hpp"

namespace runner::pjrt {

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
  const auto combined =
      combiner ? fmt::format("        %z{0} = stablehlo.{1} %x{0}, %y{0} : {2}\n", made.id, combiner, scalar)
               : std::string();
  body_ += fmt::format(
      "    %{0} = \"stablehlo.{1}\"({2}) ({{\n      ^bb0(%x{0}: {3}, %y{0}: {3}):\n{4}"
      "        stablehlo.return %{5}{0} : {3}\n    }}) {6} : {7}\n",
      made.id, name, operands, scalar, combined, combiner ? "z" : "y", attributes, signature(types, type));
  return made;
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

Value ModuleText::whole(int64_t number, const Type& type) {
  RUNNER_CHECK(type.element == ElementType::int64 || type.element == ElementType::int32);
  const Value made = result(type);
  body_ += fmt::format("    {} = stablehlo.constant dense<{}> : {}\n", text_of(made), number, text_of(type));
  return made;
}

Value ModuleText::constant(std::span<const std::byte> elements, const Type& type) {
  RUNNER_CHECK(static_cast<int64_t>(elements.size()) == type.numel() * bytes_of(type.element));
  std::string digits;
  digits.reserve(2 * elements.size());
  constexpr const char* hex = "0123456789ABCDEF";
  if (type.element == ElementType::boolean) {  // the text has them as words
    std::vector<const char*> words;
    for (const std::byte element : elements) words.push_back(element == std::byte{0} ? "false" : "true");
    const Value flat = result({type.element, {type.numel()}});
    body_ += fmt::format("    {} = stablehlo.constant dense<[{}]> : {}\n", text_of(flat), fmt::join(words, ", "),
                         text_of(flat.type));
    return reshape(flat, type.shape);
  }
  for (const std::byte element : elements) {
    digits += hex[std::to_integer<unsigned>(element) >> 4];
    digits += hex[std::to_integer<unsigned>(element) & 15];
  }
  const Value made = result(type);
  body_ += fmt::format("    {} = stablehlo.constant dense<\"0x{}\"> : {}\n", text_of(made), digits, text_of(type));
  return made;
}

Value ModuleText::iota(const Type& type, int64_t dim) {
  const Value made = result(type);
  body_ += fmt::format("    {} = stablehlo.iota dim = {} : {}\n", text_of(made), dim, text_of(type));
  return made;
}

Value ModuleText::binary(Binary kind, const Value& a, const Value& b) {
  RUNNER_CHECK(a.type == b.type, "{} of {} and {}", name_of(kind), text_of(a.type), text_of(b.type));
  return operation(fmt::format("stablehlo.{} {}, {}", name_of(kind), text_of(a), text_of(b)), {a, b}, a.type);
}

Value ModuleText::unary(Unary kind, const Value& a) {
  const Type type{kind == Unary::is_finite ? ElementType::boolean : a.type.element, a.type.shape};
  if (kind != Unary::erf) return operation(fmt::format("{} {}", name_of(kind), text_of(a)), {a}, type);
  const Value made = result(type);  // another dialect, whose text has no parentheses
  body_ += fmt::format("    {} = {} {} : {} -> {}\n", text_of(made), name_of(kind), text_of(a), text_of(a.type),
                       text_of(type));
  return made;
}

Value ModuleText::compare(Comparison kind, const Value& a, const Value& b) {
  RUNNER_CHECK(a.type == b.type, "comparison of {} and {}", text_of(a.type), text_of(b.type));
  // Without it, constants are compared as if they had no sign.
  const char* comparison = is_float(a.type.element)                 ? "FLOAT"
                           : a.type.element == ElementType::boolean ? "UNSIGNED"
                                                                    : "SIGNED";
  return operation(fmt::format("stablehlo.compare {}, {}, {}, {}", name_of(kind), text_of(a), text_of(b), comparison),
                   {a, b}, {ElementType::boolean, a.type.shape});
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
  if (order == counted_dims(0, std::ssize(order))) return a;
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
  return broadcast(a, shape, counted_dims(more, std::ssize(shape)));
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

Value ModuleText::reverse(const Value& a, const Shape& dims) {
  return operation(fmt::format("stablehlo.reverse {}, dims = {}", text_of(a), list_of(dims)), {a}, a.type);
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

Value ModuleText::update_slice(const Value& a, const Value& part, const Shape& begin) {
  RUNNER_CHECK(
      begin.size() == a.shape().size() && part.shape().size() == begin.size() && a.type.element == part.type.element,
      "{} in {}", text_of(part.type), text_of(a.type));
  std::vector<Value> operands{a, part};
  std::vector<std::string> names{text_of(a), text_of(part)};
  for (size_t i = 0; i < begin.size(); ++i) {
    RUNNER_CHECK(begin[i] + part.shape()[i] <= a.shape()[i], "{} in {}", text_of(part.type), text_of(a.type));
    operands.push_back(splat(static_cast<double>(begin[i]), {ElementType::int64, {}}));
    names.push_back(text_of(operands.back()));
  }
  return operation(fmt::format("stablehlo.dynamic_update_slice {}", fmt::join(names, ", ")), operands, a.type);
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

std::vector<Value> ModuleText::barrier(const std::vector<Value>& values) {
  if (values.empty()) return {};
  std::vector<Value> made;
  std::vector<std::string> names, types;
  for (const auto& value : values) {
    made.push_back({.id = next_, .type = value.type});
    names.push_back(text_of(value));
    types.push_back(text_of(value.type));
  }
  const int64_t id = next_++;
  for (size_t i = 0; i < made.size(); ++i) made[i].part = values.size() == 1 ? -1 : static_cast<int64_t>(i);
  body_ += fmt::format("    %{}{} = stablehlo.optimization_barrier {} : {}\n", id,
                       values.size() == 1 ? "" : fmt::format(":{}", values.size()), fmt::join(names, ", "),
                       fmt::join(types, ", "));
  return made;
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

std::string ModuleText::groups() const {
  return fmt::format("replica_groups = dense<[[{}]]> : tensor<1x{}xi64>", fmt::join(counted_dims(0, replicas_), ", "),
                     replicas_);
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
