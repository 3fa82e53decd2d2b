// The methods of strings.
#include <fmt/format.h>

#include <algorithm>

#include "runner/chat/builtins.hpp"
#include "runner/chat/interpreter.hpp"
#include "runner/chat/operators.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace text_method {
namespace {
/// Text that comes from `self` keeps its mark `safe`.
Value like(const Value& self, std::string_view text) { return Value(std::string(text), self.safe()); }

template <std::string (*mapping)(std::string_view)>
Value mapped(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "this method", {});
  return like(self, mapping(self.bytes()));
}

template <Side side>
Value stripped(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "strip", {"chars"});
  std::string_view chars;
  if (bound.given(0)) chars = bound.text(0);
  spend(self.bytes().size() / bytes_per_step * (chars.size() / bytes_per_step));
  return like(self, strip(self.bytes(), side, bound.given(0) ? &chars : nullptr));
}

/// The part self[start:end] in code points, for methods with a range. `offset` is its first code point.
std::string part_of(const Value& self, const Bound& bound, size_t first, int64_t& offset) {
  int64_t length = length_of(self);
  offset = bound.integer(first, 0);
  if (offset < 0) offset = std::max<int64_t>(0, offset + length);
  return slice(self, bound.value(first, {}), bound.value(first + 1, {}), {}).bytes();
}

template <bool at_end>
Value affixed(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, at_end ? "endswith" : "startswith", {"affix", "start", "end"}, 1);
  int64_t offset;
  auto text = part_of(self, bound, 1, offset);
  if (offset > length_of(self)) return false;
  auto fits = [&](const Value& affix) {
    if (!affix.is_text())
      throw Fault{fmt::format("{} first arg must be str or a tuple of str, not {}", at_end ? "endswith" : "startswith",
                              affix.type_name())};
    spend(1 + affix.bytes().size() / bytes_per_step);
    return at_end ? text.ends_with(affix.bytes()) : text.starts_with(affix.bytes());
  };
  if (!bound[0].is_sequence(Form::tuple)) return fits(bound[0]);
  auto& affixes = bound[0].as_sequence().items;
  return std::any_of(affixes.begin(), affixes.end(), fits);
}

template <bool last, bool must>
Value found(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, last ? "rfind" : "find", {"sub", "start", "end"}, 1);
  int64_t offset;
  auto text = part_of(self, bound, 1, offset);
  auto part = bound.text(0);
  if (last) std::reverse(text.begin(), text.end()), std::reverse(part.begin(), part.end());
  size_t at = find_text(text, part);
  if (last) std::reverse(text.begin(), text.end());
  if (last && at != text.npos) at = text.size() - at - part.size();
  if (offset > length_of(self)) at = text.npos;
  if (at != text.npos) return offset + count_code_points(std::string_view(text).substr(0, at));
  if (must) throw Fault{"substring not found"};
  return -1;
}

Value count(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "count", {"sub", "start", "end"}, 1);
  int64_t offset, found = 0;
  auto text = part_of(self, bound, 1, offset);
  auto& part = bound.text(0);
  if (offset > length_of(self)) return 0;
  if (part.empty()) return count_code_points(text) + 1;
  for (size_t at = find_text(text, part); at != text.npos; at = find_text(text, part, at + part.size())) ++found;
  return found;
}

Value replaced(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  auto& text = self.bytes();
  auto& old = bound.text(0);
  auto fresh = self.safe() && !bound[1].safe() ? html_escaped(bound.text(1)) : bound.text(1);
  int64_t left = bound.integer(2, -1);
  std::string result;
  size_t at = 0;
  for (; left != 0; --left) {
    size_t next = old.empty() ? at : find_text(text, old, at);
    if (next == text.npos) break;
    result.append(text, at, next - at).append(fresh);
    check_size(result.size());
    at = next + old.size();
    if (!old.empty()) continue;
    if (at >= text.size()) return like(self, result);
    size_t bytes = unicode::length_of(text[at]);
    result.append(text, at, bytes);
    at += bytes;
  }
  return like(self, result.append(text, at, text.npos));
}

std::vector<std::string_view> split_space(std::string_view text, int64_t most) {
  std::vector<std::string_view> parts;
  for (text = strip(text, Side::left); !text.empty(); text = strip(text, Side::left)) {
    if (most-- == 0) return parts.push_back(text), parts;
    size_t end = 0;
    while (end < text.size() && !is_space(decode(text.substr(end, unicode::length_of(text[end])))))
      end += unicode::length_of(text[end]);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> rsplit_space(std::string_view text, int64_t most) {
  auto words = split_space(text, -1);
  if (most < 0 || std::ssize(words) <= most) return words;
  const auto& last = words[words.size() - static_cast<size_t>(most) - 1];
  words.front() = text.substr(0, static_cast<size_t>(last.data() + last.size() - text.data()));
  words.erase(words.begin() + 1, words.end() - most);
  return words;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most,
                                       bool from_right) {
  if (separator.empty()) throw Fault{"empty separator"};
  std::vector<std::string_view> parts;
  std::string searched(text), wanted(separator);
  if (from_right) std::reverse(searched.begin(), searched.end()), std::reverse(wanted.begin(), wanted.end());
  const auto part = [&](size_t begin, size_t end) {
    return from_right ? text.substr(text.size() - end, end - begin) : text.substr(begin, end - begin);
  };
  size_t begin = 0;
  for (; most != 0; --most) {
    size_t at = find_text(searched, wanted, begin);
    if (at == text.npos) break;
    parts.push_back(part(begin, at));
    begin = at + wanted.size();
  }
  parts.push_back(part(begin, text.size()));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value listed(const Value& self, const std::vector<std::string_view>& parts, Form form = Form::list) {
  std::vector<Value> items;
  for (auto part : parts) items.push_back(like(self, part));
  return Value::sequence(std::move(items), form);
}

template <bool from_right>
Value split_text(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "split", {"sep", "maxsplit"});
  int64_t most = std::max<int64_t>(bound.integer(1, -1), -1);
  if (bound.given(0)) return listed(self, split_at(self.bytes(), bound.text(0), most, from_right));
  return listed(self, from_right ? rsplit_space(self.bytes(), most) : split_space(self.bytes(), most));
}

template <bool from_right>
Value partitioned(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "partition", {"sep"}, 1);
  auto& separator = bound.text(0);
  auto parts = split_at(self.bytes(), separator, 1, from_right);
  if (parts.size() == 2) return listed(self, {parts[0], separator, parts[1]}, Form::tuple);
  return from_right ? listed(self, {"", "", parts[0]}, Form::tuple) : listed(self, {parts[0], "", ""}, Form::tuple);
}

Value lines(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "splitlines", {"keepends"});
  return listed(self, split_lines(self.bytes(), bound.truth(0, false)));
}

