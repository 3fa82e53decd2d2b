// The output of Lua 5.4's compiler for a function: the lines that it can run, and the names that it asks of its
// parameters, also in branches that never ran.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace runner::lua {

enum class Op : uint32_t {
  move = 0,
  load_constant = 3,
  load_nil = 8,
  get_upvalue = 9,
  set_upvalue = 10,
  get_table_of_upvalue = 11,
  get_field = 14,
  set_table_of_upvalue = 15,
  set_table = 16,
  set_field = 18,
  new_table = 19,
  self = 20,
  jump = 56,
  call = 68,
  tail_call = 69,
  give_back = 70,  ///< OP_RETURN
  set_list = 78,
  closure = 79
};

/// An instruction, and its arguments as lopcodes.h names them.
struct Instruction {
  uint32_t code = 0;

  Op op() const { return static_cast<Op>(code & 0x7f); }
  int a() const { return static_cast<int>(code >> 7 & 0xff); }
  int b() const { return static_cast<int>(code >> 16 & 0xff); }
  int c() const { return static_cast<int>(code >> 24); }
  bool k() const {
    return (code >> 15 & 1) != 0;
  }  ///< whether C is a constant, for instructions with a register or a constant
  int bx() const { return static_cast<int>(code >> 15); }
  bool calls() const { return op() == Op::call || op() == Op::tail_call; }
  /// Whether it gives a register a value. Calls also change those behind it.
  bool writes(int place) const;
  /// Whether a register may have another value after it, or none: also those that calls, loops and lists use.
  bool spoils(int place) const;
};

struct Bytecode {
  struct Upvalue {
    bool of_register = false;  ///< a register of the enclosing function, otherwise an upvalue of it
    int index = 0;
  };
  std::string source;  ///< the name of its file, for messages
  int first_line = 0;  ///< 0: of a file
  int parameters = 0;
  bool variadic = false;
  std::vector<Instruction> instructions;
  std::vector<int> lines;              ///< of the instructions; empty without debug information
  std::vector<std::string> constants;  ///< "" for those that are not strings
  std::vector<Upvalue> upvalues;
  std::vector<Bytecode> inner;  ///< the functions in it

  /// "" if the constant is no string.
  const std::string& constant(int index) const;
  /// The line of an instruction; 0 without debug information.
  int line(size_t instruction) const { return instruction < lines.size() ? lines[instruction] : 0; }

  /// The lines with something to run, here and in the functions inside. Not those of an `end` that only returns.
  std::set<int> runnable_lines() const;
  /// Lines on which a condition decides whether a call on the same line happens: whether it did cannot be told from the lines that ran.
  std::set<int> undecided_lines() const;

  struct Member {
    std::string name;
    int line = 0;
    bool set = false;     ///< `parameter.name = value`
    std::string of = "";  ///< the member that it is asked of, in `parameter.of.name`; empty: of the parameter
  };
  /// The members that this function and those inside ask of its parameter of this number, from 0, by `parameter.name`
  /// and `parameter:name()`. Nothing if one of them assigns to the parameter.
  std::vector<Member> members_of(int parameter) const;

  struct Passed {
    int upvalue = 0, argument = 0;  ///< both from 0
  };
  /// Where this function calls a local function of its file, one of its upvalues, with the parameter as an argument.
  std::vector<Passed> passes(int parameter) const;

  struct LoggedName {
    std::string name;
    int line = 0;
    bool of_parameter = false;  ///< the object is a parameter that is never assigned: probably `ctx`
  };
  struct Logged {
    std::vector<LoggedName> names;  ///< the constant names in calls `object:log(name, ...)`
    bool complete = true;           ///< false: names are computed, `log` is called in another way, or code is loaded
    bool defines_log = false;       ///< a table of the file gets a field `log`, so the object may be another one
    int text_prompt_line = 0;       ///< of a call `parameter:generate{prompt = "TEXT"}`; 0: there is none
  };
  /// The calls of methods `log` and `generate` here and in the functions inside.
  Logged logged() const;
};

/// Reads what State::bytecode() returns: bytes that this process's Lua has just written.
Bytecode read_bytecode(std::string_view dump);

}  // namespace runner::lua
