// The names that objects of a strategy in Lua have, without LibTorch. Tests compare them with the classes of a training (strategy_classes()).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runner/lua/script_file.hpp"

namespace runner::lua {

/// The objects that these functions get as their first arguments.
const std::map<std::string, std::vector<ObjectNames>>& strategy_arguments();

}  // namespace runner::lua
