// The trash: runs that are hidden, with their rows and folders, until they are restored or purged.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace runner {

/// Why an import leaves a run as it is that is in the trash.
std::string why_in_trash(const std::string& run);

struct TrashedRun {
  std::string id, name;
  double deleted = 0;  ///< Unix seconds
  std::string folder;  ///< below the ledger's home as it was given, or absolute; it may be missing
};

struct Leftovers {
  struct Kind {
    int64_t count = 0, bytes = 0;
  };
  Kind purged, imports;
};

/// Moves runs into the trash, out of it, and deletes them for good, over a connection of its own. Each change is one transaction
/// and is recorded in the audit trail. Throws Error(environment) with the file.
class Trash {
 public:
  /// `home`: as for Ledger. Runs whose supervisor is gone are marked as lost first.
  explicit Trash(const std::string& home);
  ~Trash();

  /// Why a run cannot be removed now: it is running, a run that is running started from it or reads from its folder, or its sweep
  /// is running. Empty if nothing stands in the way.
  std::string held_by(const std::string& run) const;
  /// Runs that started from this run or read its model, and are not in the trash.
  std::vector<std::string> children(const std::string& run) const;

  /// Moves runs into the trash: all of them or none. Throws Error(usage) that names each run that is held, and why.
  void remove(const std::vector<std::string>& runs);
  /// Brings runs back: all of them or none. Throws Error(usage) for a run that is not in the trash.
  void restore(const std::vector<std::string>& runs);
  /// Deletes rows and folder of a run in the trash and returns the bytes of its folder. A process that is killed leaves the run
  /// either in the trash, whole, or gone; leftovers of its folder are removed by remove_leftovers().
  int64_t purge(const std::string& run);
  /// Removes folders that killed processes have left: of purged runs, and of imports that were not continued for a day. With `dry`,
  /// only counts.
  Leftovers remove_leftovers(bool dry = false);

  std::vector<TrashedRun> runs() const;  ///< by the time of their removal
  /// The id of a run in the trash, for an id, a name (the last that was removed), or a unique prefix of an id or its
  /// end (run_id.hpp). Throws Error(usage) with the nearest names.
  std::string find(const std::string& text) const;
  bool has(const std::string& run) const;  ///< whether the run is in the trash
  /// Recipes, plans and patches that no run has any more. Call it after purge().
  void remove_unreferenced_texts();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