Value joined(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "join", {"iterable"}, 1);
  std::string result;
  bool first = true;
  for (auto& item : Items(bound[0])) {
    if (!item.is_text()) throw Fault{fmt::format("join needs strings; an item is {}", item.type_name())};
    if (!std::exchange(first, false)) result += self.bytes();
    result += self.safe() && !item.safe() ? html_escaped(item.bytes()) : item.bytes();
    check_size(result.size());
  }
  return like(self, result);
}

template <bool at_end>
Value without_affix(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, at_end ? "removesuffix" : "removeprefix", {"affix"}, 1);
  std::string_view text = self.bytes(), affix = bound.text(0);
  if (at_end ? text.ends_with(affix) : text.starts_with(affix))
    text = at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
  return like(self, text);
}

enum class Align { left, right, center };
template <Align align>
Value justified(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "this method", {"width", "fillchar"}, 1);
  auto fill = bound.has(1) ? bound.text(1) : std::string(" ");
  if (count_code_points(fill) != 1) throw Fault{"the fill character must be exactly one character long"};
  int64_t width = integer_of(bound[0]), pad = std::max<int64_t>(0, width - length_of(self));
  check_size(static_cast<size_t>(pad));
  int64_t left = align == Align::left ? 0 : align == Align::right ? pad : pad / 2 + (pad & width & 1);
  std::string result;
  for (int64_t i = 0; i < left; ++i) result += fill;
  result += self.bytes();
  for (int64_t i = left; i < pad; ++i) result += fill;
  return like(self, result);
}

Value zero_filled(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "zfill", {"width"}, 1);
  int64_t pad = std::max<int64_t>(0, integer_of(bound[0]) - length_of(self));
  check_size(static_cast<size_t>(pad));
  auto text = self.bytes();
  text.insert(!text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0, static_cast<size_t>(pad), '0');
  return like(self, text);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

template <bool (*test)(char32_t)>
Value all_are(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "this method", {});
  bool all = true;
  for_each_code_point(self.bytes(), [&](std::string_view point) { all = all && test(decode(point)); });
  return all && !self.bytes().empty();
}

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value has_case(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "this method", {});
  bool found = false, wrong = false;
  for_each_code_point(self.bytes(),
                      [&](std::string_view point) { found |= wanted(decode(point)), wrong |= other(decode(point)); });
  return found && !wrong;
}

Value all_ascii(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "isascii", {});
  return self.as_text().ascii;
}

Value is_titled(Interpreter&, const Value& self, Arguments& arguments) {
  Bound bound(arguments, "istitle", {});
  bool cased = false;
  for_each_code_point(self.bytes(), [&](std::string_view point) { cased |= is_no_lower(decode(point)); });
  return cased && title_case(self.bytes()) == self.bytes();
}

// clang-format off
constexpr Builtin table[] = {
    {"strip", stripped<Side::both>}, {"lstrip", stripped<Side::left>}, {"rstrip", stripped<Side::right>},
    {"upper", mapped<upper_case>}, {"lower", mapped<lower_case>}, {"capitalize", mapped<capitalized>}, {"title", mapped<title_case>},
    {"swapcase", mapped<swapped_case>}, {"startswith", affixed<false>}, {"endswith", affixed<true>},
    {"find", found<false, false>}, {"rfind", found<true, false>}, {"index", found<false, true>}, {"rindex", found<true, true>},
    {"count", count}, {"replace", replaced}, {"split", split_text<false>}, {"rsplit", split_text<true>},
    {"partition", partitioned<false>}, {"rpartition", partitioned<true>}, {"splitlines", lines}, {"join", joined},
    {"removeprefix", without_affix<false>}, {"removesuffix", without_affix<true>}, {"ljust", justified<Align::left>},
    {"rjust", justified<Align::right>}, {"center", justified<Align::center>}, {"zfill", zero_filled},
    {"isdigit", all_are<is_digit>}, {"isdecimal", all_are<is_decimal>}, {"isnumeric", all_are<is_numeric>}, {"isalpha", all_are<is_alpha>},
    {"isalnum", all_are<is_alnum>}, {"isspace", all_are<is_space>}, {"isupper", has_case<is_upper, is_no_upper>},
    {"islower", has_case<is_lower, is_no_lower>}, {"isascii", all_ascii}, {"istitle", is_titled},
    {"casefold", nullptr}, {"encode", nullptr}, {"expandtabs", nullptr}, {"format", nullptr}, {"format_map", nullptr},
    {"isidentifier", nullptr}, {"isprintable", nullptr}, {"maketrans", nullptr}, {"translate", nullptr},
};
// clang-format on
}  // namespace
}  // namespace text_method

std::span<const Builtin> text_methods() { return text_method::table; }

}  // namespace runner::jinja
