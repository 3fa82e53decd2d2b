// The keys of [sweep] for help and schema: recipes do not have the section, files of sweeps have nothing else.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct SweepKey {
  enum class In { both, toml, lua };  ///< in which files: [sweep] of a TOML file, the table of one in Lua
  std::string name;
  std::string wanted;  ///< "an integer; default 0"
  std::string help;
  nlohmann::json schema;
  In in = In::both;
};

const std::vector<SweepKey>& sweep_keys();
/// Their names in a file of that kind.
std::vector<std::string> sweep_key_names(SweepKey::In kind);

}  // namespace runner
