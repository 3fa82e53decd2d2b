// What recipes are put together from: layers of located values.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "runner/base/files.hpp"
#include "runner/config/located_json.hpp"

namespace runner {

/// A value with its place; what layers are made of. Null: the key is unset, whatever lies below.
struct Located {
  nlohmann::json value;
  Origin origin;
  fs::path folder;                              ///< relative paths in it start here
  std::shared_ptr<LocatedJson> tree = nullptr;  ///< of strategy.config, when it is a table
  bool from_configuration = false;              ///< DeepSpeed's
  std::shared_ptr<Located> beneath = nullptr;   ///< of a configuration's: what holds again when another one comes
  bool of_strategy = false;                     ///< an option of [strategy] means it, and it leaves with the options
  std::string note = "";                        ///< of another tool's name: what it means here
};

/// Dotted key -> value; sections are two levels deep, deeper tables are values.
using Layer = std::map<std::string, Located>;

}  // namespace runner
