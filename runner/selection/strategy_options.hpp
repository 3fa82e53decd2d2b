// Resolves `[strategy]` with the catalog: finds the entry of a name, and checks and completes its options.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "strategies/catalog.hpp"

namespace runner {

struct ResolvedStrategy {
  const Entry* entry = nullptr;  ///< null for "auto", which chooses among the strategies that have `options`
  nlohmann::json options =
      nlohmann::json::object();    ///< preset of an alias, and options of the recipe; without defaults
  std::vector<std::string> notes;  ///< for example about an alias that differs, or an option without effect
};

/// Options of every distributed strategy: `timeout`, `registry` and `process_group_backend`.
const std::vector<StrategyOption>& common_options();

/// Whether the strategy has the option, also as a common option.
bool takes(const Entry& entry, const std::string& option);

/// Appends the mistakes in [strategy] to `diagnostics`: unknown or unavailable name, unknown option or one of another strategy,
/// wrong type, value that is not allowed.
ResolvedStrategy resolve_strategy(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// The help that the reader needs to read a recipe as load_whole_recipe() does.
ReaderHelp reader_help();

/// load_recipe() that also reports mistakes in [strategy], in hooks, those of check_lengths(), and those that `further` finds.
/// `file` may end in ".lua": see runner/lua/key_places.hpp.
Recipe load_whole_recipe(const std::string& file, const std::vector<std::string>& overrides,
                         const RecipeCheck& further = {});
/// load_whole_recipe() with overrides of several commands.
Recipe load_whole_layered_recipe(const std::string& file, const OverrideLayers& overrides,
                                 const RecipeCheck& further = {});

/// A note for each option of [strategy] that has no effect in this job (StrategyOption::only_with). `given`: options of the recipe.
std::vector<std::string> idle_options(const nlohmann::json& given, const Entry& entry, const Job& job);

/// The note on a built-in reducer of the job's plan, such as powerSGD_hook, whose first steps only sum gradients, if train.max_steps ends
/// the run in these steps.
std::optional<std::string> note_on_late_reducer(const Recipe& recipe, const Entry& entry, const Job& job);

/// Where the recipe sets the key that a refusal begins with, or the option that it names first, or the strategy's name.
Origin refused_at(const Recipe& recipe, const std::string& why);

}  // namespace runner
