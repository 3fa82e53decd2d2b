// The functions that every template has.
#include <fmt/format.h>

#include <array>
#include <ctime>

#include "runner/chat/builtins.hpp"
#include "runner/chat/interpreter.hpp"
#include "runner/chat/print.hpp"

namespace runner::jinja {
namespace {
Value function(std::string name, Function::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::move(name), std::move(body))));
}

/// At most 100,000 numbers, as in jinja2's sandbox.
Value range(Interpreter&, Arguments& arguments) {
  Bound bound(arguments, "range", {"start", "stop", "step"}, 1);
  bool only_stop = !bound.has(1);
  int64_t begin = only_stop ? 0 : integer_of(bound[0]), end = integer_of(bound[only_stop ? 0 : 1]);
  int64_t step = bound.has(2) ? integer_of(bound[2]) : 1;
  if (step == 0) throw Fault{"range() arg 3 must not be zero"};
  std::vector<Value> items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (items.size() >= 100'000) throw Fault{"Range too big. The sandbox blocks ranges larger than 100000 items."};
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::sequence(std::move(items), Form::range);
}

Dict dict_of(Arguments& arguments, std::string_view function) {
  if (arguments.positional.size() > 1)
    throw Fault{fmt::format("{} expected at most 1 argument, got {}", function, arguments.positional.size())};
  Dict dict;
  if (!arguments.positional.empty()) {
    auto& first = arguments.positional[0];
    if (first.is_undefined()) throw Fault{first.why_undefined()};
    if (first.is_dict()) {
      dict = first.as_dict();
    } else {
      for (auto& pair : Items(first)) {
        Items both(pair);
        if (both.size() != 2) throw Fault{fmt::format("{} needs pairs of a key and a value", function)};
        dict.set(both.all()[0], both.all()[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) dict.set(Value(name), value);
  return dict;
}

Value raise_exception(Interpreter&, Arguments& arguments) {
  Bound bound(arguments, "raise_exception", {"message"}, 1);
  throw RaisedMessage{to_text(bound[0])};
}

Value strftime_now(Interpreter& interpreter, Arguments& arguments) {
  Bound bound(arguments, "strftime_now", {"format"}, 1);
  auto format = bound.text(0);
  if (format.size() > 1000) throw Fault{"the format of a time is longer than 1000 bytes"};
  for (size_t at = 0; (at = format.find('%', at)) != format.npos; at += 2)
    if (format.compare(at, 2, "%f") == 0) format.replace(at, 2, "000000"), at += 4;
  if (format.empty()) return "";
  auto now = interpreter.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 4096> buffer;
  size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  return std::string(buffer.data(), length);
}

/// Items in turn: cycler.next(), .current, .reset().
class Cycler final : public Object {
 public:
  Cycler(std::vector<Value> items, int depth) : Object(depth), items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(std::string_view name) const override {
    auto self = std::const_pointer_cast<Cycler>(std::static_pointer_cast<const Cycler>(shared_from_this()));
    if (name == "current") return items_[at_];
    if (name == "next")
      return function("next", [self](Interpreter&, Arguments&) {
        return self->items_[std::exchange(self->at_, (self->at_ + 1) % self->items_.size())];
      });
    if (name == "reset") return function("reset", [self](Interpreter&, Arguments&) { return self->at_ = 0, Value(); });
    return std::nullopt;
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

Value cycler(Interpreter&, Arguments& arguments) {
  if (arguments.positional.empty()) throw Fault{"at least one item has to be provided"};
  int depth = Value::sequence(arguments.positional).depth();
  return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(arguments.positional, depth)));
}

/// Empty at the first call, the separator at the others.
Value joiner(Interpreter&, Arguments& arguments) {
  Bound bound(arguments, "joiner", {"sep"});
  auto separator = bound.value(0, ", ");
  auto used = std::make_shared<bool>(false);
  return function("joiner", [separator, used](Interpreter&, Arguments&) {
    return std::exchange(*used, true) ? separator : Value("");
  });
}

const std::array<std::pair<std::string_view, Value>, 7>& functions_by_name() {
  static const std::array<std::pair<std::string_view, Value>, 7> functions = {{
      {"range", function("range", range)},
      {"dict",
       function("dict", [](Interpreter&, Arguments& arguments) { return Value::dict(dict_of(arguments, "dict")); })},
      {"namespace", function("namespace",
                             [](Interpreter& interpreter, Arguments& arguments) {
                               return interpreter.new_namespace(dict_of(arguments, "namespace"));
                             })},
      {"raise_exception", function("raise_exception", raise_exception)},
      {"strftime_now", function("strftime_now", strftime_now)},
      {"cycler", function("cycler", cycler)},
      {"joiner", function("joiner", joiner)},
  }};
  return functions;
}
}  // namespace

Value global_function(std::string_view name) {
  for (auto& [other, value] : functions_by_name())
    if (other == name) return value;
  return Value::absent();
}

std::vector<std::string> function_names() {
  std::vector<std::string> names;
  for (auto& row : functions_by_name()) names.emplace_back(row.first);
  return names;
}

}  // namespace runner::jinja
