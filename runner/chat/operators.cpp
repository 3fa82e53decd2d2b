#include "runner/chat/operators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/base/limits.hpp"
#include "runner/chat/builtins.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace {
constexpr std::string_view signs[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

[[noreturn]] void too_large() { throw Fault{"the result is no integer of 64 bits"}; }

[[noreturn]] void unsupported(Op op, const Value& a, const Value& b) {
  if (a.is(Kind::large) || b.is(Kind::large)) too_large();
  for (auto* value : {&a, &b})
    if (value->is_undefined()) throw Fault{value->why_undefined()};
  throw Fault{fmt::format("unsupported operand types for {}: '{}' and '{}'", signs[static_cast<size_t>(op)],
                          a.type_name(), b.type_name())};
}

Value floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw Fault{"integer division or modulo by zero"};
  if (b == -1) {
    int64_t result;
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) too_large();
    return result;
  }
  return a / b - ((a % b != 0 && (a % b < 0) != (b < 0)) ? 1 : 0);
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Fault{"0 cannot be raised to a negative power"};
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

Value integers(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &result)) too_large();
      return result;
    case Op::subtract:
      if (__builtin_sub_overflow(a, b, &result)) too_large();
      return result;
    case Op::multiply:
      if (__builtin_mul_overflow(a, b, &result)) too_large();
      return result;
    case Op::divide:
      if (b == 0) throw Fault{"division by zero"};
      return static_cast<double>(a) / static_cast<double>(b);
    case Op::floor_divide:
      return floor_divide(a, b);
    case Op::modulo:
      if (b == 0) throw Fault{"integer division or modulo by zero"};
      return b == -1 ? int64_t{0} : a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
    default:
      return integer_power(a, b);
  }
}

double float_power(double a, double b) {
  if (a == 0 && b < 0) throw Fault{"0.0 cannot be raised to a negative power"};
  if (a < 0 && std::isfinite(b) && b != std::floor(b)) throw Fault{"a negative number raised to a fraction is complex"};
  double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) throw Fault{"the result is too large for a float"};
  return result;
}

Value reals(Op op, double a, double b) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::subtract:
      return a - b;
    case Op::multiply:
      return a * b;
    case Op::power:
      return float_power(a, b);
    default:
      break;
  }
  if (b == 0) throw Fault{op == Op::divide ? "float division by zero" : "float floor division or modulo by zero"};
  if (op == Op::divide) return a / b;
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (op == Op::modulo) return rest == 0 ? std::copysign(0.0, b) : rest;
  double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : quotient == 0 ? std::copysign(0.0, a / b) : floor;
}

Value add_texts(const Value& a, const Value& b) {
  check_size(a.bytes().size() + b.bytes().size());
  if (a.safe() == b.safe()) return Value(a.bytes() + b.bytes(), a.safe());
  return a.safe() ? Value(a.bytes() + html_escaped(b.bytes()), true) : Value(html_escaped(a.bytes()) + b.bytes(), true);
}

bool is_list_or_tuple(const Value& value) { return value.is_sequence(Form::list) || value.is_sequence(Form::tuple); }

Value repeat(const Value& value, int64_t count) {
  auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (value.is_text()) {
    if (times > 0)
      check_size(value.bytes().size() > 0 && times > template_value_bytes_max ? template_value_bytes_max + 1
                                                                              : value.bytes().size() * times);
    const size_t size = value.bytes().size() * times;
    std::string result;
    result.reserve(size);
    if (size > 0) result = value.bytes();
    while (result.size() < size) result.append(result, 0, size - result.size());  // doubles it
    return Value(std::move(result), value.safe());
  }
  auto& items = value.as_sequence().items;
  if (!items.empty())
    check_size(times > template_value_bytes_max ? template_value_bytes_max + 1 : items.size() * times * sizeof(Value));
  std::vector<Value> result;
  for (size_t i = 0; i < times && !items.empty(); ++i) result.insert(result.end(), items.begin(), items.end());
  return Value::sequence(std::move(result), value.as_sequence().form);
}

/// The indices that value[first:last:step] selects of `length` items.
std::vector<size_t> slice_indices(int64_t length, const Value& first, const Value& last, const Value& step_value) {
  int64_t step = step_value.is(Kind::none) ? 1 : integer_of(step_value);
  if (step == 0) throw Fault{"slice step cannot be zero"};
  int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? length : length - 1;
  auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is(Kind::none)) return otherwise;
    int64_t at = integer_of(value);
    return std::clamp(at < 0 ? at + length : at, lowest, highest);
  };
  int64_t begin = bound(first, step > 0 ? lowest : highest), end = bound(last, step > 0 ? highest : lowest);
  std::vector<size_t> indices;
  int64_t stride = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step, span = step > 0 ? end - begin : begin - end;
  int64_t count = span > 0 ? (span - 1) / stride + 1 : 0;
  for (int64_t i = 0; i < count; ++i) indices.push_back(static_cast<size_t>(begin + i * step));
  return indices;
}
}  // namespace

