// Folders beside those of runs, with hidden names: of runs that are being deleted, and of imports that are not complete.
#pragma once
#include <fmt/format.h>

#include <string>

#include "runner/base/files.hpp"

namespace runner {

/// The name of a run's folder while it is deleted: in the same folder, so that one rename is enough. ".ID.purged".
inline fs::path purged_folder(const fs::path& folder) {
  return folder.parent_path() / ("." + folder.filename().string() + ".purged");
}

/// Where process `pid` writes the files of a run that it imports: ".ID.PID.import".
inline fs::path import_folder(const fs::path& runs, const std::string& id, int pid) {
  return runs / fmt::format(".{}.{}.import", id, pid);
}

enum class HiddenFolder { none, purged, import };

inline HiddenFolder kind_of_hidden(const std::string& name) {
  if (!name.starts_with('.')) return HiddenFolder::none;
  return name.ends_with(".purged")   ? HiddenFolder::purged
         : name.ends_with(".import") ? HiddenFolder::import
                                     : HiddenFolder::none;
}

/// The id in the name of a hidden folder.
inline std::string id_in_hidden(const std::string& name) { return name.substr(1, name.find('.', 1) - 1); }

/// In the folder of a run that is being added. Whoever finds it in a folder without a run knows that an import was killed there.
constexpr const char* import_marker = ".importing";

}  // namespace runner
