#include "runner/commands/run_row.hpp"

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/config/config.hpp"
#include "runner/config/secret_texts.hpp"
#include "runner/devices/devices.hpp"
#include "runner/selection/script_strategy.hpp"

namespace runner {

namespace {

std::vector<std::string> command_line() {
  auto text = read_file("/proc/self/cmdline");
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return split(text, '\0');
}

}  // namespace

NewRun run_row(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options) {
  NewRun run;
  if (recipe.origins.contains("run.name")) run.name = recipe.run.name;  // otherwise the ledger chooses one
  run.tags = recipe.run.tags;
  run.notes = recipe.run.notes;
  run.group = recipe.run.group;
  run.run_dir_root = (fs::absolute(home) / "runs").string();
  Secrets secrets;
  run.recipe_source = recipe_without_secrets(read_file(options.recipe_file), secrets);
  run.resolved = recipe_without_secrets(print_recipe(plan.recipe), secrets);
  run.config = recipe_to_json(plan.recipe);
  run.origins = origins_to_json(plan.recipe);
  run.plan = plan.to_json();
  run.strategy = plan.entry->name;
  run.world_size = plan.job.world_size();
  run.argv = command_line();
  run.build_id = build_id();
  run.host = to_json(facts_for(plan.recipe));
  run.sweep = options.sweep;
  run.trial = options.trial;
  return run;
}

nlohmann::json predicted(const Plan& plan) {
  nlohmann::json values = nlohmann::json::object();
  if (memory_known(*plan.entry)) values["memory_bytes_per_rank"] = plan.memory_bytes();
  if (memory_known(*plan.entry) && plan.job.accelerator.own_memory) values["host_bytes_per_rank"] = plan.host_bytes();
  if (plan.pipeline) values["pipeline_wait_percent"] = 100 * plan.pipeline->bubble();
  if (plan.step_seconds) {
    values["step_seconds"] = *plan.step_seconds;
    values["step_seconds_error"] = plan.step_error;
  }
  if (plan.load && plan.where) values["step"] = {{"load", plan.load->to_json()}, {"where", plan.where->to_json()}};
  return values;
}

}  // namespace runner
