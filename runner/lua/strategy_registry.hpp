// Strategies that a Lua file registers by name, with the functions of Lightning's StrategyRegistry. Built-in strategies are in the registry,
// too. What a file does to a name is for recipes that name this file.
//
//   strategies.register("averaged", require "local_sgd", "Averages every 8 steps")
//   strategies.override(name, table, about)   the same for a name that exists, also for that of a built-in strategy
//   strategies.get(name)                      the registered table, or that of a file "lua:..."; for a built-in one a new table that
//                                             extends it: {name, base, options = {}}
//   strategies.describe(name)                 {name, about, kind = "built-in" or "Lua", base, options = {their names}}
//   strategies.available_strategies()         all names, sorted
//   strategies.remove(name)                   recipes cannot use the name any more
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runner/lua/strategy_file.hpp"

namespace runner::lua {

/// Files that it has run share ownership of it.
class StrategyRegistry : public std::enable_shared_from_this<StrategyRegistry> {
 public:
  struct Entry {
    Reference table;
    std::string about;
  };
  /// Use std::make_shared.
  StrategyRegistry(State& state, std::vector<BuiltInStrategy> built_in);

  /// Runs a file in which `strategies` has the functions above. Mistakes go to `diagnostics`.
  bool run(const ScriptSource& source, std::vector<Diagnostic>& diagnostics);
  /// Null if there is none of that name.
  const Entry* find(const std::string& name) const;
  std::vector<std::string> registered() const;
  /// Names of built-in strategies, as the program spells them.
  std::vector<std::string> removed() const { return {removed_.begin(), removed_.end()}; }

 private:
  Value add(const Arguments& arguments);
  Value override_one(const Arguments& arguments);
  void put(const Arguments& arguments, const std::string& name);
  Value describe(const Arguments& arguments);
  Value get(const Arguments& arguments);
  Value list() const;
  Value remove(const Arguments& arguments);
  std::vector<std::string> all() const;
  /// Null if there is none, or if it was removed.
  const BuiltInStrategy* built_in(const std::string& name) const;
  std::string unknown(const char* verb, const std::string& name) const;

  State& state_;
  std::vector<BuiltInStrategy> built_in_;
  std::set<std::string> removed_;
  std::map<std::string, Entry> entries_;
};

}  // namespace runner::lua
