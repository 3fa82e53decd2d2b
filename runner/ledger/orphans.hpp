// Two questions about the ledger. Which runs do processes use, so that nothing is taken away from under them? Which rows and folders does
// no run refer to?
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

struct UnreferencedTexts {
  int64_t count = 0, bytes = 0;
};

/// The recipes, configs and plans in the ledger that no run refers to. Removes them unless `dry`.
UnreferencedTexts unreferenced_texts_of(const std::string& home, bool dry);

/// The folders in `home`/runs that no run of the ledger has, except those of a run that begins at this moment. With `hide`, they get
/// a hidden name first, in the same moment, so that the caller can delete them; the new names are returned.
std::vector<std::filesystem::path> orphaned_folders(const std::string& home, bool hide);

/// The checkpoints that a run, other than those in the trash, would start from when it is resumed.
std::vector<std::filesystem::path> foreign_starts(const std::string& home);

/// Why the run with this row number must stay as it is now: it is running, it is a trial of a running sweep, a running run started
/// from it or reads its model, or a setting of a running run names a path in its folder. Empty if nothing uses it. `home`: the
/// ledger's folder. A run whose supervisor is gone is not running, also where the ledger cannot be written to say so.
std::string live_use_of(sqlite::Database& database, const std::filesystem::path& home, int64_t run);

/// The present use (live_use_of()) of each of `runs` that something uses.
std::map<std::string, std::string> live_uses(const std::string& home, const std::vector<std::string>& runs);

/// Calls `remove` under the ledger's write lock, in which no run can begin or continue, unless something uses the
/// checkpoint `path` of `run` now. Running trainings wait for this lock, so `remove` may rename files, but not delete
/// or copy them. Returns what uses it; empty: it was removed.
std::string remove_unused_checkpoint(const std::string& home, const std::string& run, const std::filesystem::path& path,
                                     const std::function<void()>& remove);

}  // namespace runner
