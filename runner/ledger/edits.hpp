// Edits of a run after it was recorded, and what a resume makes of them.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// The changes of a run; everything else stays.
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

/// The texts that a resumed run gets: its recipe's texts `again`, but an edit of the run's row stays, unless the recipe
/// has another value since then. Call it before the row's config is replaced.
RunTexts texts_after_edits(sqlite::Database& database, int64_t run, RunTexts again);

/// [{time, who, what, before, after}], oldest first; tags are lists.
nlohmann::json read_changes(sqlite::Database& database, int64_t run);

// The audit trail of edits to runs.

/// "user@host" of this process.
std::string this_user();

/// Adds a row to the audit trail, in the caller's transaction. `what`: the column of `run`; the values are as in the column, empty
/// for NULL.
void record_change(sqlite::Database& database, int64_t run, const std::string& what,
                   const std::optional<std::string>& before, const std::optional<std::string>& after);

}  // namespace runner
