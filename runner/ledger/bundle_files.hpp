// The files in a bundle: how they are stored, and how they get into the folders of runs; and what an import that was killed leaves there.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner {

/// The tables of files in a bundle, see bundle.hpp.
extern const char* const bundle_file_tables;

/// Adds a file to the attached database `bundle`, as `path` below the folder of `run`. Returns its bytes. Throws Error(environment).
int64_t add_bundled_file(sqlite::Database& database, const std::string& run, const fs::path& path,
                         const fs::path& source);
int64_t add_bundled_text(sqlite::Database& database, const std::string& run, const fs::path& path,
                         const std::string& text);

/// The digest of a run's files in the attached database `bundle`: of their names, sizes and the digests of their parts.
std::string files_digest(sqlite::Database& database, const std::string& run);

/// Extracts files of the attached database `bundle`, in three steps: into a hidden folder, before the ledger is locked; into place,
/// before the commit; and the rest after it. A process that is killed leaves what the next import of the bundle completes. The
/// destructor removes what is not in place.
class BundleFiles {
 public:
  /// `bundle`: the name of the file, for errors.
  BundleFiles(sqlite::Database& database, fs::path home, std::string bundle);
  ~BundleFiles();
  BundleFiles(const BundleFiles&) = delete;

  /// Extracts all files of a run that has no folder here yet.
  void extract_new(const std::string& run);
  /// Extracts files of a run with a folder: all of them, or those that are not there. A checkpoint is there or not as a whole.
  void extract(const std::string& run, const fs::path& folder, bool all);
  /// Gives the folder of a new run its name. Called before the commit.
  void place_new(const std::string& run);
  /// Marks the folder of a run: its files are about to be replaced by those of the state `digest` (mark_import()). Called
  /// before the commit. `replaces`: no file of the folder stays.
  void announce(const std::string& run, const fs::path& folder, const std::string& digest, bool replaces) const;
  /// Called right after the commit: new folders stay.
  void committed();
  /// Called later, for each run. `replaces`: what the folder has is moved aside, to a folder that no run has. Returns how many
  /// files it has put into a folder. Throws Error(environment); a later import then continues.
  int64_t finish(const std::string& run, const fs::path& folder, bool replaces);
  /// Removes all that was extracted.
  void discard();

 private:
  bool write_files(const std::string& run, const fs::path& into, const fs::path& folder, bool all);
  void write_parts(int64_t file, int64_t bytes, const fs::path& path);
  int64_t move_into(const fs::path& from, const fs::path& folder);
  [[noreturn]] void refuse_file(const fs::path& relative) const;

  sqlite::Database& database_;
  fs::path home_;
  std::string bundle_;
  std::map<std::string, fs::path> hidden_;  ///< run -> its hidden folder
  std::map<std::string, fs::path> placed_;  ///< new runs whose folder has its name; removed if the commit fails
  std::vector<fs::path> given_up_;          ///< of imports that were killed; removed at the end
};

// Imports that were killed between the commit of a run's rows and the move of its files. The run's folder then has a marker with the digest
// of the state that the rows are of, and the folder's files are those of an earlier state.

struct InterruptedImport {
  std::string digest;     ///< of the imported state, as in the table `imported`
  bool replaces = false;  ///< the state does not go on from the one before, so no file of that one stays
  std::string source;     ///< the bundle
};

/// Writes the marker. Throws Error(environment).
void mark_import(const fs::path& folder, const std::string& digest, bool replaces);

/// The interrupted import of run `id`; nothing if there was none, or if it was killed before its commit.
std::optional<InterruptedImport> interrupted_import(sqlite::Database& database, const std::string& id,
                                                    const fs::path& folder);

/// Throws Error(environment) if the files in the run's folder are not those of its record, and says how to complete them.
void refuse_interrupted_import(sqlite::Database& database, const std::string& id, const fs::path& folder);
/// Checks the files in the run's folder against its record in the ledger in `home`.
void refuse_interrupted_import(const std::string& home, const std::string& id, const fs::path& folder);

}  // namespace runner
