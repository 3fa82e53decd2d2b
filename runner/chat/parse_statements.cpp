// The parser of statements.
#include <algorithm>
#include <utility>

#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/chat/parser.hpp"
#include "runner/chat/template_error.hpp"

namespace runner::jinja {
namespace {
std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::output_end:
      return "the end of the output, }}";
    case TokenKind::block_end:
      return "the end of the tag, %}";
    case TokenKind::name:
    case TokenKind::sign:
      return fmt::format("`{}`", token.text);
    case TokenKind::text:
      return fmt::format("the string \"{}\"", token.text);
    case TokenKind::integer:
      return fmt::format("the number {}", token.integer);
    case TokenKind::real:
      return fmt::format("the number {}", token.real);
    case TokenKind::end:
      return "the end of the template";
    default:
      return "text";
  }
}
}  // namespace

bool Parser::skip_sign(std::string_view sign) { return current().is_sign(sign) ? ++at_, true : false; }
bool Parser::skip_name(std::string_view name) { return current().is_name(name) ? ++at_, true : false; }
void Parser::fail(size_t offset, std::string message) const {
  throw TemplateError(tree_.name, tree_.source, offset, std::move(message));
}
void Parser::unexpected(std::string_view wanted) const {
  fail(current().offset, fmt::format("expected {}, found {}", wanted, describe(current())));
}

void Parser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) unexpected(fmt::format("`{}`", sign));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(fmt::format("`{}`", name));
}

std::string Parser::expect_any_name(std::string_view what) {
  if (current().kind != TokenKind::name) unexpected(what);
  return tokens_[at_++].text;
}

int Parser::name_index(const std::string& name) {
  auto [found, added] = name_indices_.try_emplace(name, static_cast<int>(tree_.names.size()));
  if (added) tree_.names.push_back(name);
  return found->second;
}

void Parser::parse() {
  tree_.loop_name = name_index("loop");
  tree_.body = statements({}, "", 0);
}

/// Statements up to a tag with one of the words `ends`, which stays the current token.
Body Parser::statements(Words ends, std::string_view block, size_t offset) {
  if (++depth_ > 200) fail(current().offset, "more than 200 nested blocks");
  Body body;
  for (;;) {
    auto& token = current();
    if (token.kind == TokenKind::end) {
      if (ends.size() > 0)
        fail(offset, fmt::format("this {} block has no end: {{% end{} %}} is missing", block, block));
      break;
    }
    ++at_;
    if (token.kind == TokenKind::data) {
      body.push_back(Stmt{.kind = StmtKind::data, .offset = token.offset, .text = token.text});
    } else if (token.kind == TokenKind::output_begin) {
      Stmt output{.kind = StmtKind::output, .offset = token.offset};
      output.exprs.push_back(tuple_or_expression());
      if (current().kind != TokenKind::output_end) unexpected("an operator or }}");
      ++at_;
      body.push_back(std::move(output));
    } else {
      if (current().kind != TokenKind::name) unexpected("the name of a statement");
      if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) break;
      statement(body);
      if (current().kind != TokenKind::block_end) unexpected("%}");
      ++at_;
    }
  }
  --depth_;
  return body;
}

/// The rest of a tag, and its body.
Body Parser::block(Words ends, std::string_view name, size_t offset) {
  skip_sign(":");
  if (current().kind != TokenKind::block_end) unexpected("%}");
  ++at_;
  return statements(ends, name, offset);
}

void Parser::statement(Body& body) {
  const Token& token = tokens_[at_++];
  auto& word = token.text;
  size_t offset = token.offset;
  if (word == "if")
    body.push_back(branch(offset));
  else if (word == "for")
    body.push_back(loop(offset));
  else if (word == "set")
    body.push_back(set(offset));
  else if (word == "with")
    body.push_back(with(offset));
  else if (word == "macro")
    body.push_back(macro(offset));
  else if (word == "call")
    body.push_back(call_block(offset));
  else if (word == "filter")
    body.push_back(filter_block(offset));
  else if (word == "generation")
    body.push_back(generation(offset));
  else if (word == "break")
    body.push_back(leave_loop(offset, StmtKind::leave));
  else if (word == "continue")
    body.push_back(leave_loop(offset, StmtKind::next));
  else if (word == "print") {
    Stmt output{.kind = StmtKind::output, .offset = offset};
    while (current().kind != TokenKind::block_end) {
      if (!output.exprs.empty()) expect_sign(",");
      output.exprs.push_back(expression());
    }
    body.push_back(std::move(output));
  } else {
    unknown_statement(token);
  }
}

