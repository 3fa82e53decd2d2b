// Filters, tests, methods and functions of templates, in tables by name.
#pragma once
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runner/chat/value.hpp"

namespace runner::jinja {

struct Arguments {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

/// Works on the subject: the value before "|", "is" or ".".
using Operation = Value (*)(Interpreter&, const Value& subject, Arguments&);
/// `run` is null if jinja2 or Python has this name but this engine does not support it.
struct Builtin {
  std::string_view name;
  Operation run;
};

const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
/// The method of a value of a Python type; null if there is none.
const Builtin* find_method(const Value& value, std::string_view name);
std::vector<std::string> filter_names();
std::vector<std::string> test_names();
std::vector<std::string> method_names(const Value& value);
/// range, dict, namespace, cycler, joiner, raise_exception, strftime_now; absent if there is no such function.
Value global_function(std::string_view name);
std::vector<std::string> function_names();

/// Arguments by the names of the parameters, as Python matches them. A Fault for too many, unknown, double and missing ones.
class Bound {
 public:
  Bound(Arguments& arguments, std::string_view function, std::initializer_list<std::string_view> parameters,
        size_t required = 0);

  bool has(size_t i) const { return !values_[i].is(Kind::absent); }
  bool given(size_t i) const { return has(i) && !values_[i].is(Kind::none); }  ///< and not None
  const Value& operator[](size_t i) const { return values_[i]; }
  int64_t integer(size_t i, int64_t otherwise) const;
  bool truth(size_t i, bool otherwise) const { return has(i) ? values_[i].truth() : otherwise; }
  const std::string& text(size_t i) const;  ///< a Fault if it is no string
  Value value(size_t i, Value otherwise) const { return has(i) ? values_[i] : otherwise; }

 private:
  std::string function_;
  std::vector<Value> values_;
};

/// A function of a template that is written in C++.
class Function final : public Object {
 public:
  using Body = std::function<Value(Interpreter&, Arguments&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override { return body_(interpreter, arguments); }

 private:
  std::string name_;
  Body body_;
};

/// A method together with its object.
class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, const Builtin& method) : Object(self.depth()), self_(std::move(self)), method_(method) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override;

 private:
  Value self_;
  const Builtin& method_;
};

/// The item or attribute at a path such as "function.name" or "0.role", as the filters map, sort and join take it.
Value attribute_path(Interpreter& interpreter, const Value& item, const Value& path, const Value* otherwise = nullptr);
void check_path(const Value& path);      ///< a Fault if it is too long
int64_t integer_of(const Value& value);  ///< a Fault if it is no integer or boolean
std::span<const Builtin> text_methods();
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> value_filters();

}  // namespace runner::jinja
