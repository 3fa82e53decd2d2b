// Strategies that a Lua file registers by name, with the functions of Lightning's StrategyRegistry.
//
//   strategies.register("averaged", require "local_sgd", "Averages every 8 steps")
//   strategies.get(name)                  the registered table, or that of a file "lua:..."; {name} of a built-in one
//   strategies.available_strategies()     all names, sorted
//   strategies.remove(name)               removes a registered strategy
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runner/lua/script_file.hpp"

namespace runner::lua {

/// Files that it has run share ownership of it.
class StrategyRegistry : public std::enable_shared_from_this<StrategyRegistry> {
 public:
  struct Entry {
    Reference table;
    std::string about;
  };
  /// Use std::make_shared.
  StrategyRegistry(State& state, std::vector<std::string> built_in);

  /// Runs a file in which `strategies` has the functions above. Mistakes go to `diagnostics`.
  bool run(const ScriptSource& source, std::vector<Diagnostic>& diagnostics);
  /// Null if there is none of that name.
  const Entry* find(const std::string& name) const;
  std::vector<std::string> registered() const;

 private:
  Value add(const Arguments& arguments);
  Value get(const Arguments& arguments);
  Value list() const;
  Value remove(const Arguments& arguments);
  std::vector<std::string> all() const;
  bool is_built_in(const std::string& name) const;
  std::string unknown(const char* verb, const std::string& name) const;

  State& state_;
  std::vector<std::string> built_in_;
  std::map<std::string, Entry> entries_;
};

}  // namespace runner::lua
