// What passes between C++ and Lua: plain data, objects of C++ that scripts hold by handle, tables and functions of Lua.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

struct lua_State;

namespace runner::lua {

class Object;
class Arguments;

/// A table, function or coroutine that lives in a State; keeps it alive. Empty after the State is gone: then calls are
/// our bug.
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

/// nil, plain data, an object, or a table or function of Lua. Tables come from Lua as references: see State::to_json().
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

/// What stands for an object in plain data; `path` is its place in there, a JSON pointer (RFC 6901). Throws
/// ScriptMistake, without the place, where it cannot be kept.
using KeepObject = std::function<nlohmann::json(const std::shared_ptr<Object>& object, const std::string& path)>;
/// Objects that plain data stands for: {"$object": NAME} is the one of that name.
using KeptObjects = std::map<std::string, std::shared_ptr<Object>>;

/// What scripts can do with objects of one kind: `object:method(...)`, `object.property`, operators by Lua's names
/// ("__add", "__unm", "__tostring" ...). Made once, outlives its objects and every State they are in.
class Class {
 public:
  explicit Class(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  /// Argument 0 of a method is the object; of an operator arguments 1 and 2 are what it stands between.
  void method(const std::string& name, Function body) { methods_[name] = std::move(body); }
  /// A method after whose body the script waits: State::resume() returns with what the body returned, and what the next
  /// one hands in is the method's result. An error anywhere else than in a function that State::resume() runs.
  void waiting_method(const std::string& name, Function body) {
    method(name, std::move(body));
    waiting_.insert(name);
  }
  void property(const std::string& name, std::function<Value(Object&)> read) { properties_[name] = std::move(read); }
  void operation(const std::string& name, Function body) { operations_[name] = std::move(body); }

  const std::map<std::string, Function>& methods() const { return methods_; }
  bool waits(const std::string& method) const { return waiting_.contains(method); }
  const std::map<std::string, std::function<Value(Object&)>>& properties() const { return properties_; }
  const std::map<std::string, Function>& operations() const { return operations_; }

 private:
  std::string name_;
  std::map<std::string, Function> methods_, operations_;
  std::map<std::string, std::function<Value(Object&)>> properties_;
  std::set<std::string> waiting_;
};

/// An object of C++ behind a handle. Its owner may invalidate it at any time; every use after that is an error in the
/// script that says `why`.
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
  const std::string& why() const { return why_; }
  /// T must be what the class is for. Throws ScriptMistake after invalidate().
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

/// The arguments of a registered function, read from Lua's stack when asked for. Each reader throws ScriptMistake:
/// "log: argument 2 must be a number, not nil". Valid during the call only.
class Arguments {
 public:
  Arguments(lua_State* lua, const std::string& function, int first, int count)
      : lua_(lua), function_(&function), first_(first), count_(count) {}

  int count() const { return count_; }
  bool has(int index) const;  ///< given, and not nil
  double number(int index) const;
  double number(int index, double otherwise) const { return has(index) ? number(index) : otherwise; }
  int64_t integer(int index) const;
  int64_t integer(int index, int64_t otherwise) const { return has(index) ? integer(index) : otherwise; }
  bool boolean(int index) const;
  bool boolean(int index, bool otherwise) const { return has(index) ? boolean(index) : otherwise; }
  std::string text(int index) const;
  std::string text(int index, const std::string& otherwise) const { return has(index) ? text(index) : otherwise; }
  /// A table as plain data; anything else that is plain with `data`.
  nlohmann::json table(int index) const;
  nlohmann::json data(int index) const;
  Reference function(int index) const;
  /// An object of a class, still valid.
  std::shared_ptr<Object> object(int index, const Class& kind) const;
  template <typename T>
  T& as(int index, const Class& kind) const {
    return object(index, kind)->as<T>();
  }
  Value value(int index) const;
  /// The object that a method was called on.
  std::shared_ptr<Object> self(const Class& kind) const { return object(0, kind); }

  void at_most(int count) const;  ///< throws when there are more
  [[noreturn]] void wrong(int index, const std::string& must_be) const;
  const std::string& function_name() const { return *function_; }

 private:
  int at(int index) const { return first_ + index - 1; }
  lua_State* lua_;
  const std::string* function_;
  int first_, count_;
};

/// A global that a file sees besides the libraries.
struct Global {
  std::string name;
  Value value = {};
  Function function = {};  ///< used when set
};

}  // namespace runner::lua
