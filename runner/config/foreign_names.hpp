// Names that other tools use for keys: the recipe keys that they are translated to, or why they have no effect.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/foreign_name.hpp"

namespace runner {

/// By name.
using ForeignNames = std::map<std::string, ForeignName>;

/// Arguments of Lightning's Trainer, of its plugins and callbacks, and of PyTorch's data loader.
std::vector<ForeignName> lightning_names();
/// Of other tools for the axes of a mesh.
std::vector<ForeignName> parallel_names();

/// Of torchrun and Horovod for the nodes of an elastic run.
std::vector<ForeignName> elastic_names();

/// Looks up a name among those that mean keys of recipes and then in `more`: the names that strategies and importers know.
/// nullptr if it is in neither.
const ForeignName* find_foreign_name(const std::string& name, const ForeignNames& more = {});

/// The dotted key for a name of any section or of another tool: "lr", "learning_rate" -> "optimizer.lr".
std::optional<std::string> key_meant_by(const std::string& name, const ForeignNames& more = {});

}  // namespace runner
