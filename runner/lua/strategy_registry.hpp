// Names of strategies that a Lua file registers, with the verbs of the field's StrategyRegistry.
//
//   strategies.register("averaged", require "local_sgd", "Averages every 8 steps")
//   strategies.get(name)                  the table that was registered, or of a file "lua:..."; of a built-in its name
//   strategies.available_strategies()     every name, sorted
//   strategies.remove(name)               of what was registered
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runner/lua/script_file.hpp"

namespace runner::lua {

/// Outlives the files that it has run: they keep it.
class StrategyRegistry : public std::enable_shared_from_this<StrategyRegistry> {
 public:
  struct Entry {
    Reference table;
    std::string about;
  };
  /// For std::make_shared.
  StrategyRegistry(State& state, std::vector<std::string> built_in);

  /// Runs a file that sees the verbs as `strategies`. What goes wrong in it goes to `diagnostics`.
  bool run(const ScriptSource& source, std::vector<Diagnostic>& diagnostics);
  /// Null where there is none of that name.
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
