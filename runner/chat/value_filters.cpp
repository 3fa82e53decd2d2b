// Filters of numbers and of any value.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runner/base/text.hpp"
#include "runner/chat/builtins.hpp"
#include "runner/chat/interpreter.hpp"
#include "runner/chat/operators.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace value_filter {
namespace {
Value otherwise(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "default", {"default_value", "boolean"});
  bool missing = subject.is_undefined() || (bound.truth(1, false) && !subject.truth());
  return missing ? bound.value(0, "") : subject;
}

/// Python's literals of numbers allow "_" between digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  auto alnum = [&](size_t i) { return i < text.size() && isalnum(static_cast<unsigned char>(text[i])); };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      result += text[i];
    else if (i == 0 || !alnum(i - 1) || !alnum(i + 1))
      return std::nullopt;
  }
  return result;
}

std::optional<int64_t> parse_integer(std::string_view written, int64_t base) {
  auto text = without_underscores(strip(written, Side::both));
  if (!text || text->empty() || base < 0 || base == 1 || base > 36) return std::nullopt;
  bool minus = (*text)[0] == '-';
  if (minus || (*text)[0] == '+') text->erase(0, 1);
  if (text->size() > 2 && (*text)[0] == '0') {
    char letter = static_cast<char>((*text)[1] | 32);
    int64_t written_base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (written_base != 0 && (base == 0 || base == written_base)) text->erase(0, 2), base = written_base;
  }
  if (text->empty() || (*text)[0] == '-') return std::nullopt;
  if (base == 0) base = 10;
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value, static_cast<int>(base));
  if (end != text->data() + text->size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error != std::errc() || value > uint64_t{INT64_MAX})
    throw Fault{fmt::format("{} is no integer of 64 bits", written)};
  return minus ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
}

std::optional<double> parse_float(std::string_view written) {
  auto text = without_underscores(strip(written, Side::both));
  if (!text || text->empty()) return std::nullopt;
  size_t digits = (*text)[0] == '-' || (*text)[0] == '+' ? 1 : 0;
  auto word = lower(text->substr(digits));
  double sign = (*text)[0] == '-' ? -1 : 1;
  if (word == "inf" || word == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word.empty() || (word[0] != '.' && (word[0] < '0' || word[0] > '9'))) return std::nullopt;
  double value = 0;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (end != word.data() + word.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    value = word.find("e-") != word.npos ? 0 : std::numeric_limits<double>::infinity();
  return sign * value;
}

std::optional<double> as_float(const Value& value) {
  if (value.is_number()) return value.real();
  if (value.is_undefined()) throw Fault{value.why_undefined()};
  return value.is_text() ? parse_float(value.bytes()) : std::nullopt;
}

Value whole(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "int", {"default", "base"});
  if (subject.is_whole()) return subject.integer();
  if (subject.is_text())
    if (auto value = parse_integer(subject.bytes(), bound.integer(1, 10))) return *value;
  auto value = as_float(subject);
  if (!value || std::isnan(*value)) return bound.value(0, 0);
  if (std::isinf(*value)) throw Fault{"cannot convert float infinity to integer"};
  if (std::abs(*value) >= 9.2e18) throw Fault{"the number is no integer of 64 bits"};
  return static_cast<int64_t>(*value);
}

Value real(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "float", {"default"});
  auto value = as_float(subject);
  return value ? Value(*value) : bound.value(0, 0.0);
}

Value absolute(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "abs", {});
  if (subject.is(Kind::real)) return std::abs(subject.real());
  if (subject.is_whole()) return subject.integer() < 0 ? negative(subject) : Value(subject.integer());
  throw Fault{subject.is_undefined() ? subject.why_undefined()
                                     : fmt::format("bad operand type for abs(): '{}'", subject.type_name())};
}

/// round() of Python: correctly rounded decimal digits, halves to the even digit.
double rounded(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < -300) return std::copysign(0.0, value);
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
  double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / unit) * unit;
}

Value round(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "round", {"precision", "method"});
  auto method = bound.has(1) ? bound.text(1) : std::string("common");
  if (method != "common" && method != "ceil" && method != "floor") throw Fault{"method must be common, ceil or floor"};
  if (!subject.is_number())
    throw Fault{subject.is_undefined() ? subject.why_undefined()
                                       : fmt::format("round needs a number, not {}", subject.type_name())};
  int64_t digits = bound.has(0) ? integer_of(bound[0]) : 0;
  if (method == "common") {
    if (!subject.is_whole()) return rounded(subject.real(), digits);
    if (digits >= 0) return subject.integer();
    return static_cast<int64_t>(rounded(subject.real(), digits));
  }
  auto scale = binary(Op::power, 10, digits);
  auto scaled = binary(Op::multiply, subject, scale);
  if (scaled.is_whole()) return binary(Op::divide, scaled, scale);
  double whole_part = method == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real());
  return whole_part / scale.real();
}

Value attr(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "attr", {"name"}, 1);
  if (subject.is_dict() && !find_method(subject, bound.text(0)))
    return Value::undefined(
        Missing{.owner = "dict", .name = bound.text(0), .message = {}});  // items of a dictionary are no attributes
  return interpreter.attribute(subject, bound.text(0));
}

// clang-format off
constexpr Builtin table[] = {
    {"default", otherwise}, {"d", otherwise}, {"int", whole}, {"float", real}, {"abs", absolute}, {"round", round}, {"attr", attr},
};
// clang-format on
}  // namespace
}  // namespace value_filter

void check_path(const Value& path) {
  constexpr size_t path_bytes_max = 1000;
  if (path.bytes().size() > path_bytes_max)
    throw Fault{fmt::format("the path of an attribute is longer than {} bytes", path_bytes_max)};
}

Value attribute_path(Interpreter& interpreter, const Value& item, const Value& path, const Value* otherwise) {
  if (!path.is_text()) {
    auto value = interpreter.item(item, path);
    return otherwise && value.is_undefined() ? *otherwise : value;
  }
  check_path(path);
  Value value = item;
  for (auto& part : split(path.bytes(), '.')) {
    bool number = !part.empty() && part.size() < 10 &&
                  std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    value = interpreter.item(value, number ? Value(int64_t{std::stoi(part)}) : Value(part));
    if (otherwise && value.is_undefined()) value = *otherwise;
  }
  return value;
}

std::span<const Builtin> value_filters() { return value_filter::table; }

}  // namespace runner::jinja
