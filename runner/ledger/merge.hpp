// Merges the runs of a bundle into a ledger. Runs keep their ids. Merging the same bundle again changes nothing.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace runner {

struct MergedRun {
  enum class Outcome {
    added,    ///< this ledger did not have it
    updated,  ///< this ledger had the state from which the bundle's goes on, or an imported one and the bundle's is later
    unchanged,  ///< this ledger has the bundle's state, or a state that goes on from it
    conflict    ///< both have changed, or it is running here: this ledger's state stays
  };
  std::string id, name;
  Outcome outcome = Outcome::added;
  std::string why;       ///< of a conflict
  bool differs = false;  ///< of a conflict: both have changed, so `replace` takes the bundle's state
  int64_t files = 0;     ///< that were added to the folder of a run that was here
};

/// Merges all runs of the bundle, in one transaction: a kill leaves all of them or none. Files that a run's folder lacks are added,
/// also to a run that is `unchanged`. `replace`: the bundle's state is taken where there is a conflict, except of runs that are
/// running; edits made here stay in the audit trail. Throws Error(usage) if the file is no bundle or is damaged, and
/// Error(environment) if it has a newer schema.
std::vector<MergedRun> merge_bundle(const std::string& home, const std::filesystem::path& file, bool replace = false);

}  // namespace runner
