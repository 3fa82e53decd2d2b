// Expressions: attributes, items, calls, operators.
#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/chat/interpreter.hpp"
#include "runner/chat/operators.hpp"
#include "runner/chat/print.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace {
/// Methods that would change a list or a dictionary; the sandbox of transformers refuses them as well.
bool changes_data(const Value& value, std::string_view name) {
  auto in = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (value.is_dict()) return in({"clear", "pop", "popitem", "setdefault", "update"});
  return value.is_sequence(Form::list) &&
         in({"append", "reverse", "insert", "sort", "extend", "remove", "pop", "clear"});
}

Value no_attribute(const Value& value, std::string_view name) {
  if (changes_data(value, name)) {
    auto message = fmt::format("{}.{} would change the data, which a template may not; build a new value with +",
                               value.type_name(), name);
    return Value::undefined(Missing{.owner = {}, .name = {}, .message = std::move(message)});
  }
  return Value::undefined(Missing{.owner = std::string(value.type_name()), .name = std::string(name), .message = {}});
}

/// A method, or an attribute of an object; never an item.
std::optional<Value> own_attribute(const Value& value, std::string_view name) {
  if (value.is(Kind::object)) return value.object().attribute(name);
  if (auto* method = find_method(value, name))
    return Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>(value, *method)));
  if (changes_data(value, name)) return no_attribute(value, name);
  return std::nullopt;
}

Value no_item(const Value& value, const Value& key) {
  if (key.is_text()) return no_attribute(value, key.bytes());
  return Value::undefined(Missing{
      .owner = {}, .name = {}, .message = fmt::format("{} object has no element {}", value.type_name(), to_repr(key))});
}

std::optional<Value> indexed(const Value& value, const Value& key) {
  if (!key.is_whole()) return std::nullopt;
  int64_t at = key.integer();
  if (value.is_text() && value.as_text().ascii) {
    auto& bytes = value.bytes();
    if (at < 0) at += static_cast<int64_t>(bytes.size());
    if (at < 0 || at >= static_cast<int64_t>(bytes.size())) return std::nullopt;
    return Value(std::string(1, bytes[static_cast<size_t>(at)]), value.safe());
  }
  if (value.is_text()) {
    auto points = code_points(value.bytes());
    if (at < 0) at += static_cast<int64_t>(points.size());
    if (at < 0 || at >= static_cast<int64_t>(points.size())) return std::nullopt;
    return Value(std::string(points[static_cast<size_t>(at)]), value.safe());
  }
  if (!value.is(Kind::sequence) || value.as_sequence().form > Form::range) return std::nullopt;
  auto& items = value.as_sequence().items;
  if (at < 0) at += static_cast<int64_t>(items.size());
  if (at < 0 || at >= static_cast<int64_t>(items.size())) return std::nullopt;
  return items[static_cast<size_t>(at)];
}
}  // namespace

Value BoundMethod::call(Interpreter& interpreter, Arguments& arguments) {
  if (!method_.run)
    throw Fault{fmt::format("the method {} of {} is not supported here", method_.name, self_.type_name())};
  return interpreter.run(method_, self_, arguments);
}

Value Interpreter::attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) throw Fault{value.why_undefined()};
  if (auto own = own_attribute(value, name)) return *own;
  if (value.is_dict())
    if (auto* found = value.as_dict().find(name)) return *found;
  return no_attribute(value, name);
}

Value Interpreter::item(const Value& value, const Value& key) {
  if (value.is_undefined()) throw Fault{value.why_undefined()};
  if (value.is_dict()) {
    bool hashable = !key.is_dict() && !key.is_sequence(Form::list);
    if (auto* found = hashable ? value.as_dict().find(key) : nullptr) return *found;
  } else if (auto found = indexed(value, key)) {
    return *found;
  }
  if (key.is_text())
    if (auto own = own_attribute(value, key.bytes())) return *own;
  return no_item(value, key);
}

