#include "runner/commands/import_records.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/import/tool_importer.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/merge.hpp"

namespace runner {

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

}  // namespace

std::vector<std::string> import_sources() {
  std::vector<std::string> names{"bundle"};
  for (const auto& source : foreign_sources()) names.push_back(source.name);
  names.emplace_back("deepspeed");
  for (auto& tool : configuration_tools()) names.push_back(std::move(tool));
  return names;
}

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

}  // namespace runner
