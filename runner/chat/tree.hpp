// The syntax tree of a template.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/chat/value.hpp"

namespace runner::jinja {

struct Builtin;
struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<Stmt>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr all_positional, all_named;  ///< *args, **kwargs; may be null
};

enum class ExprKind : uint8_t {
  constant,  // value
  name,      // name
  list,
  tuple,      // parts
  dict,       // parts: key, value, key, value ..
  attribute,  // parts[0].text
  item,       // parts[0][parts[1]]
  slice,      // parts[0]:parts[1]:parts[2], each may be null
  call,       // parts[0](arguments)
  filter,     // parts[0] | builtin(arguments); parts[0] is null in filter blocks
  test,       // parts[0] is builtin(arguments)
  negative,
  positive,
  logical_not,  // parts[0]
  logical_and,
  logical_or,  // parts[0], parts[1]
  condition,   // parts[0] if parts[1] else parts[2], which may be null
  binary,      // parts[0] op parts[1]
  compare,     // parts[0] ops[0] parts[1] ops[1] parts[2] ..
  concatenate  // parts[0] ~ parts[1] ~ ..
};

enum class Op : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};

struct Expr {
  ExprKind kind;
  size_t offset;  ///< in the source, for errors
  std::vector<ExprPtr> parts = {};
  Value value = {};
  int name = -1;  ///< index in Tree::names
  std::string text = {};
  Op op = Op::add;
  std::vector<Op> ops = {};
  const Builtin* builtin = nullptr;
  std::unique_ptr<CallArguments> arguments = {};
  ~Expr();  ///< does not recurse: a + b + c .. may be longer than the stack is deep
};

/// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  size_t offset = 0;
  int name = -1;
  std::string attribute = {};
  std::vector<Target> parts = {};
};

enum class StmtKind : uint8_t {
  data,
  output,
  branch,
  loop,
  set,
  set_block,
  with,
  macro,
  call,
  filter,
  generation,
  leave,
  next
};

/// The parameters of a macro or of a call block, and its body.
struct MacroTree {
  std::string name;
  std::vector<int> parameters;
  std::vector<ExprPtr> defaults;  ///< of the last parameters
  Body body;
  int varargs = -1, kwargs = -1, caller = -1;  ///< names, if the body reads them
};

struct Stmt {
  StmtKind kind;
  size_t offset;
  std::string text = {};  ///< data
  /// output; branch: conditions; loop: iterable, filter or null; set, with: values; call: the call; set_block, filter: filter or
  /// null
  std::vector<ExprPtr> exprs = {};
  std::vector<Body> bodies = {};     ///< branch: one per condition and perhaps else; loop: body, else; others: body
  std::vector<Target> targets = {};  ///< loop, set, set_block, with; macro: its name
  bool recursive = false;            ///< loop
  std::unique_ptr<MacroTree> macro = {};  ///< macro, call
};

struct Tree {
  std::string name;    ///< of the template, in errors
  std::string source;  ///< normalized
  std::vector<std::string> names;
  Body body;
  bool has_generation = false;
  int loop_name = -1;
};

/// Parses a template. Raises TemplateError, also for unknown filters and tests.
Tree parse_template(std::string name, std::string_view text);

}  // namespace runner::jinja
