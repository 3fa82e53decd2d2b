// `runner run`.
#include "runner/commands/run.hpp"

#include <memory>

#include "runner/commands/command.hpp"

namespace runner {

Action setup_run(CLI::App& app) {
  auto options = std::make_shared<LaunchOptions>();
  auto node_rank = std::make_shared<int>(-1);
  app.add_option("recipe", options->recipe_file, "The recipe, a TOML file")->required();
  app.add_option("--set", options->overrides, "KEY=VALUE: override a value of the recipe, e.g. --set train.max_steps=10")->allow_extra_args(false);
  app.add_flag("--json", options->json, "Print the result as one JSON line on stdout");
  app.add_option("--node-rank", *node_rank, "Several nodes without a launcher: this node's number, from 0");
  app.add_option("--master-addr", options->master_addr, "Several nodes without a launcher: address of node 0");
  app.add_option("--master-port", options->master_port, "Several nodes without a launcher: a free port on node 0");
  return [options, node_rank] {
    if (*node_rank >= 0) options->node_rank = *node_rank;
    return launch_run(*options);
  };
}

}  // namespace runner
