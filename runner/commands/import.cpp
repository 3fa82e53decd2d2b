// `runner import`: runs of other ledgers and programs, and configurations of other tools.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/base/files.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/import_records.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

/// Explains why this format, which users may expect, cannot be imported.
std::string refuse_checkpoint(const std::string& format) {
  if (format == "deepspeed-checkpoint")
    throw usage_error(
        "DeepSpeed's checkpoints are Python pickles, which only Python can read; write the weights from there as "
        "Hugging Face safetensors (save_pretrained) and start from that folder with model.init_from");
  return "";
}

/// The source that the user names, or that the file shows.
std::string source_of(const std::string& named, const std::string& path) {
  const auto known = import_sources();
  const bool is_source = std::ranges::find(known, named) != known.end();
  if (!path.empty()) {
    if (is_source) return named;
    const auto near = nearest(named, known);
    throw usage_error("import {}: there is no such source{}; it is {}", named,
                      near ? fmt::format(", did you mean {}?", *near) : "", join_or(known));
  }
  std::error_code error;
  if (!fs::exists(named, error))
    throw usage_error("{}", is_source ? fmt::format("import {} needs a file or folder", named)
                                      : fmt::format("there is no file {}", named));
  if (const auto kind = kind_of_source(named); !kind.empty()) return kind;
  throw usage_error("{}: it is not clear what this is; name the source: runner import SOURCE {} (SOURCE: {})", named,
                    shell_word(named), join_or(known));
}

ExitCode print_deepspeed(const std::string& file) {
  if (!fs::is_regular_file(file)) throw usage_error("there is no file {}", file);
  const RecipeCheck check = [](const Recipe& recipe, std::vector<Diagnostic>& found) {
    resolve_strategy(recipe, found);
  };
  std::printf("%s", deepspeed_as_recipe(parse_located_json(read_file(file), file), check).c_str());
  return ExitCode::done;
}

}  // namespace

Action setup_import(CLI::App& app) {
  auto source = std::make_shared<std::string>(), path = std::make_shared<std::string>();
  auto replace = std::make_shared<bool>(false), json = std::make_shared<bool>(false);
  app.add_option("source", *source, "What it is: " + join_or(import_sources()) + "; may be left out")
      ->required()
      ->check(refuse_checkpoint)
      ->type_name("[SOURCE]");
  app.add_option("path", *path, "The file or folder")->type_name("PATH");
  app.add_flag("--replace", *replace, "Where a run of a bundle differs from the one here, take the bundle's");
  add_json_option(app, *json);
  app.footer(
      "Runs are added to the ledger; importing them again changes nothing.\n\n"
      "  runner import runs.bundle           written by runner export --bundle\n"
      "  runner import mlflow.db             MLflow's SQLite store\n"
      "  runner import mlruns/               MLflow's folder store\n"
      "  runner import wandb/                offline runs of Weights & Biases\n"
      "  runner import lightning_logs/       TensorBoard's event files\n"
      "  runner import csv metrics.csv       a table of metrics\n"
      "  runner import deepspeed ds.json     prints the configuration as sections of a recipe");
  return [=] {
    const std::string kind = source_of(*source, *path);
    const std::string& file = path->empty() ? *source : *path;
    if (kind != "deepspeed") return import_records(kind, file, *replace, *json);
    if (*json) throw usage_error("--json is for runs; a configuration of DeepSpeed becomes TOML");
    return print_deepspeed(file);
  };
}

}  // namespace runner
