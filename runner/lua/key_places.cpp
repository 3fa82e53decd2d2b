#include "runner/lua/key_places.hpp"

#include <algorithm>
#include <cctype>

#include "runner/base/text.hpp"

namespace runner::lua {

namespace {

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool is_keyword(const std::string& word) {
  static const std::vector<std::string> words = {"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                                                 "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                                                 "repeat",   "return", "then", "true", "until",  "while"};
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Change of the block depth at a token. `for` and `while` count at their `do`.
int block_change(const std::string& word) {
  if (word == "function" || word == "do" || word == "if" || word == "repeat") return 1;
  return word == "end" || word == "until" ? -1 : 0;
}

int bracket_change(const std::string& mark) {
  if (mark == "(" || mark == "{" || mark == "[") return 1;
  return mark == ")" || mark == "}" || mark == "]" ? -1 : 0;
}

}  // namespace

KeyPlaces::KeyPlaces(const std::string& text, const std::string& name) : name_(name), lines_(split(text, '\n')) {
  tokenize(text);
  read_statements();
}

/// The end of a long bracket ([[ ]], [=[ ]=]) that begins at `at`; `at` if there is none.
size_t KeyPlaces::long_bracket(const std::string& text, size_t at) const {
  size_t open = at + 1;
  while (open < text.size() && text[open] == '=') ++open;
  if (open >= text.size() || text[open] != '[') return at;
  auto closing = "]" + std::string(open - at - 1, '=') + "]";
  auto end = text.find(closing, open + 1);
  return end == std::string::npos ? text.size() : end + closing.size();
}

void KeyPlaces::tokenize(const std::string& text) {
  int line = 1;
  size_t line_start = 0;
  auto newlines = [&](size_t from, size_t to) {
    for (size_t i = from; i < to && i < text.size(); ++i)
      if (text[i] == '\n') {
        ++line;
        line_start = i + 1;
      }
  };
  for (size_t at = 0; at < text.size();) {
    char c = text[at];
    size_t end = at + 1;
    Token token{Token::Kind::other, std::string(1, c), line, static_cast<int>(at - line_start) + 1};
    bool comment = text.compare(at, 2, "--") == 0;
    if (std::isspace(static_cast<unsigned char>(c))) {
      newlines(at, end);
      at = end;
      continue;
    }
    if (comment) {
      end = at + 2 < text.size() && text[at + 2] == '[' ? long_bracket(text, at + 2) : at + 2;
      if (end == at + 2) end = std::min(text.find('\n', at), text.size());
    } else if (begins_name(c)) {
      while (end < text.size() && in_name(text[end])) ++end;
      token.kind = Token::Kind::name;
      token.value = text.substr(at, end - at);
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      while (end < text.size() && (in_name(text[end]) || text[end] == '.')) ++end;
    } else if (c == '"' || c == '\'') {
      while (end < text.size() && text[end] != c && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      token.kind = Token::Kind::text;
      token.value = text.substr(at + 1, end - at - 2);
    } else if (c == '[' && long_bracket(text, at) != at) {
      end = long_bracket(text, at);
      token.kind = Token::Kind::text;
      token.value.clear();
    } else if ((c == '=' || c == '~' || c == '<' || c == '>') && end < text.size() && text[end] == '=') {
      token.value += '=';
      ++end;
    }
    if (!comment) tokens_.push_back(token);
    newlines(at, end);
    at = end;
  }
}

bool KeyPlaces::is(size_t at, const char* value) const {
  return at < tokens_.size() && tokens_[at].kind != Token::Kind::text && tokens_[at].value == value;
}
bool KeyPlaces::is_name(size_t at) const {
  return at < tokens_.size() && tokens_[at].kind == Token::Kind::name && !is_keyword(tokens_[at].value);
}

/// Skips the rest of a value in a table constructor, up to the ',', ';' or '}' after it.
size_t KeyPlaces::skip_value(size_t at) const {
  int brackets = 0, blocks = 0;
  for (; at < tokens_.size(); ++at) {
    if (tokens_[at].kind == Token::Kind::text) continue;
    const auto& value = tokens_[at].value;
    if (brackets == 0 && blocks == 0 && (value == "," || value == ";" || value == "}")) return at;
    brackets += bracket_change(value);
    blocks += block_change(value);
  }
  return at;
}

/// Reads a value. Returns its table if it is known: a constructor, a variable, or a field of a variable. Moves `at` to
/// the next token, or to a token inside of the value.
KeyPlaces::TablePointer KeyPlaces::read_value(size_t& at) {
  if (is(at, "{")) return read_table(at);
  if (!is_name(at)) return nullptr;
  auto found = variables_.find(tokens_[at].value);
  TablePointer table = found == variables_.end() ? nullptr : found->second;
  ++at;
  while (table && is(at, ".") && is_name(at + 1)) {
    auto inner = table->inner.find(tokens_[at + 1].value);
    table = inner == table->inner.end() ? nullptr : inner->second;
    at += 2;
  }
  bool more = is(at, ".") || is(at, "[") || is(at, "(") || is(at, ":") || is(at, "{") ||
              (at < tokens_.size() && tokens_[at].kind == Token::Kind::text);
  return more ? nullptr : table;
}

KeyPlaces::TablePointer KeyPlaces::read_table(size_t& at) {
  auto table = std::make_shared<Table>();
  ++at;
  while (at < tokens_.size() && !is(at, "}")) {
    const Token* key = nullptr;
    if (is_name(at) && is(at + 1, "=")) {
      key = &tokens_[at];
      at += 2;
    } else if (is(at, "[") && at + 2 < tokens_.size() && tokens_[at + 1].kind == Token::Kind::text && is(at + 2, "]") &&
               is(at + 3, "=")) {
      key = &tokens_[at + 1];
      at += 4;
    }
    auto value = read_value(at);
    if (key) {
      table->fields[key->value] = key;
      anywhere_[key->value] = key;
      table->inner[key->value] = value;
    }
    at = skip_value(at);
    if (at < tokens_.size() && !is(at, "}")) ++at;
  }
  if (at < tokens_.size()) ++at;
  return table;
}

/// `name = value`, `name.a.b = value`, `name["a"] = value`.
bool KeyPlaces::read_assignment(size_t& at) {
  if (!is_name(at) || (at > 0 && (is(at - 1, ".") || is(at - 1, ":")))) return false;
  std::vector<const Token*> path;
  size_t next = at + 1;
  for (;;) {
    if (is(next, ".") && is_name(next + 1)) {
      path.push_back(&tokens_[next + 1]);
      next += 2;
    } else if (is(next, "[") && next + 2 < tokens_.size() && tokens_[next + 1].kind == Token::Kind::text &&
               is(next + 2, "]")) {
      path.push_back(&tokens_[next + 1]);
      next += 3;
    } else {
      break;
    }
  }
  if (!is(next, "=")) return false;
  auto variable = tokens_[at].value;
  at = next + 1;
  auto value = read_value(at);
  if (path.empty()) {
    variables_[variable] = value ? value : std::make_shared<Table>();
    return true;
  }
  auto& slot = variables_[variable];
  if (!slot) slot = std::make_shared<Table>();
  TablePointer table = slot;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    auto& inner = table->inner[path[i]->value];
    if (!inner) inner = std::make_shared<Table>();
    table = inner;
  }
  table->fields[path.back()->value] = path.back();
  table->inner[path.back()->value] = value;
  anywhere_[path.back()->value] = path.back();
  return true;
}

void KeyPlaces::read_statements() {
  int blocks = 0;
  for (size_t at = 0; at < tokens_.size();) {
    if (tokens_[at].kind == Token::Kind::text) {
      ++at;
      continue;
    }
    if (is(at, "extend") && at + 1 < tokens_.size()) extend_ = &tokens_[at];
    if (is(at, "return") && blocks == 0) {
      return_ = &tokens_[at];
      root_ = read_value(++at);
      continue;
    }
    if (read_assignment(at)) continue;
    if (is(at, "{")) {
      read_table(at);
      continue;
    }
    blocks += block_change(tokens_[at].value);
    ++at;
  }
}

Origin KeyPlaces::place(const Token& token) const {
  Origin origin = line(token.line);
  origin.column = token.column;
  origin.span = static_cast<int>(token.value.size()) + (token.kind == Token::Kind::text ? 2 : 0);
  return origin;
}

Origin KeyPlaces::line(int number) const {
  Origin origin;
  origin.kind = Origin::Kind::file;
  origin.file = name_;
  origin.line = number;
  origin.column = number > 0 ? 1 : 0;
  if (number >= 1 && number <= static_cast<int>(lines_.size()))
    origin.excerpt = lines_[static_cast<size_t>(number) - 1];
  return origin;
}

Origin KeyPlaces::find(const std::string& dotted) const {
  if (dotted == "extends" && extend_) return place(*extend_);
  return find_path(split(dotted, '.'));
}

Origin KeyPlaces::find_path(const std::vector<std::string>& path) const {
  const Token* best = return_;
  TablePointer table = root_;
  for (const auto& part : path) {
    auto found = table ? table->fields.find(part) : std::map<std::string, const Token*>::const_iterator();
    if (!table || found == table->fields.end()) {
      auto guess = anywhere_.find(path.back());
      if (guess != anywhere_.end()) best = guess->second;
      break;
    }
    best = found->second;
    auto inner = table->inner.find(part);
    table = inner == table->inner.end() ? nullptr : inner->second;
  }
  return best ? place(*best) : line(1);
}

}  // namespace runner::lua
