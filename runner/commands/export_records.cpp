#include "runner/commands/export_records.hpp"

#include <cstdio>
#include <map>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/exchange/export_metrics.hpp"
#include "runner/ledger/bundle.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

namespace {

BundledFiles bundled_files(const std::string& word) {
  static const std::map<std::string, BundledFiles> words = {{"", BundledFiles::settings},
                                                            {"settings", BundledFiles::settings},
                                                            {"logs", BundledFiles::logs},
                                                            {"checkpoints", BundledFiles::checkpoints},
                                                            {"all", BundledFiles::all}};
  return words.at(word);
}

void check_output(const std::string& output, const std::string& what) {
  if (output.empty()) throw usage_error("{} needs -o FILE", what);
  std::error_code error;
  if (fs::exists(fs::symlink_status(output, error)))
    throw usage_error("{} exists: remove it, or name another file", output);
  const fs::path folder = fs::absolute(output).parent_path();
  if (!fs::is_directory(folder)) throw usage_error("there is no folder {}", folder.string());
}

ExitCode export_bundle(const RecordExport& record, const std::vector<std::string>& runs, const std::string& output,
                       bool json) {
  check_output(output, "--bundle");
  const auto written = write_bundle(ledger_home(), runs, output, bundled_files(record.files));
  log::info("{} with {} of their folders ({}); `runner import {}` adds them to another ledger",
            counted(written.runs, "run"), counted(written.files, "file"), format_bytes(written.bytes),
            shell_word(output));
  if (!written.withheld.empty())
    log::info(
        "note: the bundle does not have the secrets in the recipe of {}: recipe.toml is left out, and \"***\" "
        "stands for them in resolved.toml",
        join(written.withheld, ", "));
  if (!written.newer_left.empty())
    log::info("note: left out, because the run went on while the bundle was written: {}",
              join(written.newer_left, ", "));
  if (written.log_files > 0)
    log::info("note: {} copied as they are: if a program has printed a secret, it is in the bundle",
              written.log_files == 1 ? "1 file of logs is" : fmt::format("{} files of logs are", written.log_files));
  if (!written.links_left.empty())
    log::info("note: left out, because they are links: {}", join(written.links_left, ", "));
  print_output(output, json, {{"runs", runs}, {"files", written.files}, {"bytes", written.bytes}});
  return ExitCode::done;
}

ExitCode export_points(const RecordExport& record, const std::vector<std::string>& runs, const std::string& output,
                       bool json) {
  if (json && output.empty()) throw usage_error("--json says what was written, so it needs -o FILE");
  const MetricFormat format = metric_format(record.metrics);
  if (!format.is_text || !output.empty()) check_output(output, "--metrics " + record.metrics);
  const auto written = export_metrics(Ledger(ledger_home(), Ledger::Mode::read), runs, record.metrics, output);
  log::info("{} of {} of {}", counted(written.points, "point"), counted(written.metrics, "metric"),
            counted(written.runs, "run"));
  if (record.metrics == "mlflow")
    log::info(
        "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {} shows them; `mlflow migrate-filestore` "
        "copies them to a database",
        shell_word(output));
  if (!output.empty()) print_output(output, json, {{"runs", runs}, {"points", written.points}});
  return ExitCode::done;
}

}  // namespace

void add_record_options(CLI::App& app, RecordExport& record) {
  auto* bundle = app.add_flag("--bundle", record.bundle,
                              "The whole record of the runs, as one file for `runner import` on another machine");
  app.add_option("--files", record.files,
                 "More files of the runs' folders for a bundle, which always has the settings: logs; checkpoints (and "
                 "artifacts); all")
      ->check(CLI::IsMember({"settings", "logs", "checkpoints", "all"}))
      ->needs(bundle);
  app.add_option("--metrics", record.metrics,
                 "The points of the runs instead of weights: csv, jsonl, parquet, tensorboard or mlflow")
      ->type_name("TEXT:{csv,jsonl,parquet,tensorboard,mlflow}")
      ->excludes(bundle);
}

ExitCode export_records(const RecordExport& record, const std::vector<std::string>& words, std::string output,
                        bool json) {
  while (output.size() > 1 && output.ends_with('/')) output.pop_back();
  const auto runs = chosen_runs(Ledger(ledger_home(), Ledger::Mode::read), words);
  return record.bundle ? export_bundle(record, runs, output, json) : export_points(record, runs, output, json);
}

}  // namespace runner
