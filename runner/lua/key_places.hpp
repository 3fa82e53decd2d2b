// Finds where a Lua file defines the keys of the table that it returns.
//
// It reads the source text, because a table does not record where its fields were set. Exact results: keys with
// constant names in table constructors (`dim = 8`, `["dim"] = 8`) and assignments (`model.dim = 8`), in the returned
// table or in variables that are part of it by name. If a key is set twice, the last one in the file counts. Keys that
// functions, loops or computed names set get an approximate place: the last place in the file that sets a key of that
// name, otherwise that of the innermost enclosing table that is known, otherwise the line of the last `return`.
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
  /// `name` is the file name in the results.
  KeyPlaces(const std::string& text, const std::string& name);
  /// The place of a dotted key. "extends": the last call of `extend`.
  Origin find(const std::string& dotted) const;
  /// The same for names that contain dots: {"space", "optimizer.lr"}. Empty: the last `return`.
  Origin find_path(const std::vector<std::string>& path) const;
  Origin line(int number) const;

 private:
  struct Token {
    enum class Kind { name, text, other } kind;
    std::string value;
    int line, column;
  };
  /// Known facts about a table: where its fields are set, and the tables in them.
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
  std::map<std::string, const Token*> anywhere_;  ///< the last place that sets a key of this name
  TablePointer root_;
  const Token* return_ = nullptr;
  const Token* extend_ = nullptr;
};

}  // namespace runner::lua
