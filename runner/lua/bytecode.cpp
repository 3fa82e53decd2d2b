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
    int line = made.first_line = static_cast<int>(number());
    number();  // the last line
    made.parameters = byte();
    made.variadic = byte() != 0;
    skip(1);  // stack
    made.instructions.resize(number());
    const auto code = take(made.instructions.size() * sizeof(Instruction));
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

/// How many instructions OP_JMP leaves out; negative: it goes back.
int jump_length(Instruction code) { return static_cast<int>(code.code >> 7) - ((1 << 24) - 1); }

/// Whether the function, or one in it, gives the register (or, with `is_upvalue`, the upvalue) another value.
bool assigns(const Bytecode& function, int place, bool is_upvalue) {
  for (const auto code : function.instructions)
    if (is_upvalue ? code.op() == Op::set_upvalue && code.b() == place : code.writes(place)) return true;
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
  std::string member;                  // the one that the instruction before has read, and its register
  int holds_member = -1;
  for (size_t i = 0; i < function.instructions.size(); ++i) {
    const auto code = function.instructions[i];
    const bool method = code.op() == Op::self && code.k();
    const bool reads = (code.op() == reading && code.b() == place) || (method && code.b() == copy);
    const bool sets = code.op() == setting && code.a() == place;
    const bool of_member = (method || code.op() == Op::get_field) && code.b() == holds_member;
    const auto& name = function.constant(sets ? code.b() : code.c());
    if ((reads || sets || of_member) && !name.empty())
      found.push_back(
          {.name = name, .line = function.line(i), .set = sets, .of = reads || sets ? std::string() : member});
    holds_member = reads && !method ? code.a() : -1;
    member = name;
    if (is_upvalue) copy = code.op() == Op::get_upvalue && code.b() == place ? code.a() : -1;
  }
  for (const auto& inner : function.inner)
    for (size_t i = 0; i < inner.upvalues.size(); ++i)
      if (inner.upvalues[i].of_register != is_upvalue && inner.upvalues[i].index == place)
        find_members(inner, static_cast<int>(i), true, found);
}

/// Whether the first argument of the method that instruction `at` (OP_SELF) prepares is a constant string.
bool has_constant_argument(const Bytecode& function, size_t at) {
  const int method = function.instructions[at].a(), argument = method + 2;
  const auto& code = function.instructions;
  if (at + 1 == code.size() || code[at + 1].op() != Op::load_constant || code[at + 1].a() != argument) return false;
  for (size_t i = at + 2; i < code.size() && !(code[i].calls() && code[i].a() == method); ++i)
    if (code[i].writes(argument)) return false;
  return !function.constant(code[at + 1].bx()).empty();
}

/// Whether the table that is made for the method of instruction `at` (OP_SELF) gets `prompt`, a constant string.
bool has_text_prompt(const Bytecode& function, size_t at) {
  const int method = function.instructions[at].a(), argument = method + 2;
  for (size_t i = at + 1; i < function.instructions.size(); ++i) {
    const auto code = function.instructions[i];
    if (code.calls() && code.a() == method) return false;
    if (code.op() == Op::set_field && code.k() && code.a() == argument && function.constant(code.b()) == "prompt" &&
        !function.constant(code.c()).empty())
      return true;
  }
  return false;
}

/// Whether the function, not those in it, may log under names that its calls of `log` do not show: it loads code, or
/// has "log" as a value, with which a method can be called.
bool hides_names(const Bytecode& function) {
  static const std::set<std::string> loading = {"require", "load", "loadfile", "dofile"};
  for (const auto& constant : function.constants)
    if (loading.contains(constant)) return true;
  for (const auto code : function.instructions)
    if (code.op() == Op::load_constant && function.constant(code.bx()) == "log") return true;
  return false;
}

}  // namespace

bool Instruction::writes(int place) const {
  const int number = static_cast<int>(op());  // instructions whose argument A is the register that they write
  const bool first = number <= 9 || (number >= 11 && number <= 14) || (number >= 19 && number <= 45) ||
                     (number >= 49 && number <= 53) || number == 67 || op() == Op::closure;
  return first && a() <= place && place <= a() + (op() == Op::load_nil ? b() : op() == Op::self ? 1 : 0);
}

bool Instruction::spoils(int place) const {
  const int number = static_cast<int>(op());
  if (op() == Op::set_list) return place > a();
  const bool from_first = calls() || (number >= 73 && number <= 77) || number == 80;  // loops, OP_VARARG
  return writes(place) || (from_first && place >= a());
}

const std::string& Bytecode::constant(int index) const {
  static const std::string none;
  return static_cast<size_t>(index) < constants.size() ? constants[static_cast<size_t>(index)] : none;
}

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
    const int length = instructions[i].op() == Op::jump ? jump_length(instructions[i]) : 0;
    for (size_t at = i + 1; at <= i + static_cast<size_t>(std::max(0, length)) && at < instructions.size(); ++at)
      if (instructions[at].calls() && lines[at] == lines[i]) found.insert(lines[i]);
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
  for (const auto code : instructions) {
    const int a = code.a();
    const auto called = functions.find(a);
    if (code.calls() && called != functions.end())
      for (int argument = 0; argument + 1 < code.b(); ++argument)
        if (holders.contains(a + 1 + argument)) found.push_back({.upvalue = called->second, .argument = argument});
    functions.erase(a);
    holders.erase(a);
    if (code.op() == Op::get_upvalue) functions[a] = code.b();
    if (code.op() == Op::move && code.b() == parameter) holders.insert(a);
  }
  return found;
}

Bytecode::Logged Bytecode::logged() const {
  Logged found;
  found.complete = !hides_names(*this);
  const auto of_parameter = [&](Instruction code) { return code.b() < parameters && !assigns(*this, code.b(), false); };
  for (size_t i = 0; i < instructions.size(); ++i) {
    const auto code = instructions[i];
    const bool field = code.op() == Op::get_field || code.op() == Op::get_table_of_upvalue;
    const bool method = code.op() == Op::self && code.k();
    if (code.op() == Op::set_field && constant(code.b()) == "log") found.defines_log = true;
    if (method && constant(code.c()) == "generate" && of_parameter(code) && has_text_prompt(*this, i))
      found.text_prompt_line = line(i);
    if ((!field && !method) || constant(code.c()) != "log") continue;
    if (method && has_constant_argument(*this, i))
      found.names.push_back(
          {.name = constant(instructions[i + 1].bx()), .line = line(i), .of_parameter = of_parameter(code)});
    else if (method || i == 0 || instructions[i - 1].op() != Op::get_table_of_upvalue ||
             constant(instructions[i - 1].c()) != "math")
      found.complete = false;
  }
  for (const auto& function : inner) {
    const auto more = function.logged();
    found.names.insert(found.names.end(), more.names.begin(), more.names.end());
    found.complete = found.complete && more.complete;
    found.defines_log = found.defines_log || more.defines_log;
    if (more.text_prompt_line > 0) found.text_prompt_line = more.text_prompt_line;
  }
  return found;
}

Bytecode read_bytecode(std::string_view dump) { return Reader(dump).function(); }

}  // namespace runner::lua
