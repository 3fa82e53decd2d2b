// `[strategy]` against the catalog: the entry a name means, and its options checked, typed and completed.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "strategies/catalog.hpp"

namespace runner {

struct ResolvedStrategy {
  const Entry* entry =
      nullptr;  ///< null when the recipe leaves the choice to us ("auto"), among those that take `options`
  nlohmann::json options =
      nlohmann::json::object();    ///< alias preset and the recipe's, not yet completed with defaults
  std::vector<std::string> notes;  ///< what is worth saying: an alias that differs, an option with nothing to do
};

/// Options every distributed strategy takes: `timeout` and `process_group_backend`.
const std::vector<OptionSpec>& common_options();

/// Whether the strategy has the option, or it is one of those that all take.
bool takes(const Entry& entry, const std::string& option);

/// Appends what is wrong with [strategy] to `diagnostics`: unknown name, not built yet, unknown option (also: an option
/// of another strategy), wrong type, value not allowed.
ResolvedStrategy resolve_strategy(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// load_recipe() with the mistakes of [strategy], of hooks, those of lengths.hpp and what `further` finds in the same
/// pass. `file` may end in ".lua": see runner/lua/recipe_file.hpp.
Recipe load_whole_recipe(const std::string& file, const std::vector<std::string>& overrides,
                         const RecipeCheck& further = {});

/// A note for each option of [strategy] that does nothing in this job (OptionSpec::only_with). `given`: the recipe's
/// own.
std::vector<std::string> idle_options(const nlohmann::json& given, const Entry& entry, const Job& job);

/// Defaults filled in for whatever is unset.
nlohmann::json complete_options(const Entry& entry, nlohmann::json options);

}  // namespace runner
