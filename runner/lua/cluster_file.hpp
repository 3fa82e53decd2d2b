// A Lua file that says where the ranks of a job run (plugins.cluster_environment).
#pragma once
#include "runner/lua/script_file.hpp"
#include "runner/plugins/given_options.hpp"
#include "runner/plugins/parts.hpp"

namespace runner::lua {

/// Reads an environment variable.
using ReadVariable = std::function<std::optional<std::string>(const std::string&)>;

/// The recipe's file. Its function `ranks(env, options)` returns a table with the fields of parts::Ranks; `env(name)` is an environment
/// variable or nil. The limits in [hooks] apply.
class ClusterFile final : public parts::ClusterEnvironment {
 public:
  /// Throws RecipeError for mistakes in the file, also if it has no function `ranks`. The names of its options are added to `asked`.
  ClusterFile(const Recipe& recipe, ReadVariable variable, AskedOptions& asked);
  const std::string& name() const { return file_.name; }
  /// Throws LuaError if the function fails, and Error(usage) for a field that is missing, unknown or of the wrong type.
  parts::Ranks ranks() override;

 private:
  State state_;
  ReadVariable variable_;
  ScriptFile file_;
  nlohmann::json options_;
};

}  // namespace runner::lua
