#include "runner/ledger/edits.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/process_identity.hpp"

namespace runner {

using nlohmann::json;

namespace {

std::vector<std::string> tags_of(const std::string& text) { return json::parse(text).get<std::vector<std::string>>(); }

bool contains(const std::vector<std::string>& tags, const std::string& tag) {
  return std::ranges::find(tags, tag) != tags.end();
}

/// `tags` with `added` at the end, each once, and without `removed`.
std::vector<std::string> with_tags(std::vector<std::string> tags, const std::vector<std::string>& added,
                                   const std::vector<std::string>& removed) {
  for (const auto& tag : added)
    if (!contains(tags, tag)) tags.push_back(tag);
  std::erase_if(tags, [&](const auto& tag) { return contains(removed, tag); });
  return tags;
}

void check_utf8(const char* what, const std::string& text) {
  if (const auto at = first_invalid_utf8(text))
    throw usage_error("the {} must be UTF-8: byte {} is 0x{:02X}", what, *at + 1,
                      static_cast<unsigned char>(text[*at]));
}

/// A text of one line, which is not only spaces.
void check_line(const char* what, const std::string& text) {
  check_utf8(what, text);
  if (trim(text).empty()) throw usage_error("the {} cannot be empty", what);
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7F; }))
    throw usage_error("the {} cannot have line ends or other control characters", what);
}

/// A name must not look like something else that a command takes in its place.
void check_name(sqlite::Database& database, int64_t run, const std::string& name) {
  check_line("name of a run", name);
  if (name == "last") throw usage_error("a run cannot be named \"last\", which means the newest run");
  if (name[0] == '-' || name[0] == '!')
    throw usage_error("a run cannot be named \"{}\", which looks like an option", name);
  if (name.find_first_of(":<>=") != std::string::npos)
    throw usage_error("a run cannot be named \"{}\", which looks like a filter: leave out : < > and =", name);
  if (database.query("SELECT 1 FROM run WHERE id = ? AND run <> ?", name, run).step())
    throw usage_error("a run cannot be named \"{}\", which is the id of another run", name);
  auto same = database.query("SELECT id FROM run WHERE name = ? AND run <> ? AND deleted IS NULL ORDER BY started DESC",
                             name, run);
  if (same.step())
    log::info("note: run {} is named \"{}\", too; the name alone means the newest run with it", same.text(0), name);
}

/// A group may be empty: none.
void check_group(const std::string& group) {
  if (!group.empty()) check_line("group", group);
  if (group == "none")
    throw usage_error("a group cannot be \"none\": the filter group:none finds runs without a group");
}

void check_notes(const std::string& notes) {
  check_utf8("notes", notes);
  if (notes.find('\0') != std::string::npos) throw usage_error("the notes cannot have a zero byte");
}

/// Changes one column of a run, if its value is another one.
int change_column(sqlite::Database& database, int64_t run, const std::string& what, const std::string& after) {
  const std::string column = what == "group" ? "grp" : what;
  const std::string before = database.text("SELECT " + column + " FROM run WHERE run = ?", run);
  if (before == after) return 0;
  database.run("UPDATE run SET " + column + " = ? WHERE run = ?", after, run);
  record_change(database, run, what, before, after);
  return 1;
}

int change_archived(sqlite::Database& database, int64_t run, bool archived) {
  database.run("UPDATE run SET archived = iif(?1, ?2, NULL) WHERE run = ?3 AND (archived IS NOT NULL) <> ?1", archived,
               wall_seconds(), run);
  if (database.changes() == 0) return 0;
  record_change(database, run, "archived", archived ? "no" : "yes", archived ? "yes" : "no");
  return 1;
}

RunEdit edit_without_secrets(RunEdit edit, Secrets& secrets) {
  const auto clean = [&](std::string& text) { text = secrets.without(secrets.take_from(std::move(text))); };
  for (auto* text : {&edit.name, &edit.group, &edit.notes})
    if (*text) clean(**text);
  clean(edit.appended_notes);
  for (auto* tags : {&edit.added_tags, &edit.removed_tags})
    for (auto& tag : *tags) tag = secrets.without(secrets.take_from(std::vector{std::move(tag)}).front());
  return edit;
}

}  // namespace

void check_tag(const std::string& tag) {
  check_line("tag", tag);
  if (tag == "none") throw usage_error("a tag cannot be \"none\": the filter tag:none finds runs without tags");
}

