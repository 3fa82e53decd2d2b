// Runs, records and bundles for tests of imports.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/base/files.hpp"
#include "runner/ledger/bundle.hpp"
#include "runner/ledger/merge.hpp"
#include "support.hpp"

namespace runner {

using Outcome = MergedRun::Outcome;

inline std::string add_run(const LedgerFolder& folder, const std::string& name, int64_t points,
                           const std::string& parent = "") {
  Ledger ledger(folder.home(), Ledger::Mode::write);
  auto run = new_run(folder, name);
  run.parent = parent;
  run.parent_kind = "evaluated";
  const auto id = ledger.begin_run(run);
  ledger.begin_attempt(id, "start");
  for (int64_t step = 1; step <= points; ++step)
    ledger.metrics(id, {{"loss", step, 1.0 / static_cast<double>(step)}, {"nan", step, std::nan("")}});
  ledger.metrics(id, {{"val_loss", points, 0.25, /*at_end=*/true}});
  ledger.event(id, "note", {{"step", 1}, {"text", "one"}});
  ledger.event(id, "note", {{"step", 2}, {"text", "two"}});
  const fs::path run_dir = ledger.run_dir(id);
  ledger.artifact(id, "checkpoint", (run_dir / "checkpoints/step-000002").string(), {{"step", 2}});
  ledger.annotate(id, "predicted", {{"memory", 5}});
  write_file_atomic(run_dir / "recipe.toml", "[run]\n");
  for (const char* sub : {"logs", "checkpoints/step-000002", "checkpoints/.step-000004.1.tmp"})
    fs::create_directories(run_dir / sub);
  write_file_atomic(run_dir / "logs/rank-0.log", "a line\n");
  write_file_atomic(run_dir / "checkpoints/step-000002/manifest.json", std::string(20 << 20, '\0') + "end");
  write_file_atomic(run_dir / "checkpoints/.step-000004.1.tmp/rank", "half");
  ledger.annotate(id, "scripts", {{"a.lua", ledger.keep("a script")}});
  ledger.finish_run(id, "finished", 0, "");
  return id;
}

/// Everything that `show` and the points say, without what depends on the place.
inline nlohmann::json record_of(const LedgerFolder& folder, const std::string& id) {
  Ledger ledger(folder.home(), Ledger::Mode::read);
  auto record = ledger.show(id);
  record.erase("run_dir");
  for (auto& list : {"checkpoints", "artifacts"})
    for (auto& one : record[list]) one.erase("exists");
  record.erase("run_dir_exists");
  for (const auto& name : ledger.metric_names(id))
    for (const auto& [step, value] : ledger.points(id, name))
      record["points"][name].push_back({step, json_number(value)});
  return record;
}

/// Continues the run: an attempt with points and a checkpoint of its last step.
inline void train_on(const LedgerFolder& folder, const std::string& id, int64_t from, int64_t to) {
  Ledger ledger(folder.home(), Ledger::Mode::write);
  ledger.reopen_run(id, new_run(folder, "a"));
  ledger.begin_attempt(id, "resume", from);
  for (int64_t step = from + 1; step <= to; ++step) ledger.metrics(id, {{"loss", step, 0.1}});
  ledger.finish_run(id, "finished", 0, "");
  const fs::path checkpoint = fs::path(ledger.run_dir(id)) / fmt::format("checkpoints/step-{:06}", to);
  fs::create_directories(checkpoint);
  write_file_atomic(checkpoint / "manifest.json", "{}");
}

/// The checkpoints in the folder of a run.
inline std::vector<std::string> checkpoints_of(const LedgerFolder& folder, const std::string& id) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(folder.home()) / "runs" / id / "checkpoints", error), end;
       !error && entry != end; entry.increment(error))
    if (!entry->path().filename().string().starts_with('.')) names.push_back(entry->path().filename());
  std::ranges::sort(names);
  return names;
}

inline fs::path bundle_of(const LedgerFolder& folder, const std::vector<std::string>& ids,
                          const std::string& name = "a.bundle", BundledFiles files = BundledFiles::settings) {
  fs::remove(folder.path / name);
  write_bundle(folder.home(), ids, folder.path / name, files);
  return folder.path / name;
}

}  // namespace runner
