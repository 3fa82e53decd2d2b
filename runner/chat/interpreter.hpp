// Runs the syntax tree of a template and collects its output.
#pragma once
#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/limits.hpp"
#include "runner/chat/builtins.hpp"
#include "runner/chat/tree.hpp"
#include "runner/chat/value.hpp"

namespace runner::jinja {

/// Bytes [begin, end) of a text.
struct ByteSpan {
  size_t begin = 0, end = 0;
  bool operator==(const ByteSpan&) const = default;
};

/// The limits of a template. Beyond them it stops with a TemplateError. One text or list has at most template_value_bytes_max,
/// and lists and dictionaries are at most json_depth_max deep.
struct Limits {
  size_t output_bytes = template_output_bytes_max;
  int64_t value_bytes = template_values_bytes_max;  ///< of all values that live, and of outputs that are being captured
  int64_t steps = template_steps_max;  ///< statements and expressions; and for each 64 bytes that they read or write
  int depth = 1000;                    ///< of nested statements, expressions and calls of macros
};

struct Rendered {
  std::string text;
  std::vector<ByteSpan> generated = {};  ///< the output of generation blocks, in order; may be empty spans
  /// The text of a generation block was changed (filtered, joined) or dropped before it was printed, so its place is unknown.
  bool lost_generation = false;
};

/// Variables of one scope. Scopes see the variables of the scopes around them.
struct Scope {
  Scope* outer = nullptr;
  std::vector<std::pair<int, Value>> variables = {};
  bool captured = false;  ///< a macro sees it, so it lives until the end
};

class Loop;

class Interpreter {
 public:
  Interpreter(const Tree& tree, const Limits& limits, std::optional<std::time_t> now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Rendered render(const Dict& variables);

  Value attribute(const Value& value, std::string_view name);
  Value item(const Value& value, const Value& key);
  Value call(const Value& function, Arguments& arguments);
  Value run(const Builtin& builtin, const Value& subject, Arguments& arguments);
  Value run_filter(std::string_view name, const Value& subject, Arguments& arguments);
  bool run_test(std::string_view name, const Value& subject, Arguments& arguments);
  Value new_namespace(Dict attributes);
  std::time_t now() const;

  // For macros and recursive loops.
  Value call_macro(const MacroTree& macro, Scope* closure, Arguments& arguments);
  Value run_loop_again(const Stmt& stmt, Scope* scope, const Value& iterable, int depth);

 private:
  friend class Loop;
  enum class Flow { on, leave, next };
  class ScopeGuard;
  class DepthGuard;
  class Capture;

  // Statements (run_statements.cpp).
  Flow run(const Body& body);
  Flow run(const Stmt& stmt);
  void output(const Value& value);
  Flow branch(const Stmt& stmt);
  Flow loop(const Stmt& stmt, const Value& iterable, int depth);
  void assign(const Target& target, const Value& value);
  void set_variable(int name, Value value);
  Flow with(const Stmt& stmt);
  void define_macro(const Stmt& stmt);
  void call_block(const Stmt& stmt);
  void generation(const Stmt& stmt);
  Flow capture(const Body& body, Value& result);
  Value filtered(const Expr* chain, Value subject);
  void written(size_t before);
  void keep_scopes();
  Value remember(Rendered captured);

  // Expressions (evaluate.cpp).
  Value evaluate(const Expr& expr);
  Value evaluate_here(const Expr& expr);
  Value variable(int name) const;
  Value item_of(const Expr& expr);
  Value call_of(const Expr& expr);
  Value compare_of(const Expr& expr);
  Value concatenation(const Expr& expr);
  Value dict_of(const Expr& expr);
  Value run_builtin(const Expr& expr, const Value& subject);
  Arguments arguments_of(const CallArguments* written);

  const Tree& tree_;
  const Limits& limits_;
  std::optional<std::time_t> now_;
  std::vector<Value> globals_;  ///< by the index of the name; absent if undefined
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  Rendered* out_ = nullptr;
  size_t here_ = 0;  ///< offset in the source of what runs now
  Meter before_;     ///< of this thread
  int depth_ = 0, kept_scopes_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;  ///< all of them, so that cycles through them can be freed
  std::vector<std::shared_ptr<const Loop>>
      asked_loops_;  ///< whether a value has changed: the loop itself may be in the value
  struct Marked {
    Value text;
    std::vector<ByteSpan> generated;
    bool printed = false;
  };
  std::vector<Marked> marked_;  ///< captured texts with generation blocks
};

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter);
  ~DepthGuard() { --interpreter_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Interpreter& interpreter_;
};

/// Output becomes a value.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter) : interpreter_(interpreter), before_(interpreter.out_) {
    interpreter.out_ = &captured_;
  }
  ~Capture() { finish(); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Rendered finish() {
    interpreter_.out_ = before_;
    release(captured_.text.size());
    return std::exchange(captured_, {});
  }

 private:
  Interpreter& interpreter_;
  Rendered captured_;
  Rendered* before_;
};

/// A new scope inside `outer`, until the end of the block.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* outer);
  ~ScopeGuard();
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* before_;
};

/// The variable `loop`.
class Loop final : public Object {
 public:
  Loop(Interpreter& interpreter, const Stmt& stmt, const Value& iterable, Scope* scope, int depth);
  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(std::string_view name) const override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override;

  /// The variables around the loop are gone: what needs them fails from now on.
  void end() { scope_ = nullptr; }
  void forget() const { changed_.reset(); }
  /// The next item that the filter of the loop accepts. It is evaluated only now, as jinja2 does.
  bool advance(Value& item);

 private:
  bool pull(Value& item) const;
  const std::optional<Value>& following() const;
  int64_t length() const;

  Interpreter& interpreter_;
  const Stmt& stmt_;
  Scope* scope_;
  int level_;
  Items items_;
  mutable size_t read_ = 0;
  mutable std::deque<Value> ahead_;
  mutable std::optional<Value> peeked_;
  int64_t index_ = -1;
  std::optional<Value> previous_, current_;
  mutable std::optional<Value> changed_;
};

}  // namespace runner::jinja
