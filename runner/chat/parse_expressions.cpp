// The parser of expressions.
#include "runner/base/text.hpp"
#include "runner/chat/builtins.hpp"
#include "runner/chat/parser.hpp"

namespace runner::jinja {
namespace {
constexpr int nesting_most = 200;

const std::pair<std::string_view, Op>* sign_in(const Signs& table, const Token& token) {
  if (token.kind != TokenKind::sign) return nullptr;
  for (auto& row : table)
    if (row.first == token.text) return &row;
  return nullptr;
}
const Signs comparisons = {{"==", Op::equal},      {"!=", Op::unequal}, {"<", Op::less},
                           {"<=", Op::less_equal}, {">", Op::greater},  {">=", Op::greater_equal}};
const Signs sums = {{"+", Op::add}, {"-", Op::subtract}};
const Signs products = {{"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}};
const Signs powers = {{"**", Op::power}};

const Builtin& known(const Builtin* found, std::string_view what, const std::string& name,
                     std::vector<std::string> names, const std::function<void(std::string)>& fail) {
  if (found && !found->run) fail(fmt::format("the {} {} of jinja2 is not supported here", what, name));
  if (!found) {
    auto near = nearest(name, names);
    fail(fmt::format("there is no {} {}{}", what, name, near ? fmt::format("; did you mean {}?", *near) : ""));
  }
  return *found;
}
}  // namespace

/// Counts nested expressions and blocks, so that no template can exhaust the stack.
struct Parser::Nesting {
  explicit Nesting(Parser& parser) : parser(parser) {
    if (++parser.depth_ > nesting_most)
      parser.fail(parser.current().offset, fmt::format("more than {} nested expressions", nesting_most));
  }
  ~Nesting() { --parser.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  Parser& parser;
};

Expr::~Expr() {
  std::vector<ExprPtr> open;
  const auto take = [&](Expr& expr) {
    for (auto& part : expr.parts) open.push_back(std::move(part));
    if (!expr.arguments) return;
    for (auto& part : expr.arguments->positional) open.push_back(std::move(part));
    for (auto& [name, part] : expr.arguments->named) open.push_back(std::move(part));
    open.push_back(std::move(expr.arguments->all_positional));
    open.push_back(std::move(expr.arguments->all_named));
  };
  take(*this);
  while (!open.empty()) {
    const auto expr = std::move(open.back());
    open.pop_back();
    if (!expr) continue;
    take(*expr);
    expr->parts.clear();
    expr->arguments.reset();
  }
}

ExprPtr Parser::make(ExprKind kind, size_t offset) const { return ExprPtr(new Expr{.kind = kind, .offset = offset}); }

ExprPtr Parser::make(ExprKind kind, size_t offset, ExprPtr first, ExprPtr second) const {
  auto expr = make(kind, offset);
  expr->parts.push_back(std::move(first));
  if (second) expr->parts.push_back(std::move(second));
  return expr;
}

ExprPtr Parser::expression(bool with_condition) {
  Nesting nesting(*this);
  auto value = logical_or();
  while (with_condition && current().is_name("if")) {
    size_t offset = current().offset;
    ++at_;
    value = make(ExprKind::condition, offset, std::move(value), logical_or());
    value->parts.push_back(skip_name("else") ? expression() : nullptr);
  }
  return value;
}

bool Parser::at_tuple_end() const {
  auto& token = current();
  return token.kind == TokenKind::output_end || token.kind == TokenKind::block_end || token.is_sign(")") ||
         token.is_name("recursive");
}

ExprPtr Parser::tuple_or_expression(bool with_condition, bool parentheses) {
  auto tuple = make(ExprKind::tuple, current().offset);
  bool comma = false;
  while (!at_tuple_end()) {
    tuple->parts.push_back(expression(with_condition));
    if (!skip_sign(",")) break;
    comma = true;
  }
  if (comma) return tuple;
  if (!tuple->parts.empty()) return std::move(tuple->parts[0]);
  if (!parentheses) unexpected("an expression");
  return tuple;
}

ExprPtr Parser::logical_or() {
  auto left = logical_and();
  while (current().is_name("or")) {
    size_t offset = tokens_[at_++].offset;
    left = make(ExprKind::logical_or, offset, std::move(left), logical_and());
  }
  return left;
}

ExprPtr Parser::logical_and() {
  auto left = logical_not();
  while (current().is_name("and")) {
    size_t offset = tokens_[at_++].offset;
    left = make(ExprKind::logical_and, offset, std::move(left), logical_not());
  }
  return left;
}

ExprPtr Parser::logical_not() {
  if (!current().is_name("not")) return comparison();
  Nesting nesting(*this);
  size_t offset = tokens_[at_++].offset;
  return make(ExprKind::logical_not, offset, logical_not());
}

bool Parser::comparison_op(Op& op) {
  if (auto* row = sign_in(comparisons, current())) {
    op = row->second;
  } else if (current().is_name("in")) {
    op = Op::in;
  } else if (current().is_name("not") && after().is_name("in")) {
    op = Op::not_in;
    ++at_;
  } else {
    return false;
  }
  ++at_;
  return true;
}

ExprPtr Parser::comparison() {
  auto left = sum();
  size_t offset = current().offset;
  Op op;
  if (!comparison_op(op)) return left;
  auto chain = make(ExprKind::compare, offset, std::move(left));
  do {
    chain->ops.push_back(op);
    chain->parts.push_back(sum());
  } while (comparison_op(op));
  return chain;
}

ExprPtr Parser::from_left(const Signs& signs, ExprPtr (Parser::*operand)()) {
  auto left = (this->*operand)();
  while (auto* row = sign_in(signs, current())) {
    size_t offset = tokens_[at_++].offset;
    left = make(ExprKind::binary, offset, std::move(left), (this->*operand)());
    left->op = row->second;
  }
  return left;
}

ExprPtr Parser::sum() { return from_left(sums, &Parser::concatenation); }

ExprPtr Parser::concatenation() {
  auto first = product();
  if (!current().is_sign("~")) return first;
  auto all = make(ExprKind::concatenate, current().offset, std::move(first));
  while (skip_sign("~")) all->parts.push_back(product());
  return all;
}

ExprPtr Parser::product() { return from_left(products, &Parser::power); }
/// From left to right, unlike Python: 2 ** 3 ** 2 is 64 in jinja2.
ExprPtr Parser::power() { return from_left(powers, &Parser::filtered); }
ExprPtr Parser::filtered() { return unary(/*with_filters=*/true); }

ExprPtr Parser::unary(bool with_filters) {
  Nesting nesting(*this);
  ExprPtr expr;
  size_t offset = current().offset;
  if (skip_sign("-"))
    expr = make(ExprKind::negative, offset, unary(false));
  else if (skip_sign("+"))
    expr = make(ExprKind::positive, offset, unary(false));
  else
    expr = primary();
  expr = postfix(std::move(expr));
  return with_filters ? filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::primary() {
  auto& token = current();
  auto constant = [&](Value value) {
    auto expr = make(ExprKind::constant, token.offset);
    expr->value = std::move(value);
    return expr;
  };
  if (token.kind == TokenKind::name) {
    ++at_;
    if (token.text == "true" || token.text == "True") return constant(true);
    if (token.text == "false" || token.text == "False") return constant(false);
    if (token.text == "none" || token.text == "None") return constant({});
    auto expr = make(ExprKind::name, token.offset);
    expr->name = name_index(token.text);
    return expr;
  }
  if (token.kind == TokenKind::text) {
    std::string text;
    while (current().kind == TokenKind::text) text += tokens_[at_++].text;
    return constant(std::move(text));
  }
  if (token.kind == TokenKind::integer) return ++at_, constant(token.integer);
  if (token.kind == TokenKind::real) return ++at_, constant(token.real);
  if (skip_sign("(")) {
    auto expr = tuple_or_expression(true, true);
    expect_sign(")");
    return expr;
  }
  if (token.is_sign("[")) return list();
  if (token.is_sign("{")) return dict();
  unexpected("an expression");
}

ExprPtr Parser::list() {
  auto expr = make(ExprKind::list, current().offset);
  expect_sign("[");
  while (!current().is_sign("]")) {
    if (!expr->parts.empty()) expect_sign(",");
    if (current().is_sign("]")) break;
    expr->parts.push_back(expression());
  }
  expect_sign("]");
  return expr;
}

ExprPtr Parser::dict() {
  auto expr = make(ExprKind::dict, current().offset);
  expect_sign("{");
  while (!current().is_sign("}")) {
    if (!expr->parts.empty()) expect_sign(",");
    if (current().is_sign("}")) break;
    expr->parts.push_back(expression());
    expect_sign(":");
    expr->parts.push_back(expression());
  }
  expect_sign("}");
  return expr;
}

ExprPtr Parser::postfix(ExprPtr expr) {
  for (;;) {
    if (current().is_sign(".") || current().is_sign("[")) {
      expr = subscript(std::move(expr));
    } else if (current().is_sign("(")) {
      expr = make(ExprKind::call, current().offset, std::move(expr));
      expr->arguments = call_arguments();
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr expr) {
  size_t offset = current().offset;
  if (skip_sign(".")) {
    auto& token = current();
    offset = token.offset;
    if (token.kind == TokenKind::name) {
      expr = make(ExprKind::attribute, offset, std::move(expr));
      expr->text = token.text;
    } else if (token.kind == TokenKind::integer) {
      auto index = make(ExprKind::constant, offset);
      index->value = token.integer;
      expr = make(ExprKind::item, offset, std::move(expr), std::move(index));
    } else {
      unexpected("a name or a number after the dot");
    }
    ++at_;
    return expr;
  }
  expect_sign("[");
  auto index = make(ExprKind::tuple, offset);
  while (!current().is_sign("]")) {
    if (!index->parts.empty()) expect_sign(",");
    index->parts.push_back(slice_or_expression());
  }
  expect_sign("]");
  if (index->parts.size() == 1) index = std::move(index->parts[0]);
  return make(ExprKind::item, offset, std::move(expr), std::move(index));
}

ExprPtr Parser::slice_or_expression() {
  auto slice = make(ExprKind::slice, current().offset);
  auto ends = [&] { return current().is_sign(":") || current().is_sign("]") || current().is_sign(","); };
  auto first = current().is_sign(":") ? nullptr : expression();
  if (!current().is_sign(":")) return first;
  slice->parts.push_back(std::move(first));
  ++at_;
  slice->parts.push_back(ends() ? nullptr : expression());
  slice->parts.push_back(skip_sign(":") && !ends() ? expression() : nullptr);
  return slice;
}

ExprPtr Parser::filters_and_tests(ExprPtr expr) {
  for (;;) {
    if (current().is_sign("|")) {
      ++at_;
      size_t offset = current().offset;
      expr = filter(std::move(expr), offset);
    } else if (current().is_name("is")) {
      expr = test(std::move(expr));
    } else if (current().is_sign("(")) {
      expr = make(ExprKind::call, current().offset, std::move(expr));
      expr->arguments = call_arguments();
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::filter(ExprPtr subject, size_t offset) {
  auto name = expect_any_name("the name of a filter");
  auto expr = make(ExprKind::filter, offset, std::move(subject));
  expr->builtin = &known(find_filter(name), "filter", name, filter_names(),
                         [&](std::string text) { fail(offset, std::move(text)); });
  if (current().is_sign("(")) expr->arguments = call_arguments();
  return expr;
}

ExprPtr Parser::test(ExprPtr subject) {
  expect_name("is");
  size_t offset = current().offset;
  bool negated = skip_name("not");
  if (negated) offset = current().offset;
  auto name = expect_any_name("the name of a test");
  auto expr = make(ExprKind::test, offset, std::move(subject));
  expr->builtin =
      &known(find_test(name), "test", name, test_names(), [&](std::string text) { fail(offset, std::move(text)); });
  auto& token = current();
  bool word = token.kind == TokenKind::name && token.text != "else" && token.text != "or" && token.text != "and";
  bool literal = token.kind == TokenKind::text || token.kind == TokenKind::integer || token.kind == TokenKind::real;
  if (token.is_sign("(")) {
    expr->arguments = call_arguments();
  } else if (word || literal || token.is_sign("[") || token.is_sign("{")) {
    if (token.is_name("is")) fail(token.offset, "tests cannot be chained with `is`");
    expr->arguments = std::make_unique<CallArguments>();
    auto argument = primary();
    expr->arguments->positional.push_back(postfix(std::move(argument)));
  }
  return negated ? make(ExprKind::logical_not, offset, std::move(expr)) : std::move(expr);
}

std::unique_ptr<CallArguments> Parser::call_arguments() {
  auto arguments = std::make_unique<CallArguments>();
  expect_sign("(");
  auto in_order = [&](bool ordered) {
    if (!ordered)
      fail(current().offset,
           "this argument may not stand here: positional ones come first, then named ones, *args and **kwargs");
  };
  for (bool first = true; !current().is_sign(")"); first = false) {
    if (!first) expect_sign(",");
    if (current().is_sign(")")) break;
    if (current().is_sign("*")) {
      in_order(!arguments->all_positional && !arguments->all_named);
      ++at_;
      arguments->all_positional = expression();
    } else if (current().is_sign("**")) {
      in_order(!arguments->all_named);
      ++at_;
      arguments->all_named = expression();
    } else if (current().kind == TokenKind::name && after().is_sign("=")) {
      in_order(!arguments->all_named);
      auto name = current().text;
      for (auto& [other, value] : arguments->named)
        if (other == name) fail(current().offset, fmt::format("the argument {} is given twice", name));
      if (arguments->named.size() >= 1000) fail(current().offset, "a call has more than 1000 named arguments");
      at_ += 2;
      arguments->named.emplace_back(name, expression());
    } else {
      in_order(!arguments->all_positional && !arguments->all_named && arguments->named.empty());
      arguments->positional.push_back(expression());
    }
  }
  expect_sign(")");
  return arguments;
}

}  // namespace runner::jinja
