// The variable `loop`.
#include <fmt/format.h>

#include "runner/chat/interpreter.hpp"

namespace runner::jinja {

Loop::Loop(Interpreter& interpreter, const Stmt& stmt, const Value& iterable, Scope* scope, int depth)
    : Object(iterable.depth() + 1),
      interpreter_(interpreter),
      stmt_(stmt),
      scope_(scope),
      level_(depth),
      items_(iterable) {
  if (iterable.depth() >= 500) throw Fault{"lists and dictionaries are nested more than 500 deep"};
}

/// The next item of the list that the filter accepts.
bool Loop::pull(Value& item) const {
  while (read_ < items_.size()) {
    item = items_.all()[read_++];
    auto* filter = stmt_.exprs[1].get();
    if (!filter) return true;
    if (!scope_) throw Fault{"the loop has ended"};
    spend(1);
    Interpreter::ScopeGuard guard(interpreter_, scope_);
    interpreter_.assign(stmt_.targets[0], item);
    if (interpreter_.evaluate(*filter).truth()) return true;
  }
  return false;
}

bool Loop::advance(Value& item) {
  if (!ahead_.empty()) {
    item = std::move(ahead_.front());
    ahead_.pop_front();
  } else if (!pull(item)) {
    return false;
  }
  previous_ = std::exchange(current_, item);
  peeked_.reset();
  ++index_;
  return true;
}

const std::optional<Value>& Loop::following() const {
  Value item;
  if (ahead_.empty() && pull(item)) ahead_.push_back(std::move(item));
  peeked_ = ahead_.empty() ? std::nullopt : std::optional(ahead_.front());
  return peeked_;
}

int64_t Loop::length() const {
  if (!stmt_.exprs[1]) return index_ + 1 + static_cast<int64_t>(ahead_.size() + items_.size() - read_);
  Value item;
  while (pull(item)) ahead_.push_back(item);
  return index_ + 1 + static_cast<int64_t>(ahead_.size());
}

std::optional<Value> Loop::attribute(std::string_view name) const {
  auto none = [](const char* what) { return Value::undefined(Missing{.owner = {}, .name = {}, .message = what}); };
  auto method = [&](Function::Body body) {
    return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::string(name), std::move(body))));
  };
  if (name == "index0") return index_;
  if (name == "index") return index_ + 1;
  if (name == "first") return index_ == 0;
  if (name == "last") return !following().has_value();
  if (name == "length") return length();
  if (name == "revindex") return length() - index_;
  if (name == "revindex0") return length() - index_ - 1;
  if (name == "depth") return level_;
  if (name == "depth0") return level_ - 1;
  if (name == "previtem") return previous_ ? *previous_ : none("there is no previous item");
  if (name == "nextitem") return following() ? *peeked_ : none("there is no next item");
  if (name == "cycle")
    return method([index = index_](Interpreter&, Arguments& arguments) {
      if (arguments.positional.empty()) throw Fault{"no items for cycling given"};
      return arguments.positional[static_cast<size_t>(index) % arguments.positional.size()];
    });
  if (name == "changed")
    return method([self = std::static_pointer_cast<const Loop>(shared_from_this())](Interpreter& interpreter,
                                                                                    Arguments& arguments) {
      if (!self->changed_) interpreter.asked_loops_.push_back(self);
      auto now = Value::sequence(arguments.positional, Form::tuple);
      const bool same = self->changed_ && equal(*self->changed_, now);
      self->changed_ = now;
      return Value(!same);
    });
  return std::nullopt;
}

Value Loop::call(Interpreter& interpreter, Arguments& arguments) {
  if (!stmt_.recursive) throw Fault{"The loop must have the 'recursive' marker to be called recursively."};
  if (!scope_) throw Fault{"the loop has ended"};
  Bound bound(arguments, "loop", {"iterable"}, 1);
  return interpreter.run_loop_again(stmt_, scope_, bound[0], level_ + 1);
}

}  // namespace runner::jinja