int edit_run(sqlite::Database& database, int64_t run, const RunEdit& edit) {
  if (edit.name) check_name(database, run, *edit.name);
  if (edit.group) check_group(*edit.group);
  if (edit.notes) check_notes(*edit.notes);
  check_notes(edit.appended_notes);
  std::ranges::for_each(edit.added_tags, check_tag);
  auto row = database.query("SELECT tags, notes FROM run WHERE run = ?", run);
  RUNNER_CHECK(row.step());
  const auto tags = tags_of(row.text(0)), changed = with_tags(tags, edit.added_tags, edit.removed_tags);
  std::string notes = edit.notes.value_or(row.text(1));
  if (!edit.appended_notes.empty()) notes += (notes.empty() ? "" : "\n") + edit.appended_notes;
  int changes = 0;
  if (edit.name) changes += change_column(database, run, "name", *edit.name);
  if (edit.group) changes += change_column(database, run, "group", *edit.group);
  changes += change_column(database, run, "notes", notes);
  if (changed != tags) changes += change_column(database, run, "tags", json_text(nlohmann::json(changed)));
  if (edit.archived) changes += change_archived(database, run, *edit.archived);
  return changes;
}

RunTexts texts_after_edits(sqlite::Database& database, int64_t run, RunTexts again) {
  auto row = database.query(
      "SELECT name, notes, grp, tags, (SELECT content FROM config WHERE hash = run.config) FROM run WHERE run = ?",
      run);
  RUNNER_CHECK(row.step());
  const json recipe = json::parse(row.text(4)).value("run", json::object());
  const auto edited = [&](const char* what) {
    return database.query("SELECT 1 FROM change WHERE run = ? AND what = ?", run, what).step();
  };
  // A run whose recipe has no name was given one, which is no edit.
  if (again.name.empty() || again.name == recipe.value("name", "")) again.name = row.text(0);
  if (edited("notes") && again.notes == recipe.value("notes", "")) again.notes = row.text(1);
  if (edited("group") && again.group == recipe.value("group", "")) again.group = row.text(2);
  if (edited("tags")) {
    const auto before = recipe.value("tags", std::vector<std::string>()), now = tags_of(row.text(3));
    again.tags = with_tags(again.tags, with_tags(now, {}, before), with_tags(before, {}, now));
  }
  return again;
}

json read_changes(sqlite::Database& database, int64_t run) {
  json changes = json::array();
  auto rows = database.query("SELECT time, who, what, before, after FROM change WHERE run = ? ORDER BY change", run);
  while (rows.step()) {
    const std::string what = rows.text(2);
    const auto value = [&](int column) -> json {
      if (rows.is_null(column)) return nullptr;
      return what == "tags" ? json::parse(rows.text(column)) : json(rows.text(column));
    };
    changes.push_back(
        {{"time", rows.real(0)}, {"who", rows.text(1)}, {"what", what}, {"before", value(3)}, {"after", value(4)}});
  }
  return changes;
}

int Ledger::edit(const std::vector<std::string>& runs, const RunEdit& edit) {
  int changed = 0;
  if (!impl_->database) return changed;
  if (const auto newest = std::ssize(migrations()); impl_->database->integer("PRAGMA user_version") > newest)
    throw environment_error("the ledger {} was written by a newer runner, which alone can change it",
                            impl_->path.string());
  const RunEdit clean = edit_without_secrets(edit, impl_->secrets);
  // On a full disk, impl_->database can be a copy in memory, whose edits would be lost.
  std::unique_ptr<sqlite::Database> file;
  if (impl_->database->path() == ":memory:") file = open_to_change(impl_->path);
  auto& database = file ? *file : *impl_->database;
  sqlite::Transaction transaction(database);
  for (const auto& run : runs) changed += edit_run(database, impl_->row_of(run), clean) > 0 ? 1 : 0;
  transaction.commit();
  return changed;
}

std::string this_user() {
  const auto* entry = ::getpwuid(::geteuid());
  return (entry ? std::string(entry->pw_name) : std::to_string(::geteuid())) + "@" + this_process().host;
}

void record_change(sqlite::Database& database, int64_t run, const std::string& what,
                   const std::optional<std::string>& before, const std::optional<std::string>& after) {
  database.run("INSERT INTO change (run, time, who, what, before, after) VALUES (?, ?, ?, ?, ?, ?)", run,
               wall_seconds(), this_user(), what, before, after);
}

}  // namespace runner
