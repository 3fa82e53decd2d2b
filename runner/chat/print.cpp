#include "runner/chat/print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace {
void append_repr(std::string& text, const Value& value);

void append_items(std::string& text, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += ", ";
    append_repr(text, items[i]);
    check_size(text.size());
  }
}

void append_dict(std::string& text, const Dict& dict) {
  text += '{';
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) text += ", ";
    append_repr(text, dict.items[i].first);
    text += ": ";
    append_repr(text, dict.items[i].second);
    check_size(text.size());
  }
  text += '}';
}

/// Namespaces may be nested without end, and contain themselves.
void append_namespace(std::string& text, const Namespace& space) {
  constexpr int nesting_most = 100;
  static thread_local int nesting = 0;
  struct Nested {
    Nested() { ++nesting; }
    ~Nested() { --nesting; }
  } nested;
  if (nesting > nesting_most) throw Fault{fmt::format("more than {} namespaces are in each other", nesting_most)};
  text += "<Namespace ";
  append_dict(text, space.attributes);
  text += '>';
}

void append_sequence(std::string& text, const Value& value) {
  auto& sequence = value.as_sequence();
  switch (sequence.form) {
    case Form::list:
      text += '[', append_items(text, sequence.items), text += ']';
      break;
    case Form::tuple:
      text += '(', append_items(text, sequence.items), text += sequence.items.size() == 1 ? ",)" : ")";
      break;
    case Form::range:
      throw Fault{"a range is printed without its items; write range(...) | list"};
    case Form::generator:
      throw Fault{"this is a generator, which prints as an address; add | list"};
    default:
      text += value.type_name(), text += "([", append_items(text, sequence.items), text += "])";
  }
}

void append_repr(std::string& text, const Value& value) {
  if (value.is_text()) {
    if (value.safe())
      text += "Markup(" + repr_of_text(value.bytes()) + ")";
    else
      text += repr_of_text(value.bytes());
  } else if (value.is_undefined()) {
    text += "Undefined";
  } else {
    append_text(text, value);
  }
}

void append_json_string(std::string& out, std::string_view text, bool ascii_only) {
  out += '"';
  for_each_code_point(text, [&](std::string_view point) {
    char32_t c = decode(point);
    constexpr std::string_view special = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    if (auto i = point.size() == 1 ? special.find(point[0]) : special.npos; i != special.npos) {
      out += '\\';
      out += letters[i];
    } else if (c < 0x20 || (ascii_only && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (ascii_only && c >= 0x10000) {
      out += fmt::format("\\u{:04x}\\u{:04x}", static_cast<uint32_t>(0xD800 + ((c - 0x10000) >> 10)),
                         static_cast<uint32_t>(0xDC00 + ((c - 0x10000) & 0x3FF)));
    } else {
      out += point;
    }
  });
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int level) {
    switch (value.kind()) {
      case Kind::none:
        out += "null";
        return;
      case Kind::boolean:
        out += value.boolean() ? "true" : "false";
        return;
      case Kind::integer:
        out += fmt::format("{}", value.integer());
        return;
      case Kind::large:
        out += value.bytes();
        return;
      case Kind::real:
        out += number(value.real());
        return;
      case Kind::text:
        append_json_string(out, value.bytes(), style_.ascii_only);
        break;
      case Kind::dict:
        dict(value.as_dict(), level);
        break;
      case Kind::sequence:
        if (auto form = value.as_sequence().form; form == Form::list || form == Form::tuple) {
          list(value.as_sequence().items, level);
          break;
        }
        [[fallthrough]];
      default:
        throw Fault{value.is_undefined()
                        ? fmt::format("tojson of an undefined value: {}", value.why_undefined())
                        : fmt::format("Object of type {} is not JSON serializable", value.type_name())};
    }
    check_size(out.size());
  }

  std::string out;

 private:
  static std::string number(double real) {
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real > 0 ? "Infinity" : "-Infinity";
    return float_text(real);
  }

  void line(int level) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < level; ++i) {
      out += *style_.indent;
      check_size(out.size());
    }
  }

  void list(const std::vector<Value>& items, int level) {
    if (items.empty()) return void(out += "[]");
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.between_items;
      line(level + 1);
      write(items[i], level + 1);
      check_size(out.size());
    }
    line(level);
    out += ']';
  }

  std::string key_text(const Value& key) const {
    if (key.is_text()) return key.bytes();
    if (key.is_number() || key.is(Kind::none)) {
      JsonWriter writer(style_);
      writer.write(key, 0);
      return writer.out;
    }
    throw Fault{fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name())};
  }

  void dict(const Dict& dict, int level) {
    if (dict.items.empty()) return void(out += "{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(), [](auto* a, auto* b) { return less(a->first, b->first); });
    out += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.between_items;
      line(level + 1);
      append_json_string(out, key_text(items[i]->first), style_.ascii_only);
      out += style_.after_key;
      write(items[i]->second, level + 1);
      check_size(out.size());
    }
    line(level);
    out += '}';
  }

  const JsonStyle& style_;
};
}  // namespace

void append_text(std::string& text, const Value& value) {
  switch (value.kind()) {
    case Kind::none:
      if (!value.is_no_text()) text += "None";
      return;
    case Kind::boolean:
      text += value.boolean() ? "True" : "False";
      return;
    case Kind::integer:
      text += std::to_string(value.integer());
      return;
    case Kind::real:
      text += float_text(value.real());
      return;
    case Kind::text:
    case Kind::large:
      text += value.bytes();
      return;
    case Kind::dict:
      append_dict(text, value.as_dict());
      return;
    case Kind::sequence:
      append_sequence(text, value);
      return;
    case Kind::object:
      if (auto* space = dynamic_cast<Namespace*>(&value.object())) return append_namespace(text, *space);
      throw Fault{fmt::format("a {} has no text; is a call missing?", value.type_name())};
    default:
      return;
  }
}

std::string to_text(const Value& value) {
  std::string text;
  append_text(text, value);
  return text;
}

std::string to_repr(const Value& value) {
  std::string text;
  append_repr(text, value);
  return text;
}

std::string repr_of_text(std::string_view text) {
  char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string result(1, quote);
  for_each_code_point(text, [&](std::string_view point) {
    char32_t c = decode(point);
    constexpr std::string_view special = "\\\n\r\t", letters = "\\nrt";
    if (auto i = point.size() == 1 ? special.find(point[0]) : special.npos; i != special.npos) {
      result += '\\';
      result += letters[i];
    } else if (c == static_cast<char32_t>(quote)) {
      result += '\\';
      result += quote;
    } else if (is_printable(c)) {
      result += point;
    } else {
      auto number = static_cast<uint32_t>(c);
      result += c < 0x100     ? fmt::format("\\x{:02x}", number)
                : c < 0x10000 ? fmt::format("\\u{:04x}", number)
                              : fmt::format("\\U{:08x}", number);
    }
  });
  return result + quote;
}

std::string float_text(double number) {
  if (!std::isfinite(number)) return nonfinite_word(number);
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  std::string written(buffer, end);
  int exponent = std::stoi(written.substr(written.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return written;  // 1e-05 and 1e+16, as Python writes them
  std::string fixed(buffer, std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed).ptr);
  return fixed.find('.') == fixed.npos ? fixed + ".0" : fixed;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return std::move(writer.out);
}

void check_size(size_t bytes) {
  if (bytes > template_value_bytes_max)
    throw Fault{fmt::format("a value becomes larger than {}", format_bytes(template_value_bytes_max))};
}

}  // namespace runner::jinja
