// A bundle: one SQLite file with the records of chosen runs and files of their folders, to carry them to another ledger. It has the
// tables of a ledger, and:
//
//   bundled(id, digest, files)                 the runs, and the digests of each one's rows (run_digest()) and files (files_digest());
//                                              bundles of earlier versions have no column `files`
//   bundled_file(file, run, path, bytes, mode) files, relative to the run's folder; the mode is for earlier versions
//   bundled_part(file, part, hash, content)    their contents in parts, each with its XXH3-128
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// "RUNB", stored in the header of every bundle.
constexpr int64_t bundle_application_id = 0x52554e42;

/// Which files of a run's folder a bundle has. The files in the folder itself (plan.json, ...) are always there, except a record
/// beside the run (ledger-spool.db). If the recipe has secrets, resolved.toml is the ledger's text, with "***" for them, and recipe.toml
/// is left out. Links in checkpoints/ are followed. Logs are copied as they are.
enum class BundledFiles { settings, logs, checkpoints, all };

struct BundleSummary {
  int64_t runs = 0, files = 0, bytes = 0;    ///< `bytes`: of the files
  std::vector<std::string> withheld = {};    ///< runs whose recipe has secrets, which are left out
  std::vector<std::string> links_left = {};  ///< links outside of checkpoints/, which are left out
  int64_t log_files = 0;
  std::vector<std::string> newer_left =
      {};  ///< checkpoints of steps that the rows do not have: the run went on meanwhile
};

/// Writes the runs with these ids to `file`, which exists completely afterwards or not at all. The runs' rows are those of one moment;
/// a run that is running is recorded as lost, with its last activity as its end. Throws Error(environment).
BundleSummary write_bundle(const std::string& home, const std::vector<std::string>& runs,
                           const std::filesystem::path& file, BundledFiles files);

// Checks of what strangers may have written into a bundle, which is attached as `bundle`. `name`: of the file, for errors.

/// Throws Error(usage) if a name of the ledger's or the bundle's tables is no table: a view could answer differently each time it is
/// read.
void check_bundle_tables(sqlite::Database& database, const std::string& name);
/// Throws Error(usage) if a text is no JSON of the shape that later readers take it for.
void check_bundle_json(sqlite::Database& database, const std::string& name);

}  // namespace runner