void Parser::unknown_statement(const Token& token) const {
  for (std::string_view word : {"include", "import", "from", "extends", "block", "autoescape", "trans", "do", "debug"})
    if (token.text == word)
      fail(token.offset,
           fmt::format("the statement {} is not supported: chat templates are one file without it", word));
  if (token.text.starts_with("end") || token.text == "else" || token.text == "elif")
    fail(token.offset, fmt::format("unexpected {}: no open block has it", token.text));
  auto near = nearest(token.text, {"if", "for", "set", "with", "macro", "call", "filter", "generation", "break",
                                   "continue", "raw", "print"});
  fail(token.offset,
       fmt::format("there is no statement {}{}", token.text, near ? fmt::format("; did you mean {}?", *near) : ""));
}

Stmt Parser::branch(size_t offset) {
  Stmt stmt{.kind = StmtKind::branch, .offset = offset};
  for (;;) {
    stmt.exprs.push_back(tuple_or_expression(false));
    stmt.bodies.push_back(block({"elif", "else", "endif"}, "if", offset));
    if (skip_name("elif")) continue;
    if (skip_name("else")) stmt.bodies.push_back(block({"endif"}, "if", offset));
    expect_name("endif");
    return stmt;
  }
}

Stmt Parser::loop(size_t offset) {
  Stmt stmt{.kind = StmtKind::loop, .offset = offset};
  stmt.targets.push_back(target(false));
  expect_name("in");
  stmt.exprs.push_back(tuple_or_expression(false));
  stmt.exprs.push_back(skip_name("if") ? expression() : nullptr);
  stmt.recursive = skip_name("recursive");
  ++loops_;
  stmt.bodies.push_back(block({"endfor", "else"}, "for", offset));
  --loops_;
  stmt.bodies.push_back(skip_name("else") ? block({"endfor"}, "for", offset) : Body());
  expect_name("endfor");
  return stmt;
}

Stmt Parser::set(size_t offset) {
  Stmt stmt{.kind = StmtKind::set, .offset = offset};
  stmt.targets.push_back(target(true));
  if (skip_sign("=")) {
    stmt.exprs.push_back(tuple_or_expression());
    return stmt;
  }
  stmt.kind = StmtKind::set_block;
  ExprPtr chain;
  while (skip_sign("|")) {
    size_t begin = current().offset;
    chain = filter(std::move(chain), begin);
  }
  stmt.exprs.push_back(std::move(chain));
  stmt.bodies.push_back(block({"endset"}, "set", offset));
  expect_name("endset");
  return stmt;
}

Stmt Parser::with(size_t offset) {
  Stmt stmt{.kind = StmtKind::with, .offset = offset};
  while (current().kind != TokenKind::block_end) {
    if (!stmt.targets.empty()) expect_sign(",");
    stmt.targets.push_back(target(false));
    expect_sign("=");
    stmt.exprs.push_back(expression());
  }
  stmt.bodies.push_back(block({"endwith"}, "with", offset));
  expect_name("endwith");
  return stmt;
}

void Parser::signature(MacroTree& macro) {
  expect_sign("(");
  while (!current().is_sign(")")) {
    if (!macro.parameters.empty()) expect_sign(",");
    size_t offset = current().offset;
    macro.parameters.push_back(name_index(expect_any_name("the name of a parameter")));
    if (skip_sign("="))
      macro.defaults.push_back(expression());
    else if (!macro.defaults.empty())
      fail(offset, "a parameter without a default follows one with a default");
  }
  expect_sign(")");
}

/// The body. A macro takes more arguments than its parameters only if its body reads varargs, kwargs or caller.
void Parser::macro_body(MacroTree& macro, std::string_view end, size_t offset) {
  int loops = std::exchange(loops_, 0);
  size_t begin = at_;
  macro.body = block({end}, end.substr(3), offset);
  for (size_t i = begin; i < at_; ++i) {
    if (tokens_[i].kind != TokenKind::name || tokens_[i - 1].is_sign(".")) continue;
    for (auto [word, index] :
         {std::pair("varargs", &macro.varargs), {"kwargs", &macro.kwargs}, {"caller", &macro.caller}})
      if (tokens_[i].text == word) *index = name_index(word);
  }
  loops_ = loops;
  expect_name(end);
}

