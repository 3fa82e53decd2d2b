// Values of a template while it is rendered, with Python's meaning of equality, order and truth.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace runner::jinja {

class Interpreter;
class Value;
struct Arguments;

/// The failure of an operation. The interpreter adds the place in the template and throws a TemplateError.
struct Fault {
  std::string message;
};

/// The message of raise_exception; becomes a RaisedByTemplate.
struct RaisedMessage {
  std::string message;
};

/// Bytes of a value that lives from now on, and its end. A Fault if the template that this thread renders has more than Limits allows.
void hold(size_t bytes);
void release(size_t bytes);
/// Counts steps of that template; reading or writing 64 bytes is one. A Fault above Limits.
void spend(size_t steps);
constexpr size_t bytes_per_step = 64;
/// The steps of an operation that reads a text, or each item of a list or dictionary.
void spend_for(const Value& value);

/// Bytes of the values of a thread. Only a thread that renders has limits.
struct Meter {
  int64_t held = 0, held_most = INT64_MAX, steps = 0, steps_most = INT64_MAX;
  static Meter& of_thread();
};

/// A Unicode string in UTF-8. `safe` marks the result of the filter `safe`: adding to it escapes HTML, as in jinja2.
struct Text {
  std::string bytes;
  bool ascii = true;
  bool safe = false;
};

/// The sequences of Python that templates meet. A generator can be read once; only lists, tuples and ranges have an index.
enum class Form : uint8_t { list, tuple, range, generator, keys, values, items };
struct Sequence {
  std::vector<Value> items;
  Form form = Form::list;
  int depth = 0;
  mutable size_t next = 0;  ///< of a generator: the items before this one have been read
};

/// Keys in insertion order. Dictionaries of templates are small, so a search compares the keys one by one.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 0;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
};

/// Why a value is undefined: "'x' is undefined", "'dict object' has no attribute 'x'".
struct Missing {
  std::string owner;  ///< type of the object without that attribute; empty: a variable
  std::string name;
  std::string message;  ///< replaces the usual message
};

/// Anything else: namespaces, loops, macros, functions, methods.
/// Always owned by a std::shared_ptr: functions of an object may outlive all other uses of it.
class Object : public std::enable_shared_from_this<Object> {
 public:
  explicit Object(int depth = 0);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual std::string_view type_name() const = 0;
  /// The attribute, or nothing.
  virtual std::optional<Value> attribute(std::string_view name) const;
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& interpreter, Arguments& arguments);

  const int depth;  ///< of the values inside
};

/// `large`: an integer of more than 64 bits, which can only be printed and compared for equality; it has the Text of its digits.
enum class Kind : uint8_t { absent, undefined, none, boolean, integer, large, real, text, sequence, dict, object };

class Value {
 public:
  Value() : kind_(Kind::none) {}
  Value(bool value) : kind_(Kind::boolean) { number_.integer = value; }
  Value(int64_t value) : kind_(Kind::integer) { number_.integer = value; }
  Value(int value) : Value(int64_t{value}) {}
  Value(double value) : kind_(Kind::real) { number_.real = value; }
  Value(std::string text, bool safe = false);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Object> object) : kind_(Kind::object), pointer_(std::move(object)) {}
  static Value absent();  ///< no value at all; only inside the interpreter
  static Value undefined(std::string name);
  static Value undefined(Missing why);
  static Value sequence(std::vector<Value> items, Form form = Form::list);
  static Value dict(Dict items);
  /// A None that prints as "", and that may be added to texts: the content of a message that only calls tools.
  static Value no_text();
  bool is_no_text() const { return kind_ == Kind::none && number_.integer == 1; }
  static Value large(std::string digits);
  /// A binary value has the digits of an integer of more than 64 bits (foreign_json.hpp).
  static Value from_json(const nlohmann::ordered_json& json);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_text() const { return kind_ == Kind::text; }
  bool is_dict() const { return kind_ == Kind::dict; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real; }
  bool is_whole() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool is_sequence(Form form) const { return kind_ == Kind::sequence && as_sequence().form == form; }

  bool boolean() const { return number_.integer != 0; }
  int64_t integer() const { return number_.integer; }
  double real() const { return kind_ == Kind::real ? number_.real : static_cast<double>(number_.integer); }
  const Text& as_text() const { return *static_cast<const Text*>(pointer_.get()); }
  const std::string& bytes() const { return as_text().bytes; }
  const Sequence& as_sequence() const { return *static_cast<const Sequence*>(pointer_.get()); }
  const Dict& as_dict() const { return *static_cast<const Dict*>(pointer_.get()); }
  Object& object() const { return *static_cast<Object*>(pointer_.get()); }
  const void* identity() const { return pointer_.get(); }
  bool safe() const { return kind_ == Kind::text && as_text().safe; }

  bool truth() const;
  /// How deep lists and dictionaries are nested in it. More than 500 levels are refused (a Fault), because printing, comparing and
  /// freeing values are recursive.
  int depth() const;
  /// Python's name of the type: "str", "int", "NoneType".
  std::string_view type_name() const;
  /// The reason why an undefined value is undefined.
  std::string why_undefined() const;

 private:
  Kind kind_;
  union {
    int64_t integer = 0;
    double real;
  } number_;
  std::shared_ptr<void> pointer_;
};

/// A namespace, which a template may assign to.
class Namespace final : public Object {
 public:
  Dict attributes;
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(std::string_view name) const override;
};

/// The items that iterating over a value gives; a generator is used up. Text gives its code points, a dictionary its keys.
class Items {
 public:
  explicit Items(const Value& value);
  ~Items() { release(own_.size() * sizeof(Value)); }
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;
  std::span<const Value> all() const { return own_.empty() ? view_ : std::span<const Value>(own_); }
  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  size_t size() const { return all().size(); }

 private:
  Value keep_;
  std::span<const Value> view_;
  std::vector<Value> own_;
};

bool is_iterable(const Value& value);
bool equal(const Value& a, const Value& b);
/// The hash of a value that can be a key: equal values have the same.
size_t hash_of(const Value& key);
/// a < b; a Fault if Python has no order for these types. `sign` is written in the message.
bool less(const Value& a, const Value& b, std::string_view sign = "<");
bool identical(const Value& a, const Value& b);
/// A Fault for lists and dictionaries, which cannot be keys.
void check_hashable(const Value& key);
/// The number of items; a Fault for values without a length.
int64_t length_of(const Value& value);

}  // namespace runner::jinja
