// Calls the functions of a strategy in Lua without a training, to find names that do not exist. It needs no LibTorch and takes milliseconds.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runner/lua/strategy_file.hpp"

namespace runner::lua {

/// The classes of the objects of a dry run. Tests compare their members with those of a training (strategy_classes()).
std::vector<const Class*> dry_run_classes();

/// The operation in argument `index` of a collective that reduces: sum (the default), mean, product, min or max. Throws ScriptMistake for
/// another one, in a training as in a dry run.
std::string reduction_at(const Arguments& arguments, int index);

/// The objects that these functions get as their first arguments.
std::map<std::string, std::vector<const Class*>> strategy_arguments();

/// Calls setup, setup_module, reduce and after_update with objects that have the names of the real ones, and constants as values. Two ranks,
/// ten updates. Reports only mistakes that do not depend on values: a name that an object does not have, a global
/// variable that does not exist, and an operation that a collective does not have. Ends at the first error, also if that may come from the constants. `state`: of the file.
void check_strategy_calls(State& state, const StrategyFile& file, const nlohmann::json& options,
                          std::vector<Diagnostic>& diagnostics);

}  // namespace runner::lua
