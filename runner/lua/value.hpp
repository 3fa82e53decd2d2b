// Values between C++ and Lua: plain data, handles of C++ objects, and tables and functions of Lua.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

struct lua_State;

namespace runner::lua {

class Object;
class Arguments;

/// A table, function or coroutine in a State; keeps it alive. It must not be used after the State is destroyed.
class Reference {
 public:
  struct Slot;
  Reference() = default;
  explicit Reference(std::shared_ptr<Slot> slot) : slot_(std::move(slot)) {}
  explicit operator bool() const { return slot_ != nullptr; }
  bool is_function() const;
  bool is_table() const;
  bool is_coroutine() const;  ///< State::coroutine()
  const std::shared_ptr<Slot>& slot() const { return slot_; }

 private:
  std::shared_ptr<Slot> slot_;
};

/// nil, plain data, an object, or a table or function of Lua. Tables from Lua are references: see State::to_json().
struct Value {
  nlohmann::json plain = nullptr;
  std::shared_ptr<Object> object = nullptr;
  Reference reference = {};

  Value() = default;
  Value(nlohmann::json data) : plain(std::move(data)) {}
  Value(std::shared_ptr<Object> handle) : object(std::move(handle)) {}
  Value(Reference table_or_function) : reference(std::move(table_or_function)) {}

  bool is_nil() const { return plain.is_null() && !object && !reference; }
};

/// "nil", "a number", "a string", "a table", "a tensor" ...
std::string kind_of(const Value& value);

using Function = std::function<Value(const Arguments&)>;

/// Returns the JSON value that replaces an object in plain data. `path` is its position there, a JSON pointer (RFC
/// 6901). Throws ScriptMistake, without the path, if it cannot be stored.
using KeepObject = std::function<nlohmann::json(const std::shared_ptr<Object>& object, const std::string& path)>;
/// Strings of plain data: JSON text and the ledger hold UTF-8 only.
enum class Strings { utf8, any };
/// Objects for plain data: {"$object": NAME} is replaced by the object of that name.
using KeptObjects = std::map<std::string, std::shared_ptr<Object>>;

/// The methods (`object:method(...)`), properties (`object.property`) and operators (by Lua's names: "__add", "__unm",
/// "__tostring" ...) of a kind of objects. It outlives its objects and all States that contain them.
class Class {
 public:
  explicit Class(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  /// Argument 0 of a method is the object. Arguments 1 and 2 of an operator are its operands.
  void method(const std::string& name, Function body) { methods_[name] = std::move(body); }
  /// A method with at most `most` arguments beside the object. `body` returns a Value or nothing.
  template <typename Body>
  void method(const std::string& name, int most, Body body);
  /// A method that makes the script wait: State::resume() returns the result of `body`, and the value passed to the
  /// next resume() is the method's result. It is an error outside functions that State::resume() runs.
  template <typename... Body>
  void waiting_method(const std::string& name, Body&&... body) {
    method(name, std::forward<Body>(body)...);
    waiting_.insert(name);
  }
  void property(const std::string& name, std::function<Value(Object&)> read) { properties_[name] = std::move(read); }
  void operation(const std::string& name, Function body) { operations_[name] = std::move(body); }

  const std::map<std::string, Function>& methods() const { return methods_; }
  bool waits(const std::string& method) const { return waiting_.contains(method); }
  const std::map<std::string, std::function<Value(Object&)>>& properties() const { return properties_; }
  const std::map<std::string, Function>& operations() const { return operations_; }
  /// The names of methods and properties.
  std::vector<std::string> members() const;

 private:
  std::string name_;
  std::map<std::string, Function> methods_, operations_;
  std::map<std::string, std::function<Value(Object&)>> properties_;
  std::set<std::string> waiting_;
};

/// A C++ object behind a handle. Its owner may invalidate it at any time. Every later use is an error in the script
/// with the text `why`.
class Object {
 public:
  Object(const Class& kind, std::shared_ptr<void> payload) : kind_(&kind), payload_(std::move(payload)) {}
  template <typename T>
  static std::shared_ptr<Object> make(const Class& kind, T payload) {
    return std::make_shared<Object>(kind, std::make_shared<T>(std::move(payload)));
  }
  const Class& kind() const { return *kind_; }
  bool valid() const { return payload_ != nullptr; }
  void invalidate(const std::string& why) {
    payload_.reset();
    why_ = why;
  }
  /// T must be the class's type. Throws ScriptMistake after invalidate().
  template <typename T>
  T& as() const {
    require_valid();
    return *static_cast<T*>(payload_.get());
  }
  void require_valid() const;

 private:
  const Class* kind_;
  std::shared_ptr<void> payload_;
  std::string why_;
};

/// The arguments of a registered function, read from Lua's stack on demand. Each reader throws ScriptMistake, such as
/// "log: argument 2 must be a number, not nil". Valid only during the call.
class Arguments {
 public:
  Arguments(lua_State* lua, const std::string& function, int first, int count)
      : lua_(lua), function_(&function), first_(first), count_(count) {}

  int count() const { return count_; }
  bool has(int index) const;  ///< given and not nil
  double number(int index) const;
  double number(int index, double otherwise) const { return has(index) ? number(index) : otherwise; }
  int64_t integer(int index) const;
  int64_t integer(int index, int64_t otherwise) const { return has(index) ? integer(index) : otherwise; }
  std::string text(int index) const;
  std::string text(int index, const std::string& otherwise) const { return has(index) ? text(index) : otherwise; }
  /// A table as plain data.
  nlohmann::json table(int index, Strings strings = Strings::utf8) const;
  Reference function(int index) const;
  /// A valid object of class `kind`.
  std::shared_ptr<Object> object(int index, const Class& kind) const;
  template <typename T>
  T& as(int index, const Class& kind) const {
    return object(index, kind)->as<T>();
  }
  Value value(int index) const;
  /// The object that a method was called on.
  std::shared_ptr<Object> self(const Class& kind) const { return object(0, kind); }

  void at_most(int count) const;  ///< throws ScriptMistake if there are more
  [[noreturn]] void wrong(int index, const std::string& must_be) const;
  const std::string& function_name() const { return *function_; }

 private:
  int at(int index) const { return first_ + index - 1; }
  lua_State* lua_;
  const std::string* function_;
  int first_, count_;
};

template <typename Body>
void Class::method(const std::string& name, int most, Body body) {
  method(name, [most, body = std::move(body)](const Arguments& arguments) -> Value {
    arguments.at_most(most);
    if constexpr (!std::is_void_v<decltype(body(arguments))>)
      return body(arguments);
    else
      return body(arguments), Value();
  });
}

/// A global of a file, in addition to the libraries.
struct Global {
  std::string name;
  Value value = {};
  Function function = {};  ///< used instead of `value` if set
};

}  // namespace runner::lua
