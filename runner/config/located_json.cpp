#include "runner/config/located_json.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/file_format.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr int depth_max = 100;

class Parser {
 public:
  Parser(const std::string& text, const std::string& name) : text_(text), name_(name) {
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') line_begins_.push_back(i + 1);
  }

  LocatedJson whole() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
    blank();
    if (end()) fail(at_, "the file is empty; a configuration is an object: { ... }");
    auto root = value(0);
    root.key_place = root.place;
    blank();
    if (!end()) fail(at_, "a file contains one object; nothing may follow it");
    return root;
  }

 private:
  bool end() const { return at_ >= text_.size(); }
  char peek() const { return end() ? '\0' : text_[at_]; }

  Origin origin(size_t from, size_t to) const {
    Origin place{.kind = Origin::Kind::file, .file = name_};
    const auto next = std::ranges::upper_bound(line_begins_, from);
    const size_t begin = *(next - 1), end = std::min(text_.find('\n', begin), text_.size());
    place.line = static_cast<int>(next - line_begins_.begin());
    place.column = static_cast<int>(from - begin) + 1;
    place.excerpt = excerpt_of(text_.substr(begin, end - begin));
    bool one_line = text_.substr(from, to - from).find('\n') == std::string::npos;
    place.span = one_line ? std::max(1, static_cast<int>(to - from)) : 1;
    return place;
  }

  [[noreturn]] void fail(size_t from, const std::string& message, size_t to = 0) const {
    throw RecipeError({{origin(std::min(from, text_.size()), std::max(from, to)), "syntax", message}});
  }

  /// White space and comments.
  void blank() {
    while (!end()) {
      char c = peek();
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else if (c == '#' || text_.compare(at_, 2, "//") == 0) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.compare(at_, 2, "/*") == 0) {
        auto close = text_.find("*/", at_ + 2);
        if (close == std::string::npos) fail(at_, "the comment has no end: */ is missing", at_ + 2);
        at_ = close + 2;
      } else {
        return;
      }
    }
  }

  LocatedJson value(int depth) {
    if (depth > depth_max) fail(at_, "objects and lists are nested too deep");
    size_t from = at_;
    LocatedJson node;
    char c = peek();
    if (c == '{')
      object(node, depth);
    else if (c == '[')
      array(node, depth);
    else if (c == '"')
      node.value = string();
    else
      node.value = word();
    node.place = origin(from, at_);
    return node;
  }

  void object(LocatedJson& node, int depth) {
    node.is_object = true;
    ++at_;
    for (blank(); peek() != '}'; blank()) {
      size_t from = at_;
      if (peek() != '"')
        fail(at_, end() ? "the object has no end: } is missing" : "a key in double quotes must be here");
      auto name = string();
      auto key_place = origin(from, at_);
      if (const auto* first = node.find(name))
        throw RecipeError({{.place = key_place,
                            .code = "duplicate-key",
                            .message = fmt::format("`{}` is a duplicate key", name),
                            .other = first->key_place,
                            .other_message = "the first one is here"}});
      blank();
      if (peek() != ':') fail(at_, fmt::format("a colon must follow `{}`", name));
      ++at_;
      blank();
      auto member = value(depth + 1);
      member.key_place = key_place;
      node.members.emplace_back(name, std::move(member));
      separator('}', "object");
    }
    ++at_;
  }

  void array(LocatedJson& node, int depth) {
    node.value = json::array();
    ++at_;
    for (blank(); peek() != ']'; blank()) {
      if (end()) fail(at_, "the list has no end: ] is missing");
      node.value.push_back(value(depth + 1).plain());
      separator(']', "list");
    }
    ++at_;
  }

  void separator(char close, const char* what) {
    size_t after = at_;
    blank();
    if (peek() == ',')
      ++at_;
    else if (end())
      fail(at_, fmt::format("the {} has no end: {} is missing", what, close));
    else if (peek() != close)
      fail(after, fmt::format("a comma or {} must be here", close));
  }

  std::string string() {
    size_t from = at_++;
    for (; !end() && peek() != '"' && peek() != '\n'; ++at_)
      if (peek() == '\\') ++at_;
    if (peek() != '"') fail(from, "the string has no end: a double quote is missing", std::min(at_, text_.size()));
    ++at_;
    auto parsed = json::parse(text_.substr(from, at_ - from), nullptr, false);
    if (parsed.is_discarded()) fail(from, "the string has an escape or a character that JSON does not allow", at_);
    return parsed.get<std::string>();
  }

  /// Numbers, true, false, null.
  json word() {
    size_t from = at_;
    while (!end() && std::string_view(",:]}{[\"#/ \t\r\n").find(peek()) == std::string_view::npos) ++at_;
    auto text = text_.substr(from, at_ - from);
    if (text.empty()) fail(from, end() ? "a value is missing" : "a value must be here", from + 1);
    auto parsed = json::parse(text, nullptr, false);
    if (!parsed.is_discarded()) return parsed;
    auto small = lower(text);
    if (small == "true" || small == "false") fail(from, fmt::format("JSON writes {}, not {}", small, text), at_);
    if (small == "none") fail(from, fmt::format("JSON writes null, not {}", text), at_);
    fail(from, fmt::format("{} is not a value; strings need double quotes", text), at_);
  }

  const std::string& text_;
  std::string name_;
  std::vector<size_t> line_begins_{0};
  size_t at_ = 0;
};

}  // namespace

const LocatedJson* LocatedJson::find(const std::string& name) const {
  for (const auto& [key, member] : members)
    if (key == name) return &member;
  return nullptr;
}

json LocatedJson::plain() const {
  if (!is_object) return value;
  json object = json::object();
  for (const auto& [key, member] : members) object[key] = member.plain();
  return object;
}

LocatedJson parse_located_json(const std::string& text, const std::string& name) {
  try {
    return Parser(text, name).whole();
  } catch (const RecipeError&) {
    const auto other = wrong_format(FileFormat::json, name, text);
    if (other.empty()) throw;
    Diagnostic mistake{.code = "wrong-format", .message = other};
    mistake.place.file = name;
    throw RecipeError({mistake});
  }
}

}  // namespace runner
