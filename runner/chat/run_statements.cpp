// Statements: output, loops, assignments, macros and blocks.
#include <fmt/format.h>

#include <algorithm>

#include "runner/chat/interpreter.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/template_error.hpp"

namespace runner::jinja {
namespace {
class Macro final : public Object {
 public:
  Macro(const MacroTree& tree, Scope* closure) : tree_(tree), closure_(closure) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  std::optional<Value> attribute(std::string_view name) const override {
    if (name == "name") return Value(tree_.name);
    return std::nullopt;
  }
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return interpreter.call_macro(tree_, closure_, arguments);
  }

 private:
  const MacroTree& tree_;
  Scope* closure_;
};
}  // namespace

Interpreter::Interpreter(const Tree& tree, const Limits& limits, std::optional<std::time_t> now)
    : tree_(tree), limits_(limits), now_(now), before_(Meter::of_thread()) {
  Meter::of_thread() = {before_.held, before_.held + limits.value_bytes, 0, limits.steps};
}

/// Frees the variables. Namespaces and loops may contain each other, so each is emptied.
Interpreter::~Interpreter() {
  for (auto& space : namespaces_) space->attributes.items.clear();
  for (auto& loop : asked_loops_) loop->forget();
  auto& meter = Meter::of_thread();
  meter = {meter.held, before_.held_most, before_.steps, before_.steps_most};
}

Interpreter::DepthGuard::DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) {
  if (++interpreter_.depth_ > interpreter_.limits_.depth) {
    --interpreter_.depth_;
    throw Fault{fmt::format(
        "statements, expressions and macros are nested more than {} deep; does a macro call itself without end?",
        interpreter_.limits_.depth)};
  }
}

Interpreter::ScopeGuard::ScopeGuard(Interpreter& interpreter, Scope* outer)
    : interpreter_(interpreter), before_(interpreter.scope_) {
  Scope* scope;
  if (interpreter_.free_scopes_.empty()) {
    scope = &interpreter_.scopes_.emplace_back();
  } else {
    scope = interpreter_.free_scopes_.back();
    interpreter_.free_scopes_.pop_back();
  }
  scope->outer = outer;
  interpreter_.scope_ = scope;
}

Interpreter::ScopeGuard::~ScopeGuard() {
  Scope* scope = interpreter_.scope_;
  interpreter_.scope_ = before_;
  if (scope->captured) return;
  scope->variables.clear();
  interpreter_.free_scopes_.push_back(scope);
}

Rendered Interpreter::render(const Dict& variables) {
  Capture capture(*this);
  globals_.reserve(tree_.names.size());
  for (auto& name : tree_.names) {
    auto* given = variables.find(std::string_view(name));
    globals_.push_back(given ? *given : global_function(name));
  }
  try {
    ScopeGuard guard(*this, nullptr);
    run(tree_.body);
  } catch (const Fault& fault) {
    throw TemplateError(tree_.name, tree_.source, here_, fault.message);
  } catch (const RaisedMessage& raised) {
    throw RaisedByTemplate(tree_.name, tree_.source, here_, raised.message);
  }
  auto rendered = capture.finish();
  for (auto& marked : marked_) rendered.lost_generation |= !marked.printed;
  return rendered;
}

/// Counts what the output has got since it had `before` bytes.
void Interpreter::written(size_t before) {
  hold(out_->text.size() - before);
  if (out_->text.size() > limits_.output_bytes)
    throw Fault{fmt::format("the output is longer than {} bytes", limits_.output_bytes)};
}

Interpreter::Flow Interpreter::run(const Body& body) {
  DepthGuard depth(*this);
  for (auto& stmt : body)
    if (auto flow = run(stmt); flow != Flow::on) return flow;
  return Flow::on;
}

