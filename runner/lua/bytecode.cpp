#include "runner/lua/bytecode.hpp"

#include <algorithm>
#include <cstring>
#include <lua.hpp>
#include <map>

#include "runner/base/error.hpp"

namespace runner::lua {

namespace {

static_assert(LUA_VERSION_NUM == 504, "the layout is that of Lua 5.4 (ldump.c, lopcodes.h)");

/// Reads the sections of ldump.c in their order.
class Reader {
 public:
  explicit Reader(std::string_view dump) : rest_(dump) {
    constexpr size_t head = 4 + 1 + 1 + 6 + 3 + sizeof(lua_Integer) + sizeof(lua_Number), upvalue_count = 1;
    skip(head + upvalue_count);
  }

  Bytecode function() {
    Bytecode made;
    made.source = text();
    made.source.erase(0, 1);  // the '@' of a file; functions inside have no name of their own
    int line = static_cast<int>(number());
    number();  // the last line
    made.parameters = byte();
    made.variadic = byte() != 0;
    skip(1);  // stack
    made.instructions.resize(number());
    const auto code = take(made.instructions.size() * sizeof(uint32_t));
    std::memcpy(made.instructions.data(), code.data(), code.size());
    for (size_t left = number(); left > 0; --left) made.constants.push_back(constant());
    for (size_t left = number(); left > 0; --left) {
      const bool of_register = byte() != 0;
      made.upvalues.push_back({.of_register = of_register, .index = byte()});
      skip(1);  // kind
    }
    for (size_t left = number(); left > 0; --left) made.inner.push_back(function());
    const auto steps = take(number());
    std::vector<std::pair<size_t, int>> absolute;
    for (size_t left = number(); left > 0; --left) {
      const size_t at = number();
      absolute.emplace_back(at, static_cast<int>(number()));
    }
    auto next = absolute.begin();
    for (size_t i = 0; i < steps.size(); ++i) {
      line += static_cast<signed char>(steps[i]);
      if (next != absolute.end() && next->first == i) line = (next++)->second;
      made.lines.push_back(line);
    }
    for (size_t left = number(); left > 0; --left) {  // names of local variables
      text();
      number();
      number();
    }
    for (size_t left = number(); left > 0; --left) text();  // names of upvalues
    return made;
  }