Value binary(Op op, const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return integers(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return reals(op, a.real(), b.real());
  spend_for(a), spend_for(b);
  if (op == Op::modulo && a.is_text()) return percent_format(a, b);
  if (op == Op::add) {
    if (a.is_text() && b.is_text()) return add_texts(a, b);
    if (a.is_text() && b.is_no_text()) return a;
    if (a.is_no_text() && b.is_text()) return b;
    if (is_list_or_tuple(a) && is_list_or_tuple(b) && a.as_sequence().form == b.as_sequence().form) {
      auto items = a.as_sequence().items;
      items.insert(items.end(), b.as_sequence().items.begin(), b.as_sequence().items.end());
      check_size(items.size() * sizeof(Value));
      return Value::sequence(std::move(items), a.as_sequence().form);
    }
  }
  if (op == Op::multiply) {
    if ((a.is_text() || is_list_or_tuple(a)) && b.is_whole()) return repeat(a, b.integer());
    if ((b.is_text() || is_list_or_tuple(b)) && a.is_whole()) return repeat(b, a.integer());
  }
  unsupported(op, a, b);
}

Value negative(const Value& value) {
  if (value.is(Kind::real)) return -value.real();
  if (value.is_whole()) return integers(Op::subtract, 0, value.integer());
  throw Fault{value.is_undefined() ? value.why_undefined()
                                   : fmt::format("bad operand type for unary -: '{}'", value.type_name())};
}

Value positive(const Value& value) {
  if (value.is(Kind::real)) return value;
  if (value.is_whole()) return value.integer();
  throw Fault{value.is_undefined() ? value.why_undefined()
                                   : fmt::format("bad operand type for unary +: '{}'", value.type_name())};
}

bool compare(Op op, const Value& a, const Value& b) {
  spend_for(a), spend_for(b);
  switch (op) {
    case Op::equal:
      return equal(a, b);
    case Op::unequal:
      return !equal(a, b);
    case Op::in:
      return contains(b, a);
    case Op::not_in:
      return !contains(b, a);
    default:
      break;
  }
  bool numbers = a.is_number() && b.is_number();
  if (numbers && (std::isnan(a.real()) || std::isnan(b.real()))) return false;
  auto sign = signs[static_cast<size_t>(op)];
  switch (op) {
    case Op::less:
      return less(a, b, sign);
    case Op::less_equal:
      return !less(b, a, sign);
    case Op::greater:
      return less(b, a, sign);
    default:
      return !less(a, b, sign);
  }
}

bool contains(const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text())
      throw Fault{fmt::format("'in <string>' requires string as left operand, not {}", item.type_name())};
    return find_text(container.bytes(), item.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    check_hashable(item);
    return container.as_dict().find(item) != nullptr;
  }
  if (container.is_sequence(Form::keys)) check_hashable(item);
  if (!is_iterable(container)) throw Fault{fmt::format("argument of type '{}' is not iterable", container.type_name())};
  Items items(container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& other) { return identical(other, item) || equal(other, item); });
}

Value slice(const Value& value, const Value& first, const Value& last, const Value& step) {
  spend_for(value);
  if (value.is_text()) {
    std::string result;
    if (value.as_text().ascii) {
      for (size_t i : slice_indices(static_cast<int64_t>(value.bytes().size()), first, last, step))
        result += value.bytes()[i];
    } else {
      auto points = code_points(value.bytes());
      for (size_t i : slice_indices(static_cast<int64_t>(points.size()), first, last, step)) result += points[i];
    }
    return Value(std::move(result), value.safe());
  }
  if (is_list_or_tuple(value) || value.is_sequence(Form::range)) {
    auto& items = value.as_sequence().items;
    std::vector<Value> result;
    for (size_t i : slice_indices(static_cast<int64_t>(items.size()), first, last, step)) result.push_back(items[i]);
    return Value::sequence(std::move(result), value.as_sequence().form);
  }
  throw Fault{value.is_undefined() ? value.why_undefined()
                                   : fmt::format("'{}' object has no slices", value.type_name())};
}

std::string html_escaped(std::string_view text) {
  std::string result;
  for (char c : text) switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += c;
    }
  return result;
}

}  // namespace runner::jinja