Interpreter::Flow Interpreter::run(const Stmt& stmt) {
  here_ = stmt.offset;
  spend(1);
  switch (stmt.kind) {
    case StmtKind::data: {
      const size_t before = out_->text.size();
      out_->text += stmt.text;
      written(before);
      break;
    }
    case StmtKind::output:
      for (auto& expr : stmt.exprs) {
        auto value = evaluate(*expr);
        here_ = expr->offset;
        output(value);
      }
      break;
    case StmtKind::branch:
      return branch(stmt);
    case StmtKind::loop: {
      auto iterable = evaluate(*stmt.exprs[0]);
      here_ = stmt.exprs[0]->offset;
      loop(stmt, iterable, 1);
      break;
    }
    case StmtKind::set: {
      auto value = evaluate(*stmt.exprs[0]);
      here_ = stmt.offset;
      assign(stmt.targets[0], value);
      break;
    }
    case StmtKind::set_block: {
      Value text;
      if (auto flow = capture(stmt.bodies[0], text); flow != Flow::on) return flow;
      assign(stmt.targets[0], filtered(stmt.exprs[0].get(), std::move(text)));
      break;
    }
    case StmtKind::filter: {
      Value text;
      if (auto flow = capture(stmt.bodies[0], text); flow != Flow::on) return flow;
      output(filtered(stmt.exprs[0].get(), std::move(text)));
      break;
    }
    case StmtKind::with:
      return with(stmt);
    case StmtKind::macro:
      define_macro(stmt);
      break;
    case StmtKind::call:
      call_block(stmt);
      break;
    case StmtKind::generation:
      generation(stmt);
      break;
    case StmtKind::leave:
      return Flow::leave;
    case StmtKind::next:
      return Flow::next;
  }
  return Flow::on;
}

void Interpreter::output(const Value& value) {
  size_t begin = out_->text.size();
  append_text(out_->text, value);
  written(begin);
  if (marked_.empty() || !value.is_text()) return;
  spend(marked_.size() / 8);
  for (auto& marked : marked_)
    if (marked.text.identity() == value.identity()) {
      marked.printed = true;
      for (auto span : marked.generated) out_->generated.push_back({begin + span.begin, begin + span.end});
    }
}

Interpreter::Flow Interpreter::branch(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i)
    if (evaluate(*stmt.exprs[i]).truth()) return run(stmt.bodies[i]);
  return stmt.bodies.size() > stmt.exprs.size() ? run(stmt.bodies.back()) : Flow::on;
}

Interpreter::Flow Interpreter::loop(const Stmt& stmt, const Value& iterable, int depth) {
  DepthGuard guard(*this);
  auto loop = std::make_shared<Loop>(*this, stmt, iterable, scope_, depth);
  Value variable{std::shared_ptr<Object>(loop)};
  const std::unique_ptr<Loop, void (*)(Loop*)> ends(loop.get(), [](Loop* ended) { ended->end(); });
  Value item;
  bool ran = false;
  while (loop->advance(item)) {
    ran = true;
    ScopeGuard scope(*this, scope_);
    scope_->variables.emplace_back(tree_.loop_name, variable);
    assign(stmt.targets[0], item);
    if (run(stmt.bodies[0]) == Flow::leave) return Flow::on;
  }
  if (ran || stmt.bodies[1].empty()) return Flow::on;
  ScopeGuard scope(*this, scope_);
  return run(stmt.bodies[1]);
}

Value Interpreter::run_loop_again(const Stmt& stmt, Scope* scope, const Value& iterable, int depth) {
  Capture capture(*this);
  auto* scope_before = std::exchange(scope_, scope);
  loop(stmt, iterable, depth);
  scope_ = scope_before;
  return remember(capture.finish());
}

void Interpreter::set_variable(int name, Value value) {
  spend(scope_->variables.size() / 8);
  for (auto& [other, old] : scope_->variables)
    if (other == name) return void(old = std::move(value));
  scope_->variables.emplace_back(name, std::move(value));
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    auto space = variable(target.name);
    auto* attributes = space.is(Kind::object) ? dynamic_cast<Namespace*>(&space.object()) : nullptr;
    here_ = target.offset;
    if (!attributes) throw Fault{"cannot assign attribute on non-namespace object"};
    attributes->attributes.set(target.attribute, value);
  } else if (target.parts.empty()) {
    set_variable(target.name, value);
  } else {
    here_ = target.offset;
    if (!is_iterable(value)) throw Fault{fmt::format("cannot unpack non-iterable {} object", value.type_name())};
    Items items(value);
    if (items.size() != target.parts.size())
      throw Fault{fmt::format("{} names for {} values", target.parts.size(), items.size())};
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items.all()[i]);
  }
}

