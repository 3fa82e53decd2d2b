// A merged layer -> Recipe: checks each value against the table of keys and sets its field.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/layer.hpp"

namespace runner {

/// Resolves relative paths, and expands patterns of data files. Wrong values go to `diagnostics`.
Recipe build_recipe(const Layer& layer, const std::string& file, std::vector<Diagnostic>& diagnostics);

/// The data.target_type that a loss of train.loss needs.
std::string target_of_loss(const std::string& loss);
/// The default loss for a data.target_type.
std::string loss_of_target(const std::string& target_type);

/// Reports required keys that `layer` lacks. `removed`: keys that `unset` removed, and its place.
void find_missing_keys(const Layer& layer, const std::string& file, const std::map<std::string, Origin>& removed,
                       std::vector<Diagnostic>& diagnostics);

}  // namespace runner