 private:
  std::string_view take(size_t size) {
    RUNNER_CHECK(size <= rest_.size(), "bytecode of Lua ends too early");
    const auto taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  void skip(size_t size) { take(size); }
  unsigned char byte() { return static_cast<unsigned char>(take(1)[0]); }
  size_t number() {
    for (size_t value = 0;;) {
      const unsigned char part = byte();
      value = value << 7 | (part & 0x7f);
      if (part & 0x80) return value;
    }
  }
  std::string text() {
    const size_t size = number();
    return size == 0 ? "" : std::string(take(size - 1));
  }
  std::string constant() {
    constexpr int variant = 0x0f;
    const int type = byte();
    if ((type & variant) == LUA_TSTRING) return text();
    if ((type & variant) == LUA_TNUMBER) skip(sizeof(lua_Number));
    return "";
  }

  std::string_view rest_;
};

enum class Op : uint32_t {
  move = 0,
  get_upvalue = 9,
  get_table_of_upvalue = 11,
  get_field = 14,
  set_table_of_upvalue = 15,
  set_field = 18,
  self = 20,
  jump = 56,
  call = 68,
  tail_call = 69
};

Op operation(uint32_t code) { return static_cast<Op>(code & 0x7f); }
int argument_a(uint32_t code) { return static_cast<int>(code >> 7 & 0xff); }
int argument_b(uint32_t code) { return static_cast<int>(code >> 16 & 0xff); }
size_t argument_c(uint32_t code) { return code >> 24; }
/// Whether argument C of OP_SELF is a constant, and not a register.
bool has_constant(uint32_t code) { return (code >> 15 & 1) != 0; }
/// How many instructions OP_JMP leaves out; negative: it goes back.
int jump_length(uint32_t code) { return static_cast<int>(code >> 7) - ((1 << 24) - 1); }

/// Whether the function, or one in it, gives the register (or, with `is_upvalue`, the upvalue) another value.
bool assigns(const Bytecode& function, int place, bool is_upvalue) {
  constexpr int load_nil = 8, set_upvalue = 10;
  const auto writes_first = [](int op) {  // instructions whose argument A is the register that they write
    return op <= 9 || (op >= 11 && op <= 14) || (op >= 19 && op <= 45) || (op >= 49 && op <= 53) || op == 67 ||
           op == 79;
  };
  for (const uint32_t code : function.instructions) {
    const int op = static_cast<int>(operation(code)), a = argument_a(code), b = argument_b(code);
    const bool writes = is_upvalue ? op == set_upvalue && b == place
                                   : writes_first(op) && a <= place && place <= a + (op == load_nil ? b : 0);
    if (writes) return true;
  }
  for (const auto& inner : function.inner)
    for (size_t i = 0; i < inner.upvalues.size(); ++i)
      if (inner.upvalues[i].of_register != is_upvalue && inner.upvalues[i].index == place &&
          assigns(inner, static_cast<int>(i), true))
        return true;
  return false;
}

/// Appends the uses of a register, or, with `is_upvalue`, of an upvalue.
void find_members(const Bytecode& function, int place, bool is_upvalue, std::vector<Bytecode::Member>& found) {
  const Op reading = is_upvalue ? Op::get_table_of_upvalue : Op::get_field,
           setting = is_upvalue ? Op::set_table_of_upvalue : Op::set_field;
  int copy = is_upvalue ? -1 : place;  // the register that holds it, for a method of an upvalue
  for (size_t i = 0; i < function.instructions.size(); ++i) {
    const uint32_t code = function.instructions[i];
    const Op what = operation(code);
    const bool reads = (what == reading && argument_b(code) == place) ||
                       (what == Op::self && argument_b(code) == copy && has_constant(code));
    const bool sets = what == setting && argument_a(code) == place;
    const size_t name = reads ? argument_c(code) : static_cast<size_t>(argument_b(code));
    if ((reads || sets) && name < function.constants.size() && !function.constants[name].empty())
      found.push_back({.name = function.constants[name], .line = function.lines[i], .set = sets});
    if (is_upvalue) copy = what == Op::get_upvalue && argument_b(code) == place ? argument_a(code) : -1;
  }
  for (const auto& inner : function.inner)
    for (size_t i = 0; i < inner.upvalues.size(); ++i)
      if (inner.upvalues[i].of_register != is_upvalue && inner.upvalues[i].index == place)
        find_members(inner, static_cast<int>(i), true, found);
}

}  // namespace

std::set<int> Bytecode::runnable_lines() const {
  std::set<int> found;
  // The first instruction prepares variable arguments. The last one returns at the end.
  for (size_t i = variadic ? 1 : 0; i + 1 < lines.size(); ++i) found.insert(lines[i]);
  for (const auto& function : inner) found.merge(function.runnable_lines());
  return found;
}

std::set<int> Bytecode::undecided_lines() const {
  std::set<int> found;
  for (size_t i = 1; i < instructions.size(); ++i) {
    const int length = operation(instructions[i]) == Op::jump ? jump_length(instructions[i]) : 0;
    for (size_t at = i + 1; at <= i + static_cast<size_t>(std::max(0, length)) && at < instructions.size(); ++at)
      if ((operation(instructions[at]) == Op::call || operation(instructions[at]) == Op::tail_call) &&
          lines[at] == lines[i])
        found.insert(lines[i]);
  }
  for (const auto& function : inner) found.merge(function.undecided_lines());
  return found;
}

std::vector<Bytecode::Member> Bytecode::members_of(int parameter) const {
  std::vector<Member> found;
  if (parameter < parameters && !assigns(*this, parameter, false)) find_members(*this, parameter, false, found);
  return found;
}

std::vector<Bytecode::Passed> Bytecode::passes(int parameter) const {
  std::vector<Passed> found;
  std::map<int, int> functions;  // register -> upvalue that it holds
  std::set<int> holders;         // registers with the parameter
  if (parameter >= parameters || assigns(*this, parameter, false)) return found;
  for (const uint32_t code : instructions) {
    const int a = argument_a(code), b = argument_b(code);
    const auto called = functions.find(a);
    if ((operation(code) == Op::call || operation(code) == Op::tail_call) && called != functions.end())
      for (int argument = 0; argument + 1 < b; ++argument)
        if (holders.contains(a + 1 + argument)) found.push_back({.upvalue = called->second, .argument = argument});
    functions.erase(a);
    holders.erase(a);
    if (operation(code) == Op::get_upvalue) functions[a] = b;
    if (operation(code) == Op::move && b == parameter) holders.insert(a);
  }
  return found;
}

Bytecode read_bytecode(std::string_view dump) { return Reader(dump).function(); }

}  // namespace runner::lua
