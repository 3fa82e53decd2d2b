#include "runner/sweep/constraint.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "runner/base/error.hpp"

namespace runner::sweep {

using nlohmann::json;

/// An operator over its operands, a name, or a literal (op empty).
struct Constraint::Node {
  std::string op;
  json literal = {};
  std::string name = "";
  std::vector<std::shared_ptr<const Node>> operands = {};
};

namespace {

using Node = Constraint::Node;
using Pointer = std::shared_ptr<const Node>;

/// Binary operators, the weakest binding first. `not` binds between "and" and the comparisons.
const std::vector<std::vector<std::string>> levels = {
    {"or"}, {"and"}, {"==", "!=", "<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}};

class Parser {
 public:
  Parser(const std::string& text, std::vector<std::string>& names) : text_(text), names_(names) {}

  Pointer parse() {
    Pointer root = binary(0);
    skip_spaces();
    if (at_ < text_.size()) fail("an operator or the end");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw usage_error("the constraint `{}` needs {} at its column {}", text_, expected, at_ + 1);
  }
  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

  /// Consumes `token` if it is next. Words match only as a whole.
  bool take(const std::string& token) {
    skip_spaces();
    if (text_.compare(at_, token.size(), token) != 0) return false;
    size_t end = at_ + token.size();
    if (std::isalpha(static_cast<unsigned char>(token[0])) && end < text_.size() && word_char(text_[end])) return false;
    at_ = end;
    return true;
  }
  std::string take_any(const std::vector<std::string>& tokens) {
    for (const auto& token : tokens)
      if (take(token)) return token;
    return "";
  }

  Pointer binary(size_t level) {
    if (level == levels.size()) return unary();
    if (level == 2 && take("not")) return make("not", {binary(2)});
    Pointer left = binary(level + 1);
    for (std::string op; !(op = take_any(levels[level])).empty();) left = make(op, {left, binary(level + 1)});
    return left;
  }

  Pointer unary() {
    if (take("-")) return make("negate", {unary()});
    if (take("(")) {
      Pointer inside = binary(0);
      if (!take(")")) fail("`)`");
      return inside;
    }
    skip_spaces();
    if (at_ >= text_.size()) fail("a value");
    char c = text_[at_];
    if (c == '"' || c == '\'') return quoted(c);
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') return number();
    return name();
  }

  Pointer quoted(char quote) {
    size_t close = text_.find(quote, at_ + 1);
    if (close == std::string::npos) fail("a closing quote for the one");
    auto node = std::make_shared<Node>();
    node->literal = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    return node;
  }
  Pointer number() {
    char* end = nullptr;
    auto node = std::make_shared<Node>();
    node->literal = std::strtod(text_.c_str() + at_, &end);
    if (end == text_.c_str() + at_) fail("a number");
    at_ = static_cast<size_t>(end - text_.c_str());
    return node;
  }
  Pointer name() {
    size_t end = at_;
    while (end < text_.size() && word_char(text_[end])) ++end;
    if (end == at_) fail("a value");
    std::string word = text_.substr(at_, end - at_);
    auto node = std::make_shared<Node>();
    at_ = end;
    if (word == "true" || word == "false") {
      node->literal = word == "true";
      return node;
    }
    node->name = word;
    if (std::find(names_.begin(), names_.end(), word) == names_.end()) names_.push_back(word);
    return node;
  }

  static Pointer make(const std::string& op, std::vector<Pointer> operands) {
    auto node = std::make_shared<Node>();
    node->op = op;
    node->operands = std::move(operands);
    return node;
  }

  const std::string& text_;
  std::vector<std::string>& names_;
  size_t at_ = 0;
};

double number_of(const json& value, const std::string& op, const std::string& text) {
  if (!value.is_number()) throw usage_error("the constraint `{}` applies {} to {}", text, op, value.dump());
  return value.get<double>();
}

bool truth_of(const json& value, const std::string& op, const std::string& text) {
  if (!value.is_boolean())
    throw usage_error("the constraint `{}` takes {} as true or false{}", text, value.dump(),
                      op.empty() ? "" : " (" + op + ")");
  return value.get<bool>();
}

json evaluate(const Node& node, const json& values, const std::string& text) {
  if (!node.name.empty()) return values.at(node.name);
  if (node.op.empty()) return node.literal;
  const auto& op = node.op;
  json left = evaluate(*node.operands[0], values, text);
  if (op == "not") return !truth_of(left, op, text);
  if (op == "negate") return -number_of(left, "-", text);
  if (op == "and" && !truth_of(left, op, text)) return false;
  if (op == "or" && truth_of(left, op, text)) return true;
  json right = evaluate(*node.operands[1], values, text);
  if (op == "and" || op == "or") return truth_of(right, op, text);
  if (op == "==") return left == right;
  if (op == "!=") return left != right;
  double a = number_of(left, op, text), b = number_of(right, op, text);
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  if (op == ">=") return a >= b;
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  return op == "/" ? a / b : a - b * std::floor(a / b);
}

}  // namespace

Constraint::Constraint(const std::string& text) : text_(text) { root_ = Parser(text_, names_).parse(); }

bool Constraint::holds(const json& values) const {
  for (const auto& name : names_)
    if (!values.contains(name)) return true;
  return truth_of(evaluate(*root_, values, text_), "", text_);
}

}  // namespace runner::sweep
