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
#include "runner/import/tool_importer.hpp"
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
  const auto suffix = fs::path(named).extension();
  if (suffix == ".json" || suffix == ".toml" || suffix == ".yaml" || suffix == ".yml")
    if (const auto tool = tool_of(read_configuration(named)); !tool.empty()) return tool;
  throw usage_error("{}: it is not clear what this is; name the source: runner import SOURCE {} (SOURCE: {})", named,
                    shell_word(named), join_or(known));
}

/// Prints the configuration as a recipe, or writes it to a new file.
ExitCode translate(const std::string& tool, const std::string& file, const std::string& output) {
  const auto configuration = read_configuration(file, /*is_json=*/tool == "deepspeed");
  const RecipeCheck check = [](const Recipe& recipe, std::vector<Diagnostic>& found) {
    resolve_strategy(recipe, found);
  };
  const auto recipe =
      tool == "deepspeed" ? deepspeed_as_recipe(configuration, check) : tool_as_recipe(tool, configuration);
  if (output.empty())
    std::fputs(recipe.c_str(), stdout);
  else if (std::error_code error; fs::exists(output, error))
    throw usage_error("{} exists already; name another file", output);
  else
    write_file_atomic(output, recipe);
  return ExitCode::done;
}

}  // namespace

Action setup_import(CLI::App& app) {
  auto source = std::make_shared<std::string>(), path = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  auto replace = std::make_shared<bool>(false), json = std::make_shared<bool>(false);
  app.add_option("source", *source, "What it is: " + join_or(import_sources()) + "; may be left out")
      ->required()
      ->check(refuse_checkpoint)
      ->type_name("[SOURCE]");
  app.add_option("path", *path, "The file or folder")->type_name("PATH");
  app.add_flag("--replace", *replace, "Where a run of a bundle differs from the one here, take the bundle's");
  app.add_option("-o,--output", *output, "Write the recipe of a configuration to this file")->type_name("FILE");
  add_json_option(app, *json);
  app.footer(
      "Runs are added to the ledger; importing them again changes nothing. A configuration of another tool is printed "
      "as a recipe; "
      "comments list what is not translated.\n\n"
      "  runner import runs.bundle           written by runner export --bundle\n"
      "  runner import mlflow.db             MLflow's SQLite store\n"
      "  runner import mlruns/               MLflow's folder store\n"
      "  runner import wandb/                offline runs of Weights & Biases\n"
      "  runner import lightning_logs/       TensorBoard's event files\n"
      "  runner import csv metrics.csv       a table of metrics\n"
      "  runner import training_args.json    TrainingArguments of Hugging Face\n"
      "  runner import config.yml            axolotl, LLaMA-Factory, Lightning's CLI\n"
      "  runner import train_config.toml     torchtitan\n"
      "  runner import deepspeed ds.json     DeepSpeed");
  return [=] {
    const std::string kind = source_of(*source, *path);
    const std::string& file = path->empty() ? *source : *path;
    const auto tools = configuration_tools();
    const bool configuration = kind == "deepspeed" || std::ranges::find(tools, kind) != tools.end();
    if (!configuration && !output->empty()) throw usage_error("--output is for configurations; runs go to the ledger");
    if (!configuration) return import_records(kind, file, *replace, *json);
    if (*json) throw usage_error("--json is for runs; a configuration becomes TOML");
    return translate(kind, file, *output);
  };
}

}  // namespace runner
