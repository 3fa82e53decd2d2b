// The keys of [sweep], for help and schema. Recipes do not have this section; sweep files have no other.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct SweepKey {
  enum class In { both, toml, lua };  ///< where the key is allowed: [sweep] of a TOML file, the table of a Lua file
  std::string name;
  std::string wanted;  ///< "an integer; default 0"
  std::string help;
  nlohmann::json schema;
  In in = In::both;
};

const std::vector<SweepKey>& sweep_keys();
/// The names that are allowed in a file of this kind.
std::vector<std::string> sweep_key_names(SweepKey::In kind);

}  // namespace runner
