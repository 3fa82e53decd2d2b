// The output of Lua 5.4's compiler for a function: the lines that it can run, and the names that it asks of its parameters, also in branches
// that never ran.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace runner::lua {

struct Bytecode {
  struct Upvalue {
    bool of_register = false;  ///< a register of the enclosing function, otherwise an upvalue of it
    int index = 0;
  };
  std::string source;  ///< the name of its file, for messages
  int parameters = 0;
  bool variadic = false;
  std::vector<uint32_t> instructions;
  std::vector<int> lines;              ///< of the instructions
  std::vector<std::string> constants;  ///< "" for those that are not strings
  std::vector<Upvalue> upvalues;
  std::vector<Bytecode> inner;  ///< the functions in it

  /// The lines with something to run, here and in the functions inside. Not those of an `end` that only returns.
  std::set<int> runnable_lines() const;
  /// Lines on which a condition decides whether a call on the same line happens: whether it did cannot be told from the lines that ran.
  std::set<int> undecided_lines() const;

  struct Member {
    std::string name;
    int line = 0;
    bool set = false;  ///< `parameter.name = value`
  };
  /// The members that this function and those inside ask of its parameter of this number, from 0, by `parameter.name` and `parameter:name()`. Nothing
  /// if one of them assigns to the parameter.
  std::vector<Member> members_of(int parameter) const;

  struct Passed {
    int upvalue = 0, argument = 0;  ///< both from 0
  };
  /// Where this function calls a local function of its file, one of its upvalues, with the parameter as an argument.
  std::vector<Passed> passes(int parameter) const;
};

/// Reads what State::bytecode() returns: bytes that this process's Lua has just written.
Bytecode read_bytecode(std::string_view dump);

}  // namespace runner::lua
