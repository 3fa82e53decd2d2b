#include "runner/launch/cluster_plugin.hpp"

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/launch/variables.hpp"
#include "runner/lua/cluster_file.hpp"
#include "runner/plugins/library.hpp"

namespace runner {

namespace {

constexpr const char* plugin_key = "plugins.cluster_environment";
constexpr int most_nodes = 100000;  ///< so that the number of ranks is an int

/// Makes the environment of a library.
ClusterPlugin open_library(const Recipe& recipe, AskedOptions& asked) {
  const auto& path = *recipe.plugins.cluster_environment;
  const auto& library = open_parts(path, plugin_key);
  if (!library.cluster_environment)
    throw usage_error("{}: {} has no cluster environment; RUNNER_PARTS(.cluster_environment = ...) defines it",
                      plugin_key, path);
  ClusterPlugin made{
      .file = path,
      .title = "the plug-in " + fs::path(path).filename().string(),
      .options = std::make_unique<plugin::Options>(plugin_options(recipe.plugins.options, "plugins.options")),
      .environment = nullptr};
  try {
    made.environment = library.cluster_environment(*made.options);
  } catch (const std::exception& error) {
    throw usage_error("{}: {} failed: {}", plugin_key, made.title, first_line(error.what()));
  }
  if (!made.environment)
    throw usage_error("{}: {} made no cluster environment: its function returned null", plugin_key, made.title);
  asked.add(made.options->asked());
  return made;
}

ClusterPlugin open_script(const Recipe& recipe, const Environment& variables, AskedOptions& asked) {
  auto file = std::make_unique<lua::ClusterFile>(recipe, variables, asked);
  const std::string title = "the plug-in " + file->name();
  return {
      .file = *recipe.plugins.cluster_environment, .title = title, .options = nullptr, .environment = std::move(file)};
}

/// Checks the fields of parts::Ranks. Errors have the file, the field, its value and what is allowed.
class RanksChecker {
 public:
  explicit RanksChecker(const std::string& file) : file_(file) {}

  /// `why`: what the bounds follow from; may be empty.
  void within(const char* field, int value, int low, int high, const std::string& why) const {
    if (value < low || value > high) refuse(field, std::to_string(value), fmt::format("from {} to {}", low, high), why);
  }
  void at_least(const char* field, int value, int low) const {
    if (value < low) refuse(field, std::to_string(value), fmt::format("at least {}", low), "");
  }
  void address(const parts::Ranks& ranks) const {
    const auto& text = ranks.main_address;
    if (text.find_first_of(" \t\r\n") != std::string::npos || first_invalid_utf8(text))
      refuse("main_address", quoted(text), "a host name or an IP address without spaces", "");
    if (text.empty() && ranks.num_nodes > 1)
      refuse("main_address", "\"\"", "the host of rank 0",
             fmt::format("the processes of {} nodes meet there", ranks.num_nodes));
  }
  void job(const std::string& id) const {
    if (first_invalid_utf8(id)) refuse("job_id", quoted(id), "UTF-8 text", "");
  }
  void launched(const parts::Ranks& ranks) const {
    const auto& each = *ranks.launched;
    at_least("launched.world_size", each.world_size, 1);
    within("launched.rank", each.rank, 0, each.world_size - 1,
           fmt::format("launched.world_size = {}", each.world_size));
    at_least("launched.local_size", each.local_size, 1);
    within("launched.local_rank", each.local_rank, 0, each.local_size - 1,
           fmt::format("launched.local_size = {}", each.local_size));
    if (each.world_size / each.local_size != ranks.num_nodes || each.world_size % each.local_size != 0)
      refuse(
          "launched.world_size", std::to_string(each.world_size),
          std::to_string(int64_t{ranks.num_nodes} * each.local_size),
          fmt::format("there are {} of {} each", counted(ranks.num_nodes, "node"), counted(each.local_size, "rank")));
    if (const int rank = ranks.node_rank * each.local_size + each.local_rank; rank != each.rank)
      refuse("launched.rank", std::to_string(each.rank), std::to_string(rank),
             "ranks are numbered node by node: node_rank * local_size + local_rank");
  }

 private:
  static std::string quoted(const std::string& text) { return fmt::format("\"{}\"", escape_invalid_utf8(text)); }
  [[noreturn]] void refuse(const char* field, const std::string& value, const std::string& allowed,
                           const std::string& why) const {
    throw usage_error("{}: ranks() returned `{}` = {}, which must be {}{}", file_, field, value, allowed,
                      why.empty() ? "" : fmt::format(": {}", why));
  }
  const std::string& file_;
};

void check_ranks(const parts::Ranks& ranks, const std::string& file) {
  const RanksChecker check(file);
  check.within("num_nodes", ranks.num_nodes, 1, most_nodes, "");
  check.within("node_rank", ranks.node_rank, 0, ranks.num_nodes - 1, fmt::format("num_nodes = {}", ranks.num_nodes));
  if (ranks.launched) check.launched(ranks);
  check.address(ranks);
  check.job(ranks.job_id);
  if (ranks.main_port != 0)
    check.within("main_port", ranks.main_port, 1, 65535, "without it, job_id decides, or it is 29500");
}

/// The meeting point of several processes. A single one chooses a port by itself.
void set_meeting_point(Placement& placement, const parts::Ranks& ranks, int processes) {
  if (processes == 1) return;
  if (!ranks.main_address.empty()) placement.master_addr = ranks.main_address;
  placement.master_port = ranks.main_port > 0    ? ranks.main_port
                          : ranks.job_id.empty() ? default_master_port
                                                 : derived_port("plugin/" + ranks.job_id);
}

parts::Ranks ranks_of(const ClusterPlugin& plugin) {
  try {
    return plugin.environment->ranks();
  } catch (const Error&) {
    throw;  // of a Lua file
  } catch (const std::exception& error) {
    throw environment_error("{}: {} failed: {}", plugin_key, plugin.title, first_line(error.what()));
  }
}

}  // namespace

ClusterPlugin open_cluster_plugin(const Recipe& recipe, const Environment& variables, AskedOptions& asked) {
  try {
    if (recipe.plugins.cluster_environment->ends_with(".lua")) return open_script(recipe, variables, asked);
    return open_library(recipe, asked);
  } catch (const RecipeError&) {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool about_options = text.starts_with("plugins.options");
    throw RecipeError({{.place = recipe.origin(about_options ? "plugins.options" : plugin_key),
                        .code = "plug-in",
                        .message = text,
                        .section = "plugins"}});
  }
}

Placement ask_cluster_plugin(const ClusterPlugin& plugin) {
  const parts::Ranks ranks = ranks_of(plugin);
  check_ranks(ranks, plugin.file);
  Placement placement{.cluster = plugin.title,
                      .plugin = true,
                      .launched = ranks.launched.has_value(),
                      .node_rank = ranks.node_rank,
                      .num_nodes = ranks.num_nodes,
                      .job_id = ranks.job_id};
  if (const auto& launched = ranks.launched) {
    placement.rank = launched->rank;
    placement.world_size = launched->world_size;
    placement.local_rank = launched->local_rank;
    placement.local_size = launched->local_size;
  }
  set_meeting_point(placement, ranks, ranks.launched ? ranks.launched->world_size : ranks.num_nodes);
  return placement;
}

Placement find_placement(const Recipe& recipe, const Environment& variables) {
  if (!recipe.plugins.cluster_environment) return find_placement(recipe.devices.cluster, variables);
  AskedOptions asked;  // the checks of a recipe compare them with plugins.options
  return ask_cluster_plugin(open_cluster_plugin(recipe, variables, asked));
}

}  // namespace runner
