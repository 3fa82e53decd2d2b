// The options of the Lua files in [plugins].
#pragma once
#include "runner/lua/script_file.hpp"
#include "runner/plugins/given_options.hpp"

namespace runner::lua {

/// The complete options of a file in [plugins]: those of plugins.options that it declares, and defaults for the rest. The names of all its
/// options are added to `asked`. Mistakes go to `diagnostics`.
nlohmann::json part_options(const ScriptFile& file, const Recipe& recipe, AskedOptions& asked,
                            std::vector<Diagnostic>& diagnostics);

}  // namespace runner::lua
