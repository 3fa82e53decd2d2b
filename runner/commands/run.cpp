// `runner run`: trains a recipe.
#include "runner/commands/run.hpp"

#include <memory>

#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

void add_launch_options(CLI::App& app, LaunchOptions& options) {
  add_overrides(app, options.overrides);
  add_json_option(app, options.json);
  app.add_flag("--accept-changed-data", options.accept_changed_data,
               "Continue from a checkpoint although the training data, their order or the tokenizer have changed");
  app.add_option(
      "--node-rank", options.node.node_rank,
      "Several nodes without a launcher: this node's number, from 0. In an elastic run, only node 0 needs it");
  app.add_option("--master-addr", options.node.master_addr, "Several nodes without a launcher: address of node 0");
  app.add_option("--master-port", options.node.master_port,
                 "Several nodes without a launcher: a free port on node 0; default 29500");
  app.footer(
      "The values of --set and --unset become part of the run: they hold when it is resumed, too.\n"
      "With --json, `metric_value` is the last value of `metric`: checkpoint.monitor (val_loss), or the loss in runs "
      "without validation. `tokens_per_s` counts all tokens that the model reads, supervised or not, without padding. "
      "Models of labels or numbers have `samples_per_s` instead. The first step of each attempt does not count.");
  // Hidden options with which a sweep starts its trials.
  app.add_option("--sweep", options.sweep)->group("");
  app.add_option("--trial", options.trial)->group("");
  app.add_option("--report-metric", options.report_metric)->group("");
}

namespace {

void report_to_sweep(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const char* kind = !known                                   ? "error"
                     : known->code() == ExitCode::usage       ? "usage"
                     : known->code() == ExitCode::environment ? "environment"
                                                              : "error";
  const nlohmann::json end = {{"status", "failed"}, {"failure", {{"kind", kind}, {"message", error.what()}}}};
  print_json(end);
}

/// The mistakes of a run that is resumed, with a hint about those in its data.
RecipeError with_hint(const RecipeError& error) {
  auto mistakes = error.diagnostics();
  for (auto& mistake : mistakes)
    if (mistake.code == "data")
      mistake.message +=
          "; a run keeps absolute paths: for files that have moved, give the new ones, as in --set "
          "'data.train=[\"data.txt\"]'";
  return RecipeError(std::move(mistakes));
}

}  // namespace

Action launch_action(std::shared_ptr<const LaunchOptions> options, Action launch) {
  return [options = std::move(options), launch = std::move(launch)] {
    ignore_closed_output();
    try {
      return launch();
    } catch (const RecipeError& error) {
      if (!options->sweep.empty())
        report_to_sweep(error);
      else if (options->json)
        print_mistakes(error.diagnostics());
      if (options->resume_run.empty()) throw;
      throw with_hint(error);
    } catch (const std::exception& error) {
      if (!options->sweep.empty()) report_to_sweep(error);
      throw;
    }
  };
}

Action setup_run(CLI::App& app) {
  auto options = std::make_shared<LaunchOptions>();
  add_recipe_option(app, options->recipe_file);
  app.add_option("--checkpoint", options->resume_checkpoint,
                 "Start from the weights, optimizer state and step of this checkpoint folder, from any run");
  add_launch_options(app, *options);
  return launch_action(options, [options] { return launch_run(*options); });
}

}  // namespace runner
