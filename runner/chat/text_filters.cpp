// Filters that make text.
#include <fmt/format.h>

#include <algorithm>

#include "runner/chat/builtins.hpp"
#include "runner/chat/interpreter.hpp"
#include "runner/chat/operators.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace text_filter {
namespace {
/// The subject as text; a text marked safe stays so.
Value soft_text(const Value& subject) { return subject.is_text() ? subject : Value(to_text(subject)); }

Value method(Interpreter& interpreter, const Value& self, std::string_view name, Arguments& arguments) {
  return find_method(self, name)->run(interpreter, self, arguments);
}

Value as_text(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "string", {});
  return soft_text(subject);
}

Value upper(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  return method(interpreter, soft_text(subject), "upper", arguments);
}
Value lower(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  return method(interpreter, soft_text(subject), "lower", arguments);
}
Value capitalize(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  return method(interpreter, soft_text(subject), "capitalize", arguments);
}

/// Words begin after white space, "-", and opening brackets.
Value title(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "title", {});
  auto text = soft_text(subject);
  std::string result, word;
  auto flush = [&] {
    if (word.empty()) return;
    size_t first = unicode::length_of(word[0]);
    result += upper_case(word.substr(0, first)) + lower_case(word.substr(first));
    word.clear();
  };
  for_each_code_point(text.bytes(), [&](std::string_view point) {
    bool between = is_space(decode(point)) || std::string_view("-({[<").find(point) != std::string_view::npos;
    if (between)
      flush(), result += point;
    else
      word += point;
  });
  flush();
  return Value(std::move(result));
}

Value trim(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "trim", {"chars"});
  Arguments chars{.positional = {bound.value(0, {})}};
  return method(interpreter, soft_text(subject), "strip", chars);
}

Value replace(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  Arguments all{.positional = {to_text(bound[0]), to_text(bound[1]), bound.integer(2, -1)}};
  return method(interpreter, Value(to_text(subject)), "replace", all);
}

Value center(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "center", {"width"});
  Arguments width{.positional = {bound.integer(0, 80)}};
  return method(interpreter, soft_text(subject), "center", width);
}

Value format(Interpreter&, const Value& subject, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw Fault{"can't handle positional and keyword arguments at the same time"};
  if (arguments.named.empty())
    return percent_format(soft_text(subject), Value::sequence(arguments.positional, Form::tuple));
  Dict named;
  for (auto& [name, value] : arguments.named) named.set(Value(name), value);
  return percent_format(soft_text(subject), Value::dict(std::move(named)));
}

/// Indents the lines but not the empty ones (blank) and not the first one (first).
Value indent(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "indent", {"width", "first", "blank"});
  if (!subject.is_text())
    throw Fault{subject.is_undefined() ? subject.why_undefined()
                                       : fmt::format("indent needs a string, not {}", subject.type_name())};
  std::string margin;
  if (bound.has(0) && bound[0].is_text()) {
    margin = bound.text(0);
  } else {
    int64_t width = bound.has(0) ? integer_of(bound[0]) : 4;
    check_size(static_cast<size_t>(std::max<int64_t>(width, 0)));
    margin.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  bool blank = bound.truth(2, false), first = true;
  std::string result = bound.truth(1, false) ? margin : "";
  auto text = subject.bytes() + "\n";
  for (auto line : split_lines(text)) {
    if (!first) {
      result += '\n';
      if (blank || !line.empty()) result += margin;
    }
    result += line;
    check_size(result.size());
    first = false;
  }
  return Value(std::move(result), subject.safe());
}

Value truncate(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  int64_t length = bound.integer(0, 255), leeway = bound.integer(3, 5);
  auto end = bound.has(2) ? bound.text(2) : std::string("...");
  if (length < count_code_points(end))
    throw Fault{fmt::format("expected length >= {}, got {}", count_code_points(end), length)};
  if (leeway < 0) throw Fault{fmt::format("expected leeway >= 0, got {}", leeway)};
  if (length_of(subject) <= length + leeway) return subject;
  auto cut = slice(subject, {}, length - count_code_points(end), {});
  if (!cut.is_text()) throw Fault{fmt::format("truncate needs a string, not {}", subject.type_name())};
  auto text = cut.bytes();
  if (!bound.truth(1, false))
    if (auto space = text.rfind(' '); space != text.npos) text.resize(space);
  return Value(text + end);
}

Value word_count(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "wordcount", {});
  int64_t words = 0;
  bool inside = false;
  for_each_code_point(to_text(subject), [&](std::string_view point) {
    char32_t c = decode(point);
    bool word = is_alpha(c) || c == '_' || (c >= '0' && c <= '9');
    words += word && !inside;
    inside = word;
  });
  return words;
}

Value join(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "join", {"d", "attribute"});
  std::string separator = bound.has(0) ? to_text(bound[0]) : "", result;
  bool first = true;
  for (auto& item : Items(subject)) {
    if (!std::exchange(first, false)) result += separator;
    append_text(result, bound.given(1) ? attribute_path(interpreter, item, bound[1]) : item);
    check_size(result.size());
  }
  return result;
}

Value safe(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "safe", {});
  return Value(to_text(subject), true);
}

Value escape(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "escape", {});
  return subject.safe() ? subject : Value(html_escaped(to_text(subject)), true);
}

Value force_escape(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "forceescape", {});
  return Value(html_escaped(to_text(subject)), true);
}

/// json.dumps(value, ensure_ascii, indent, separators, sort_keys), as transformers defines this filter.
Value tojson(Interpreter&, const Value& subject, Arguments& arguments) {
  Bound bound(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  if (bound.given(1)) {
    style.between_items = ",";
    if (bound[1].is_text()) {
      style.indent = bound.text(1);
    } else {
      auto width = std::max<int64_t>(0, integer_of(bound[1]));
      check_size(static_cast<size_t>(width));
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  if (bound.given(2)) {
    Items both(bound[2]);
    if (both.size() != 2 || !both.all()[0].is_text() || !both.all()[1].is_text())
      throw Fault{"separators are two strings: (between items, after a key)"};
    style.between_items = both.all()[0].bytes();
    style.after_key = both.all()[1].bytes();
  }
  return to_json(subject, style);
}

// clang-format off
constexpr Builtin table[] = {
    {"string", as_text}, {"upper", upper}, {"lower", lower}, {"capitalize", capitalize}, {"title", title}, {"trim", trim},
    {"replace", replace}, {"center", center}, {"format", format}, {"indent", indent}, {"truncate", truncate},
    {"wordcount", word_count}, {"join", join}, {"safe", safe}, {"escape", escape}, {"e", escape}, {"forceescape", force_escape},
    {"tojson", tojson},
    {"filesizeformat", nullptr}, {"pprint", nullptr}, {"striptags", nullptr}, {"urlencode", nullptr}, {"urlize", nullptr},
    {"wordwrap", nullptr}, {"xmlattr", nullptr},
};
// clang-format on
}  // namespace
}  // namespace text_filter

std::span<const Builtin> text_filters() { return text_filter::table; }

}  // namespace runner::jinja
