#include "runner/sweep/space.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

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

namespace {

constexpr double exact_max = 0x1p53;  ///< up to here, doubles hold all integers

}  // namespace

double Parameter::grain() const { return kind == Kind::integer ? std::max(1.0, step) : step; }

int64_t Parameter::count() const {
  if (kind == Kind::choice) return static_cast<int64_t>(choices.size());
  if (grain() <= 0) return low == high ? 1 : 0;
  return last_index() < 0x1p62 ? static_cast<int64_t>(last_index()) + 1 : std::numeric_limits<int64_t>::max();
}

double Parameter::value_of(int64_t i) const { return low + grain() * static_cast<double>(i); }
double Parameter::last_index() const { return std::floor((high - low) / grain() + 1e-9); }
double Parameter::last() const { return grain() > 0 ? low + grain() * last_index() : high; }

double Parameter::distance(const json& value) const {
  if (origin == 0 || !value.is_number_integer()) return value.get<double>() - static_cast<double>(origin);
  const auto number = value.get<int64_t>();
  return number < origin ? value.get<double>() - static_cast<double>(origin)
                         : static_cast<double>(static_cast<uint64_t>(number) - static_cast<uint64_t>(origin));
}

json Parameter::value_at(double distance) const {
  if (kind != Kind::integer) return distance;
  if (high > exact_max && distance >= high) return most;
  const auto steps =
      distance < 0 ? static_cast<uint64_t>(std::llround(distance)) : static_cast<uint64_t>(std::round(distance));
  return static_cast<int64_t>(static_cast<uint64_t>(origin) + steps);
}

json Parameter::rounded(double number) const {
  double value = grain() > 0 ? low + grain() * std::round((number - low) / grain()) : number;
  value = std::clamp(value, low, last());
  return value_at(value);
}

Parameter::Cell Parameter::cell(double value) const {
  double half = grain() / 2;
  return {log ? std::max(value - half, value / 2) : value - half, value + half};
}

json Parameter::at(double u) const {
  int64_t values = count();
  if (kind == Kind::choice)
    return choices[static_cast<size_t>(std::min(u * static_cast<double>(values), values - 1.0))];
  if (!log && static_cast<double>(values) > exact_max) return rounded(low + u * (high - low));
  if (!log && values > 0)  // all values are equally likely
    return rounded(
        value_of(static_cast<int64_t>(std::min(u * static_cast<double>(values), static_cast<double>(values - 1)))));
  if (!log) return low + u * (high - low);
  double from = std::log(cell(low).from), to = std::log(cell(high).to);
  return rounded(std::exp(from + u * (to - from)));
}

double Parameter::unit(const json& value) const {
  if (kind == Kind::choice)
    return (static_cast<double>(choice_index(value)) + 0.5) / static_cast<double>(choices.size());
  return unit_of(distance(value));
}

double Parameter::unit_of(double number) const {
  int64_t values = count();
  if (!log && values > 0) return ((grain() > 0 ? (number - low) / grain() : 0) + 0.5) / static_cast<double>(values);
  if (!log) return (number - low) / (high - low);
  double from = std::log(cell(low).from), to = std::log(cell(high).to);
  return to > from ? (std::log(number) - from) / (to - from) : 0.5;
}

size_t Parameter::choice_index(const json& value) const {
  auto found = std::find(choices.begin(), choices.end(), value);
  RUNNER_CHECK(found != choices.end(), "{} of {}", value.dump(), name);
  return static_cast<size_t>(found - choices.begin());
}

int64_t Parameter::whole_grid() const {
  const int64_t all = count();
  return points == 0 || all <= points ? all : 0;
}

json Parameter::whole_grid_value(int64_t i) const {
  return kind == Kind::choice ? choices[static_cast<size_t>(i)] : rounded(value_of(i));
}

std::vector<json> Parameter::grid() const {
  constexpr int64_t values_max = 1'000'000;
  const int64_t all = whole_grid(), values = all > 0 ? all : points;
  if (values == 0) throw usage_error("a grid needs the number of values of `{}`: add points = N to its range", name);
  if (values > values_max) throw usage_error("`{}` has {} values, more than {}", name, values, values_max);
  std::vector<json> list;
  for (int64_t i = 0; i < values; ++i) {
    double share = values == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(values - 1);
    double between = log ? low * std::pow(last() / low, share) : low + share * (last() - low);
    json value = all > 0 ? whole_grid_value(i) : rounded(between);
    if (list.empty() || list.back() != value) list.push_back(value);
  }
  return list;
}

Space::Space(std::vector<Parameter> parameters, std::vector<Constraint> constraints, json constants)
    : constraints_(std::move(constraints)), constants_(std::move(constants)) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.name);
  auto known = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  auto hint = [&](const std::string& name) {
    auto near = nearest(name, names);
    return near ? fmt::format("; did you mean `{}`?", *near) : "; the space has " + join(names, ", ");
  };
  for (const auto& parameter : parameters)
    if (!parameter.parent.empty() && !known(parameter.parent))
      throw usage_error("`{}` depends on `{}`, which is not in the space{}", parameter.name, parameter.parent,
                        hint(parameter.parent));
  for (const auto& constraint : constraints_)
    for (const auto& name : constraint.names())
      if (!known(name) && !constants_.contains(name))
        throw usage_error("the constraint `{}` uses `{}`, which is neither in the space nor a value of the recipe{}",
                          constraint.text(), name, hint(name));
  while (!parameters.empty()) {
    auto ready = std::find_if(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
      return parameter.parent.empty() || find(parameter.parent);
    });
    if (ready == parameters.end())
      throw usage_error("`{}` depends on `{}`, which (perhaps through others) depends on it again",
                        parameters.front().name, parameters.front().parent);
    parameters_.push_back(*ready);
    parameters.erase(ready);
  }
}

const Parameter* Space::find(const std::string& name) const {
  for (const auto& parameter : parameters_)
    if (parameter.name == name) return &parameter;
  return nullptr;
}

bool Space::active(const Parameter& parameter, const json& point) const {
  if (parameter.parent.empty()) return true;
  auto value = point.find(parameter.parent);
  return value != point.end() &&
         std::find(parameter.when.begin(), parameter.when.end(), *value) != parameter.when.end();
}

bool Space::accepts(const json& point) const {
  if (constraints_.empty()) return true;
  json values = constants_;
  for (const auto& parameter : parameters_) values.erase(parameter.name);
  values.update(point);
  return std::all_of(constraints_.begin(), constraints_.end(),
                     [&](const Constraint& constraint) { return constraint.holds(values); });
}

json Space::point(const Pick& pick) const {
  json point = json::object();
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (active(parameters_[i], point)) point[parameters_[i].name] = pick(i, parameters_[i]);
  return point;
}

void Space::nothing_left(int draws) const {
  std::vector<std::string> texts;
  for (const auto& constraint : constraints_) texts.push_back("`" + constraint.text() + "`");
  throw usage_error("{} draws in a row were rejected by the constraints: {}", draws, join(texts, ", "));
}

}  // namespace runner::sweep