Interpreter::Flow Interpreter::with(const Stmt& stmt) {
  std::vector<Value> values;
  for (auto& expr : stmt.exprs) values.push_back(evaluate(*expr));
  ScopeGuard scope(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(stmt.targets[i], values[i]);
  return run(stmt.bodies[0]);
}

/// A macro sees the scopes around it, so they live until the end.
void Interpreter::keep_scopes() {
  constexpr int scopes_most = 100'000;
  for (auto* scope = scope_; scope && !scope->captured; scope = scope->outer) {
    scope->captured = true;
    if (++kept_scopes_ > scopes_most)
      throw Fault{fmt::format("the template defines macros in more than {} scopes", scopes_most)};
  }
}

void Interpreter::define_macro(const Stmt& stmt) {
  keep_scopes();
  set_variable(stmt.targets[0].name, Value(std::shared_ptr<Object>(std::make_shared<Macro>(*stmt.macro, scope_))));
}

void Interpreter::call_block(const Stmt& stmt) {
  auto& call_expr = *stmt.exprs[0];
  keep_scopes();
  auto function = evaluate(*call_expr.parts[0]);
  auto arguments = arguments_of(call_expr.arguments.get());
  arguments.named.emplace_back("caller", Value(std::shared_ptr<Object>(std::make_shared<Macro>(*stmt.macro, scope_))));
  here_ = call_expr.offset;
  output(call(function, arguments));
}

void Interpreter::generation(const Stmt& stmt) {
  size_t begin = out_->text.size();
  ScopeGuard scope(*this, scope_);
  run(stmt.bodies[0]);
  out_->generated.push_back({begin, out_->text.size()});
}

Interpreter::Flow Interpreter::capture(const Body& body, Value& result) {
  Capture capture(*this);
  ScopeGuard scope(*this, scope_);
  auto flow = run(body);
  result = remember(capture.finish());
  return flow;
}

Value Interpreter::remember(Rendered captured) {
  Value text(std::move(captured.text));
  if (!captured.generated.empty()) marked_.push_back(Marked{.text = text, .generated = std::move(captured.generated)});
  return text;
}

Value Interpreter::filtered(const Expr* chain, Value subject) {
  if (!chain) return subject;
  DepthGuard depth(*this);
  auto inner = filtered(chain->parts[0].get(), std::move(subject));
  return run_builtin(*chain, inner);
}

Value Interpreter::call_macro(const MacroTree& macro, Scope* closure, Arguments& arguments) {
  DepthGuard depth(*this);
  auto name_of = [&](int index) { return std::string_view(tree_.names[static_cast<size_t>(index)]); };
  auto take_named = [&](std::string_view name) -> std::optional<Value> {
    for (auto item = arguments.named.begin(); item != arguments.named.end(); ++item)
      if (item->first == name) {
        auto value = std::move(item->second);
        arguments.named.erase(item);
        return value;
      }
    return std::nullopt;
  };
  auto caller = macro.name == "caller" || macro.caller < 0 ? std::nullopt : take_named("caller");
  Rendered captured;
  {
    ScopeGuard scope(*this, closure);
    size_t count = macro.parameters.size(), given = arguments.positional.size();
    std::vector<size_t> missing;  // a default may read the parameters before it
    for (size_t i = 0; i < count; ++i) {
      auto name = name_of(macro.parameters[i]);
      auto value = i < given ? std::optional(arguments.positional[i]) : take_named(name);
      if (!value) missing.push_back(i);
      auto none = Missing{.owner = {}, .name = {}, .message = fmt::format("parameter '{}' was not provided", name)};
      set_variable(macro.parameters[i], value ? std::move(*value) : Value::undefined(std::move(none)));
    }
    size_t first_default = count - macro.defaults.size();
    for (size_t i : missing)
      if (i >= first_default) set_variable(macro.parameters[i], evaluate(*macro.defaults[i - first_default]));
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, given)),
                            arguments.positional.end());
    if (!rest.empty() && macro.varargs < 0)
      throw Fault{
          fmt::format("macro '{}' takes not more than {} argument{}", macro.name, count, count == 1 ? "" : "s")};
    if (!arguments.named.empty() && macro.kwargs < 0)
      throw Fault{fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, arguments.named[0].first)};
    if (macro.varargs >= 0) set_variable(macro.varargs, Value::sequence(std::move(rest), Form::tuple));
    if (macro.kwargs >= 0) {
      Dict named;
      for (auto& [name, value] : arguments.named) named.set(name, value);
      set_variable(macro.kwargs, Value::dict(std::move(named)));
    }
    if (macro.caller >= 0 && macro.name != "caller") {
      auto none = Value::undefined(Missing{.owner = {}, .name = {}, .message = "No caller defined"});
      set_variable(macro.caller, caller.value_or(std::move(none)));
    }
    Capture capture(*this);
    run(macro.body);
    captured = capture.finish();
  }
  return remember(std::move(captured));
}

Value Interpreter::new_namespace(Dict attributes) {
  if (namespaces_.size() >= 100'000) throw Fault{"the template makes more than 100000 namespaces"};
  auto space = std::make_shared<Namespace>();
  space->attributes = std::move(attributes);
  namespaces_.push_back(space);
  return Value(std::shared_ptr<Object>(space));
}

std::time_t Interpreter::now() const { return now_.value_or(std::time(nullptr)); }

}  // namespace runner::jinja
