// Python's "%" of a string: printf-style formatting, section "printf-style String Formatting" of Python's library reference.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/chat/operators.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace {
struct Conversion {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int64_t width = 0, precision = -1;
  char type = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& values)
      : text_(format.bytes()), safe_(format.safe()), values_(values) {}

  Value format() {
    std::string result;
    while (at_ < text_.size()) {
      size_t percent = std::min(text_.find('%', at_), text_.size());
      result += text_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ < text_.size()) result += conversion();
      check_size(result.size());
    }
    bool mapping = values_.is_dict() || values_.is_undefined() || values_.is_sequence(Form::list) ||
                   values_.is_sequence(Form::range);
    if (used_ < count() && !mapping) throw Fault{"not all arguments converted during string formatting"};
    return Value(std::move(result), safe_);
  }

 private:
  bool is_tuple() const { return values_.is_sequence(Form::tuple); }
  size_t count() const { return is_tuple() ? values_.as_sequence().items.size() : 1; }
  char next() {
    if (++at_ >= text_.size()) throw Fault{"incomplete format"};
    return text_[at_];
  }
  const Value& argument() {
    if (used_ >= count()) throw Fault{"not enough arguments for format string"};
    ++used_;
    return is_tuple() ? values_.as_sequence().items[used_ - 1] : values_;
  }

  int64_t number() {
    if (text_[at_] == '*') {
      next();
      auto& value = argument();
      if (!value.is_whole()) throw Fault{"* wants int"};
      return value.integer();
    }
    int64_t result = 0;
    for (; text_[at_] >= '0' && text_[at_] <= '9'; next()) {
      result = result * 10 + (text_[at_] - '0');
      check_size(static_cast<size_t>(result));
    }
    return result;
  }

  std::string conversion() {
    char c = next();
    const Value* keyed = nullptr;
    if (c == '(') {
      size_t close = text_.find(')', at_);
      if (close == text_.npos) throw Fault{"incomplete format key"};
      auto key = text_.substr(at_ + 1, close - at_ - 1);
      if (!values_.is_dict()) throw Fault{"format requires a mapping"};
      keyed = values_.as_dict().find(key);
      if (!keyed) throw Fault{fmt::format("the format needs the key {}, which the mapping lacks", repr_of_text(key))};
      at_ = close;
      next();
    }
    Conversion conversion;
    for (;; next()) {
      c = text_[at_];
      if (c == '-')
        conversion.left = true;
      else if (c == '0')
        conversion.zero = true;
      else if (c == '+')
        conversion.plus = true;
      else if (c == ' ')
        conversion.space = true;
      else if (c == '#')
        conversion.alternate = true;
      else
        break;
    }
    conversion.width = number();
    if (conversion.width < 0) conversion.left = true, conversion.width = -conversion.width;
    if (text_[at_] == '.') {
      next();
      conversion.precision = std::max<int64_t>(number(), 0);
    }
    if (std::string_view("hlL").find(text_[at_]) != std::string_view::npos) next();
    conversion.type = text_[at_++];
    check_size(static_cast<size_t>(conversion.width));
    if (conversion.type == '%') return "%";
    return padded(conversion, keyed ? *keyed : argument());
  }

  std::string padded(const Conversion& conversion, const Value& value) {
    std::string body, sign;
    bool number = std::string_view("diuoxXeEfFgG").find(conversion.type) != std::string_view::npos;
    if (number)
      numeric(conversion, value, sign, body);
    else
      body = textual(conversion, value);
    auto length = count_code_points(sign) + count_code_points(body);
    std::string fill(static_cast<size_t>(std::max<int64_t>(0, conversion.width - length)),
                     number && conversion.zero && !conversion.left ? '0' : ' ');
    if (conversion.left) return sign + body + fill;
    return number && conversion.zero ? sign + fill + body : fill + sign + body;
  }

  std::string textual(const Conversion& conversion, const Value& value) const {
    std::string body;
    switch (conversion.type) {
      case 's':
        body = safe_ && !value.safe() ? html_escaped(to_text(value)) : to_text(value);
        break;
      case 'r':
      case 'a':
        body = to_repr(value);
        break;
      case 'c':
        if (value.is_text() && count_code_points(value.bytes()) == 1) return value.bytes();
        if (!value.is_whole()) throw Fault{"%c requires int or char"};
        if (value.integer() < 0 || value.integer() > 0x10FFFF) throw Fault{"%c arg not in range(0x110000)"};
        unicode::append(body, static_cast<char32_t>(value.integer()));
        return body;
      default:
        throw Fault{fmt::format("unsupported format character '{}'", conversion.type)};
    }
    if (conversion.precision >= 0 && conversion.precision < count_code_points(body)) {
      auto points = code_points(body);
      std::string cut;
      for (int64_t i = 0; i < conversion.precision; ++i) cut += points[static_cast<size_t>(i)];
      return cut;
    }
    return body;
  }

  static void numeric(const Conversion& conversion, const Value& value, std::string& sign, std::string& body) {
    char type = conversion.type;
    bool whole = std::string_view("diuoxX").find(type) != std::string_view::npos;
    if (!value.is_number() || (value.is(Kind::real) && std::string_view("oxX").find(type) != std::string_view::npos))
      throw Fault{value.is_number()
                      ? fmt::format("%{} format: an integer is required, not float", type)
                      : fmt::format("%{} format: a real number is required, not {}", type, value.type_name())};
    check_size(static_cast<size_t>(std::max<int64_t>(conversion.precision, 0)));
    bool is_negative;
    if (whole) {
      if (value.is(Kind::real) && !(std::abs(value.real()) < 9e18)) throw Fault{"the number is no integer of 64 bits"};
      int64_t number = value.is(Kind::real) ? static_cast<int64_t>(value.real()) : value.integer();
      is_negative = number < 0;
      uint64_t magnitude = is_negative ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
      body = type == 'o'   ? fmt::format("{:o}", magnitude)
             : type == 'x' ? fmt::format("{:x}", magnitude)
             : type == 'X' ? fmt::format("{:X}", magnitude)
                           : std::to_string(magnitude);
      if (static_cast<int64_t>(body.size()) < conversion.precision)
        body.insert(0, static_cast<size_t>(conversion.precision) - body.size(), '0');
      if (conversion.alternate && std::string_view("oxX").find(type) != std::string_view::npos)
        sign = std::string("0") + type;
    } else {
      double number = std::abs(value.real());
      is_negative = std::signbit(value.real()) && !std::isnan(value.real());
      int precision = conversion.precision < 0 ? 6 : static_cast<int>(std::min<int64_t>(conversion.precision, 1000));
      std::string format = std::string("%") + (conversion.alternate ? "#" : "") + ".*" + type;
      auto size = static_cast<size_t>(std::snprintf(nullptr, 0, format.c_str(), precision, number));
      body.resize(size + 1);
      std::snprintf(body.data(), body.size(), format.c_str(), precision, number);
      body.resize(size);
    }
    sign = (is_negative ? "-" : conversion.plus ? "+" : conversion.space ? " " : "") + sign;
  }

  std::string_view text_;
  bool safe_;
  const Value& values_;
  size_t at_ = 0, used_ = 0;
};
}  // namespace

Value percent_format(const Value& format, const Value& values) { return PercentFormatter(format, values).format(); }

}  // namespace runner::jinja
