// The cluster environment of a user: a library or a Lua file (plugins.cluster_environment) says which ranks this process supervises.
#pragma once
#include <memory>

#include "runner/config/recipe.hpp"
#include "runner/launch/cluster.hpp"
#include "runner/plugins/given_options.hpp"
#include "runner/plugins/parts.hpp"

namespace runner {

/// A loaded plug-in.
struct ClusterPlugin {
  std::string file;
  std::string title;                         ///< its name in messages: "the plug-in librack.so"
  std::unique_ptr<plugin::Options> options;  ///< of a library; the environment may refer to them
  std::unique_ptr<parts::ClusterEnvironment> environment;
};

/// Loads the plug-in of plugins.cluster_environment, which must be set, without asking for its ranks. Adds the options that it has to
/// `asked`. A Lua file reads `variables`; a library reads its process's. Throws RecipeError for what is wrong with the file.
ClusterPlugin open_cluster_plugin(const Recipe& recipe, const Environment& variables, AskedOptions& asked);

/// The placement that a plug-in gives. If it does not set `launched`, apply_node_options() adds the ranks of this node. Throws
/// LuaError or Error(environment) if the plug-in fails, and Error(usage) with the field, its value and what is allowed.
Placement ask_cluster_plugin(const ClusterPlugin& plugin);

/// The placement of plugins.cluster_environment, or that of devices.cluster. Throws what these throw.
Placement find_placement(const Recipe& recipe, const Environment& variables);

}  // namespace runner