Stmt Parser::macro(size_t offset) {
  Stmt stmt{.kind = StmtKind::macro, .offset = offset};
  stmt.macro = std::make_unique<MacroTree>();
  stmt.macro->name = expect_any_name("the name of the macro");
  stmt.targets.push_back(Target{.offset = offset, .name = name_index(stmt.macro->name)});
  signature(*stmt.macro);
  macro_body(*stmt.macro, "endmacro", offset);
  return stmt;
}

Stmt Parser::call_block(size_t offset) {
  Stmt stmt{.kind = StmtKind::call, .offset = offset};
  stmt.macro = std::make_unique<MacroTree>();
  stmt.macro->name = "caller";
  if (current().is_sign("(")) signature(*stmt.macro);
  stmt.exprs.push_back(expression());
  if (stmt.exprs[0]->kind != ExprKind::call)
    fail(stmt.exprs[0]->offset, "a call block needs the call of a macro, e.g. {% call box() %}");
  macro_body(*stmt.macro, "endcall", offset);
  return stmt;
}

Stmt Parser::filter_block(size_t offset) {
  Stmt stmt{.kind = StmtKind::filter, .offset = offset};
  ExprPtr chain;
  do {
    size_t begin = current().offset;
    chain = filter(std::move(chain), begin);
  } while (skip_sign("|"));
  stmt.exprs.push_back(std::move(chain));
  stmt.bodies.push_back(block({"endfilter"}, "filter", offset));
  expect_name("endfilter");
  return stmt;
}

Stmt Parser::generation(size_t offset) {
  Stmt stmt{.kind = StmtKind::generation, .offset = offset};
  tree_.has_generation = true;
  int loops = std::exchange(loops_, 0);
  stmt.bodies.push_back(block({"endgeneration"}, "generation", offset));
  loops_ = loops;
  expect_name("endgeneration");
  return stmt;
}

Stmt Parser::leave_loop(size_t offset, StmtKind kind) {
  if (loops_ == 0)
    fail(offset, fmt::format("{} is outside of a loop; the loop must be in the same macro, call or generation block",
                             kind == StmtKind::leave ? "break" : "continue"));
  return Stmt{.kind = kind, .offset = offset};
}

/// A name, or a tuple of names and of tuples in parentheses; with `with_namespace` also "ns.attribute".
Target Parser::target(bool with_namespace) {
  size_t offset = current().offset;
  if (with_namespace && after().is_sign(".")) {
    Target result{.offset = offset, .name = name_index(expect_any_name("the name of a namespace"))};
    expect_sign(".");
    result.attribute = expect_any_name("the name of an attribute");
    return result;
  }
  Target tuple{.offset = offset};
  bool comma = false;
  for (;;) {
    bool ends = current().kind == TokenKind::block_end || current().is_sign("=") || current().is_sign(")") ||
                current().is_name("in");
    if (ends && comma) break;
    tuple.parts.push_back(plain_target());
    if (!skip_sign(",")) break;
    comma = true;
  }
  if (comma) return tuple;
  return std::move(tuple.parts[0]);
}

Target Parser::plain_target() {
  size_t offset = current().offset;
  if (skip_sign("(")) {
    auto inner = target(false);
    expect_sign(")");
    return inner;
  }
  auto name = expect_any_name("a name to assign to");
  for (std::string_view constant : {"true", "false", "none", "True", "False", "None"})
    if (name == constant) fail(offset, fmt::format("{} is a constant; nothing can be assigned to it", name));
  return Target{.offset = offset, .name = name_index(name)};
}

Tree parse_template(std::string name, std::string_view text) {
  if (text.size() > template_bytes_max)
    throw usage_error("{}: the template has {}; at most {} are read", name, format_bytes(text.size()),
                      format_bytes(template_bytes_max));
  Tree tree;
  tree.name = std::move(name);
  tree.source = normalized_source(text);
  if (auto at = first_invalid_utf8(tree.source))
    throw TemplateError(tree.name, tree.source.substr(0, *at), *at, "from here on the text is not valid UTF-8");
  Parser(tree, tokenize(tree.name, tree.source)).parse();
  return tree;
}

}  // namespace runner::jinja