Value Interpreter::run(const Builtin& builtin, const Value& subject, Arguments& arguments) {
  spend_for(subject);
  for (auto& argument : arguments.positional) spend_for(argument);
  return builtin.run(*this, subject, arguments);
}

Value Interpreter::variable(int name) const {
  for (auto* scope = scope_; scope; spend(scope->variables.size() / 8), scope = scope->outer)
    for (auto& [other, value] : scope->variables)
      if (other == name) return value;
  auto& global = globals_[static_cast<size_t>(name)];
  return global.is(Kind::absent) ? Value::undefined(tree_.names[static_cast<size_t>(name)]) : global;
}

Value Interpreter::evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::constant) return expr.value;
  if (expr.kind == ExprKind::name) return variable(expr.name);
  DepthGuard depth(*this);
  spend(1);
  return evaluate_here(expr);
}

Value Interpreter::evaluate_here(const Expr& expr) {
  auto part = [&](size_t i) { return evaluate(*expr.parts[i]); };
  auto parts = [&] {
    std::vector<Value> values;
    values.reserve(expr.parts.size());
    for (auto& each : expr.parts) values.push_back(evaluate(*each));
    return values;
  };
  switch (expr.kind) {
    case ExprKind::list:
      return Value::sequence(parts());
    case ExprKind::tuple:
      return Value::sequence(parts(), Form::tuple);
    case ExprKind::dict:
      return dict_of(expr);
    case ExprKind::attribute: {
      auto value = part(0);
      here_ = expr.offset;
      return attribute(value, expr.text);
    }
    case ExprKind::item:
      return item_of(expr);
    case ExprKind::call:
      return call_of(expr);
    case ExprKind::filter:
    case ExprKind::test:
      return run_builtin(expr, part(0));
    case ExprKind::logical_not:
      return !part(0).truth();
    case ExprKind::logical_and: {
      auto left = part(0);
      return left.truth() ? part(1) : left;
    }
    case ExprKind::logical_or: {
      auto left = part(0);
      return left.truth() ? left : part(1);
    }
    case ExprKind::condition:
      if (part(1).truth()) return part(0);
      if (expr.parts[2]) return part(2);
      return Value::undefined(
          Missing{.owner = {}, .name = {}, .message = "the inline if evaluated to false and has no else"});
    case ExprKind::compare:
      return compare_of(expr);
    case ExprKind::concatenate:
      return concatenation(expr);
    case ExprKind::negative:
    case ExprKind::positive: {
      auto value = part(0);
      here_ = expr.offset;
      return expr.kind == ExprKind::negative ? negative(value) : positive(value);
    }
    case ExprKind::binary: {
      auto left = part(0);
      auto right = part(1);
      here_ = expr.offset;
      return binary(expr.op, left, right);
    }
    default:
      here_ = expr.offset;
      throw Fault{"a slice may not stand in a tuple of indices"};
  }
}

Value Interpreter::item_of(const Expr& expr) {
  auto value = evaluate(*expr.parts[0]);
  auto& key = *expr.parts[1];
  if (key.kind != ExprKind::slice) {
    auto index = evaluate(key);
    here_ = expr.offset;
    return item(value, index);
  }
  auto bound = [&](size_t i) { return key.parts[i] ? evaluate(*key.parts[i]) : Value(); };
  auto first = bound(0), last = bound(1), step = bound(2);
  here_ = expr.offset;
  return slice(value, first, last, step);
}

Value Interpreter::dict_of(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    auto key = evaluate(*expr.parts[i]);
    auto value = evaluate(*expr.parts[i + 1]);
    here_ = expr.offset;
    dict.set(std::move(key), std::move(value));
  }
  return Value::dict(std::move(dict));
}

