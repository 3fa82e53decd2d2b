// The files that take space in the ledger's folder although nothing needs them, by class.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// Which checkpoints of a run stay. Without a value, the run's own rule counts ([checkpoint] of its recipe).
struct CheckpointRule {
  std::optional<int64_t> keep_last, keep_best, keep_every;
};

/// A checkpoint that the rule does not keep, or a folder that a killed process has left among the checkpoints.
struct SurplusCheckpoint {
  std::string run;
  fs::path path;
  int64_t bytes = 0;
  bool published = true;
};

/// A run whose checkpoints are not touched, and why: it is running, or a running run uses it.
struct SkippedRun {
  std::string run, why;
};

/// The surplus checkpoints of `runs`. Never the newest checkpoint that verifies, and never one that a running run, or a run that may
/// be resumed, starts from. Adds to `skipped`.
std::vector<SurplusCheckpoint> surplus_checkpoints_of(const std::string& home, const std::vector<std::string>& runs,
                                                      const CheckpointRule& rule, std::vector<SkippedRun>& skipped);
struct RemovedCheckpoint {
  bool removed = false;      ///< if not, and nothing uses it: another process has removed it
  std::string used_by = {};  ///< what uses it
};

/// Removes it unless something uses it now (remove_unused_checkpoint()). If the checkpoint is a link, only the link is removed, and a note
/// says where the files are.
RemovedCheckpoint remove_surplus(const std::string& home, const SurplusCheckpoint& checkpoint);

/// A class of other garbage.
struct Garbage {
  std::string what;  ///< "folders without a run"
  int64_t count = 0, bytes = 0;
  std::string asked_with;  ///< the option that removes it; empty: it is always removed
};

struct GarbageChoice {
  bool dry_run = false;
  bool orphans = false;  ///< folders in runs/ that no run of the ledger has
  bool cache = false;    ///< files that are made from data
  bool backups = false;  ///< copies of the ledger from before a migration
};

/// Removes what the choice names, and returns all classes that are not empty: temporary files of processes that have ended, folders
/// that killed purges and imports have left, texts that no run refers to, folders without a run, the cache, copies of the ledger, the
/// trash (which only `runner purge` empties).
std::vector<Garbage> collect_garbage(const std::string& home, const GarbageChoice& choice);

}  // namespace runner
