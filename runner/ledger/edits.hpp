// Edits of a run after it was recorded, and what a resume makes of them.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// What to change; everything else stays.
struct RunEdit {
  std::optional<std::string> name = {}, notes = {}, group = {};
  std::string appended_notes = "";  ///< a paragraph after the notes
  std::vector<std::string> added_tags = {}, removed_tags = {};
  std::optional<bool> archived = {};
};

/// Throws Error(usage) for a tag that a run cannot have: an empty one, several lines, "none".
void check_tag(const std::string& tag);

/// Makes the changes that differ from the run's row, and records each. Returns their number. Call it in a transaction.
int edit_run(sqlite::Database& database, int64_t run, const RunEdit& edit);

/// The name, tags, notes and group of a run that is resumed.
struct RunTexts {
  std::string name, notes, group;
  std::vector<std::string> tags;
};

/// What the texts of a resumed run become: its recipe's texts `again`, but an edit of the run's row stays, unless the recipe
/// has another value since then. Call it before the row's config is replaced.
RunTexts texts_after_edits(sqlite::Database& database, int64_t run, RunTexts again);

/// [{time, who, what, before, after}], oldest first; tags are lists.
nlohmann::json read_changes(sqlite::Database& database, int64_t run);

}  // namespace runner
