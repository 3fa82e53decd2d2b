// Splits a template into tokens, with the white space control of jinja2 3.1 and trim_blocks and lstrip_blocks on, and parses tokens into
// a tree, with the grammar and precedence of jinja2 3.1.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runner/chat/tree.hpp"

namespace runner::jinja {

enum class TokenKind : uint8_t {
  data,
  output_begin,
  output_end,
  block_begin,
  block_end,
  name,
  text,
  integer,
  real,
  sign,
  end
};

struct Token {
  TokenKind kind;
  size_t offset;     ///< in the source, bytes
  std::string text;  ///< of data, names and signs; the value of a string literal
  int64_t integer = 0;
  double real = 0;

  bool is_sign(std::string_view sign) const { return kind == TokenKind::sign && text == sign; }
  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
};

/// The source as jinja2 reads it: every line end is "\n", and one line end at the end is gone.
std::string normalized_source(std::string_view text);

/// The tokens of a normalized source; the last one has the kind `end`. Raises TemplateError.
std::vector<Token> tokenize(const std::string& name, std::string_view source);

/// Operators of one precedence.
using Signs = std::vector<std::pair<std::string_view, Op>>;

class Parser {
 public:
  Parser(Tree& tree, std::vector<Token> tokens) : tree_(tree), tokens_(std::move(tokens)) {}
  void parse();

 private:
  using Words = std::initializer_list<std::string_view>;
  struct Nesting;

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  std::string expect_any_name(std::string_view what);
  [[noreturn]] void fail(size_t offset, std::string message) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;
  int name_index(const std::string& name);

  // Statements (parse_statements.cpp).
  Body statements(Words ends, std::string_view block, size_t offset);
  Body block(Words ends, std::string_view name, size_t offset);
  void statement(Body& body);
  Stmt branch(size_t offset);
  Stmt loop(size_t offset);
  Stmt set(size_t offset);
  Stmt with(size_t offset);
  Stmt macro(size_t offset);
  Stmt call_block(size_t offset);
  Stmt filter_block(size_t offset);
  Stmt generation(size_t offset);
  Stmt leave_loop(size_t offset, StmtKind kind);
  [[noreturn]] void unknown_statement(const Token& token) const;
  void signature(MacroTree& macro);
  void macro_body(MacroTree& macro, std::string_view end, size_t offset);
  Target target(bool with_namespace);
  Target plain_target();

  // Expressions (parse_expressions.cpp).
  ExprPtr make(ExprKind kind, size_t offset) const;
  ExprPtr make(ExprKind kind, size_t offset, ExprPtr first, ExprPtr second = nullptr) const;
  ExprPtr expression(bool with_condition = true);
  ExprPtr tuple_or_expression(bool with_condition = true, bool parentheses = false);
  bool at_tuple_end() const;
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr comparison();
  bool comparison_op(Op& op);
  ExprPtr from_left(const Signs& signs, ExprPtr (Parser::*operand)());
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr filtered();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr slice_or_expression();
  ExprPtr filters_and_tests(ExprPtr expr);
  ExprPtr filter(ExprPtr subject, size_t offset);
  ExprPtr test(ExprPtr subject);
  std::unique_ptr<CallArguments> call_arguments();

  Tree& tree_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  std::map<std::string, int, std::less<>> name_indices_;
};

}  // namespace runner::jinja