Value Interpreter::compare_of(const Expr& expr) {
  auto left = evaluate(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    auto right = evaluate(*expr.parts[i + 1]);
    here_ = expr.offset;
    if (!compare(expr.ops[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::concatenation(const Expr& expr) {
  std::string text;
  for (auto& part : expr.parts) {
    auto value = evaluate(*part);
    here_ = part->offset;
    append_text(text, value);
    check_size(text.size());
  }
  return text;
}

Arguments Interpreter::arguments_of(const CallArguments* written) {
  Arguments arguments;
  if (!written) return arguments;
  for (auto& expr : written->positional) arguments.positional.push_back(evaluate(*expr));
  for (auto& [name, expr] : written->named) arguments.named.emplace_back(name, evaluate(*expr));
  if (written->all_positional) {
    Items items(evaluate(*written->all_positional));
    constexpr size_t arguments_most = 10'000;
    if (items.size() > arguments_most) throw Fault{fmt::format("a call has more than {} arguments", arguments_most)};
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (written->all_named) {
    auto more = evaluate(*written->all_named);
    if (!more.is_dict()) throw Fault{fmt::format("argument after ** must be a mapping, not {}", more.type_name())};
    for (auto& [name, value] : more.as_dict().items) {
      if (!name.is_text()) throw Fault{"keywords must be strings"};
      for (auto& [other, first] : arguments.named)
        if (other == name.bytes()) throw Fault{fmt::format("the argument {} is given twice", other)};
      arguments.named.emplace_back(name.bytes(), value);
    }
  }
  return arguments;
}

Value Interpreter::run_builtin(const Expr& expr, const Value& subject) {
  auto arguments = arguments_of(expr.arguments.get());
  here_ = expr.offset;
  return run(*expr.builtin, subject, arguments);
}

Value Interpreter::call_of(const Expr& expr) {
  auto& callee = *expr.parts[0];
  if (callee.kind == ExprKind::attribute) {  // a method, without an object for it
    auto self = evaluate(*callee.parts[0]);
    here_ = callee.offset;
    auto* method = self.is(Kind::object) || self.is_undefined() ? nullptr : find_method(self, callee.text);
    if (!method || !method->run) {
      auto function = attribute(self, callee.text);
      if (function.is_undefined() && !changes_data(self, callee.text)) {
        auto near = nearest(callee.text, method_names(self));
        throw Fault{
            fmt::format("{}{}", function.why_undefined(), near ? fmt::format("; did you mean {}?", *near) : "")};
      }
      auto arguments = arguments_of(expr.arguments.get());
      here_ = callee.offset;
      return call(function, arguments);
    }
    auto arguments = arguments_of(expr.arguments.get());
    here_ = callee.offset;
    return run(*method, self, arguments);
  }
  auto function = evaluate(callee);
  if (function.is_undefined() && callee.kind == ExprKind::name) {
    here_ = callee.offset;
    auto near = nearest(tree_.names[static_cast<size_t>(callee.name)], function_names());
    throw Fault{fmt::format("{}{}", function.why_undefined(), near ? fmt::format("; did you mean {}?", *near) : "")};
  }
  auto arguments = arguments_of(expr.arguments.get());
  here_ = callee.offset;
  return call(function, arguments);
}

Value Interpreter::call(const Value& function, Arguments& arguments) {
  if (function.is_undefined()) throw Fault{function.why_undefined()};
  if (!function.is(Kind::object) || !function.object().callable())
    throw Fault{fmt::format("'{}' object is not callable", function.type_name())};
  return function.object().call(*this, arguments);
}

Value Interpreter::run_filter(std::string_view name, const Value& subject, Arguments& arguments) {
  auto* filter = find_filter(name);
  if (!filter || !filter->run) throw Fault{fmt::format("there is no filter {}{}", name, filter ? " here" : "")};
  auto copy = arguments;
  return run(*filter, subject, copy);
}

bool Interpreter::run_test(std::string_view name, const Value& subject, Arguments& arguments) {
  auto* test = find_test(name);
  if (!test || !test->run) throw Fault{fmt::format("there is no test {}{}", name, test ? " here" : "")};
  auto copy = arguments;
  return run(*test, subject, copy).truth();
}

}  // namespace runner::jinja
