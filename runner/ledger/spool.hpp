// The record of a run in a file beside the run, while the ledger cannot be written. The file is a small ledger: its tables are the
// same, and run and attempts have the same row numbers, so that a process writes to it as it would to the ledger.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// RUN_DIR/ledger-spool.db
std::filesystem::path spool_in(const std::filesystem::path& run_folder);

/// Where the spool of a run may be, the best place first: in its folder; in memory (/dev/shm, a folder that only this user reads), if
/// the run's folder is on the disk that is full. There it survives the process, but not a restart of the machine.
/// `home`: the ledger's folder. RUNNER_SPOOL_FOLDER replaces /dev/shm in tests.
std::vector<std::filesystem::path> spool_places(const std::filesystem::path& home,
                                                const std::filesystem::path& run_folder);
/// The one that exists; empty: none.
std::filesystem::path find_spool(const std::filesystem::path& home, const std::filesystem::path& run_folder);

/// Whether the process that writes the spool is alive.
bool spool_in_use(const std::filesystem::path& file);

/// Whether a failure of the ledger is one that lasts, so that the record goes on in a spool: a full disk, a file that was deleted,
/// damaged or write-protected. Not a file that is locked.
bool lasts(const sqlite::Failure& failure);

/// The rows that a spool must have of a run, in memory: those of the run and its attempts. For a ledger that cannot be read at all later.
std::unique_ptr<sqlite::Database> seed_of(const std::filesystem::path& ledger, int64_t run);

/// Makes the spool of the run with this row number, with its rows as far as the ledger can still be read, or else with those of its
/// seed. Exists completely afterwards or not at all. Throws Error(environment).
void create_spool(sqlite::Database& ledger, int64_t run, sqlite::Database* seed, const std::filesystem::path& file);

/// Adds the record in a spool to the ledger, in one transaction, and removes the file. What users have edited in the ledger meanwhile
/// (name, tags, notes, group, archive, trash) stays. Returns false, and leaves both as they are, if another process has resumed the run
/// since, or if the row number of a run that the ledger does not have is taken and `same_numbers` is asked for. Throws
/// Error(environment) if the ledger still cannot be written.
/// `keep`: the file stays, for a ledger in memory.
bool merge_spool(sqlite::Database& ledger, const std::filesystem::path& file, bool same_numbers, bool keep = false);

/// The spools of runs in `home`, for a ledger that was lost with the rows of its runs.
void merge_all_spools(sqlite::Database& ledger, const std::filesystem::path& home);
/// Whether there are spools of runs in `home`, also of running ones.
bool has_spools(const std::filesystem::path& home);

}  // namespace runner
