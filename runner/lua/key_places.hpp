// Where in a Lua file the keys of the table that it returns are written.
//
// Read off the source text, since a table does not know who filled it. Exact: keys with constant names in table
// constructors (`dim = 8`, `["dim"] = 8`) and assignments (`model.dim = 8`), in the returned table or in variables that
// it is made of by name; where one is written twice, the last in the file. A best guess: keys that functions, loops or
// computed names write. Then it is the last place in the file where any key of that name is written, else the innermost
// table around it whose place is known, else the line of the last `return`.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner::lua {

class KeyPlaces {
 public:
  /// `name` is the file's in the places.
  KeyPlaces(const std::string& text, const std::string& name);
  /// Of a dotted key. "extends": the last call of `extend`.
  Origin find(const std::string& dotted) const;
  /// The same where names may hold dots themselves: {"space", "optimizer.lr"}. Empty: the last `return`.
  Origin find_path(const std::vector<std::string>& path) const;
  Origin line(int number) const;

 private:
  struct Token {
    enum class Kind { name, text, other } kind;
    std::string value;
    int line, column;
  };
  /// What is known of a table: where its fields are written and what tables they hold.
  struct Table {
    std::map<std::string, const Token*> fields;
    std::map<std::string, std::shared_ptr<Table>> inner;
  };
  using TablePointer = std::shared_ptr<Table>;

  void tokenize(const std::string& text);
  size_t long_bracket(const std::string& text, size_t at) const;
  bool is(size_t at, const char* value) const;
  bool is_name(size_t at) const;
  void read_statements();
  size_t skip_value(size_t at) const;
  TablePointer read_value(size_t& at);
  TablePointer read_table(size_t& at);
  bool read_assignment(size_t& at);
  Origin place(const Token& token) const;

  std::string name_;
  std::vector<std::string> lines_;
  std::vector<Token> tokens_;
  std::map<std::string, TablePointer> variables_;
  std::map<std::string, const Token*> anywhere_;  ///< the last place where a key of this name is written
  TablePointer root_;
  const Token* return_ = nullptr;
  const Token* extend_ = nullptr;
};

}  // namespace runner::lua
