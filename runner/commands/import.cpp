// `runner import`: runs of other ledgers and programs, and configurations of other tools.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/import/tool_importer.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/merge.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

std::vector<std::string> import_sources() {
  std::vector<std::string> names{"bundle"};
  for (const auto& source : foreign_sources()) names.push_back(source.name);
  names.emplace_back("deepspeed");
  for (auto& tool : configuration_tools()) names.push_back(std::move(tool));
  return names;
}

namespace {

std::string counts_of(const std::vector<ForeignRun>& runs) {
  int64_t points = 0;
  std::set<std::string> metrics;
  for (const auto& run : runs) {
    points += std::ssize(run.points);
    for (const auto& point : run.points) metrics.insert(point.name);
  }
  return fmt::format("{} with {} of {}", counted(std::ssize(runs), "run"), counted(points, "point"),
                     counted(std::ssize(metrics), "metric"));
}

const std::map<MergedRun::Outcome, std::string> words_of_outcomes = {{MergedRun::Outcome::added, "added"},
                                                                     {MergedRun::Outcome::updated, "updated"},
                                                                     {MergedRun::Outcome::unchanged, "unchanged"},
                                                                     {MergedRun::Outcome::conflict, "conflict"}};

nlohmann::json as_json(const std::vector<MergedRun>& merged) {
  auto runs = nlohmann::json::array();
  for (const auto& run : merged)
    runs.push_back({{"id", run.id},
                    {"name", run.name},
                    {"outcome", words_of_outcomes.at(run.outcome)},
                    {"why", run.why.empty() ? nlohmann::json() : nlohmann::json(run.why)},
                    {"files", run.files}});
  return {{"schema", 1}, {"runs", runs}};
}

/// Prints the ids of the runs, or JSON, and tells what became of them.
ExitCode report(const std::vector<MergedRun>& merged, bool json) {
  std::map<MergedRun::Outcome, int64_t> count;
  int64_t files = 0, differing = 0;
  for (const auto& run : merged) {
    if (!json) std::puts(run.id.c_str());
    ++count[run.outcome];
    files += run.files;
    differing += run.differs ? 1 : 0;
    if (run.outcome == MergedRun::Outcome::conflict)
      log::warning("{} ({}) stays as it is here: {}", run.id, run.name, run.why);
  }
  std::vector<std::string> parts;
  const auto say = [&](MergedRun::Outcome outcome, const std::string& what) {
    if (count[outcome] > 0) parts.push_back(fmt::format("{} {}", count[outcome], what));
  };
  say(MergedRun::Outcome::added, "added");
  say(MergedRun::Outcome::updated, "updated");
  say(MergedRun::Outcome::unchanged, "already there");
  const std::string remedy = differing > 0 ? " (--replace takes the bundle's state of those that differ)" : "";
  say(MergedRun::Outcome::conflict, "with a conflict" + remedy);
  if (files > 0) parts.push_back(counted(files, "file") + " added to folders that were there");
  log::info("{}: {}", counted(std::ssize(merged), "run"), parts.empty() ? "nothing to do" : join(parts, ", "));
  if (json) print_json(as_json(merged));
  return count[MergedRun::Outcome::conflict] > 0 ? ExitCode::usage : ExitCode::done;
}

/// Adds runs to the ledger: from a bundle, or from what another program has recorded. `kind`: bundle, mlflow, wandb, tensorboard or csv.
/// `replace`: of a bundle, where there is a conflict. `json`: prints what became of each run as JSON instead of the ids.
ExitCode import_records(const std::string& kind, const std::string& path, bool replace, bool json) {
  if (kind == "bundle") return report(merge_bundle(ledger_home(), path, replace), json);
  if (replace) throw usage_error("--replace is for bundles");
  const auto& sources = foreign_sources();
  const auto source = std::ranges::find(sources, kind, &ForeignSource::name);
  RUNNER_CHECK(source != sources.end(), "{}", kind);
  auto found = read_foreign_runs(*source, path);
  for (const auto& note : found.notes) log::info("note: {}", note);
  log::info("read {}", counts_of(found.runs));
  return report(add_foreign_runs(ledger_home(), kind, path, std::move(found.runs)), json);
}

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
      tool == "deepspeed" ? deepspeed_as_recipe(configuration, check) : tool_as_recipe(tool, configuration, check);
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
