#include "runner/ledger/orphans.hpp"

#include <algorithm>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/ledger/hidden_folders.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/live_uses.hpp"
#include "runner/ledger/references.hpp"
#include "runner/ledger/spool.hpp"

namespace runner {

using nlohmann::json;

namespace {

std::unique_ptr<sqlite::Database> open_ledger(const std::string& home) {
  return open_to_change(fs::path(home) / "ledger.db");
}

}  // namespace

UnreferencedTexts unreferenced_texts_of(const std::string& home, bool dry) {
  const auto opened = open_ledger(home);
  auto& database = *opened;
  sqlite::Transaction transaction(database);
  const std::string unused = unreferenced_texts(database);
  auto row = database.query("SELECT count(*), ifnull(sum(octet_length(content)), 0) FROM config WHERE " + unused);
  RUNNER_CHECK(row.step());
  const UnreferencedTexts found{.count = row.integer(0), .bytes = row.integer(1)};
  if (dry || found.count == 0) return found;
  database.execute("DELETE FROM config WHERE " + unused);
  transaction.commit();
  return found;
}

std::vector<fs::path> orphaned_folders(const std::string& home, bool hide) {
  const auto opened = open_ledger(home);
  auto& database = *opened;
  // A new run's folder is made while its row is written. With the write lock, no run begins now.
  sqlite::Transaction transaction(database);
  std::set<fs::path> known;  // a folder with a record beside the run belongs to a run that a ledger does not have yet
  auto rows = database.query("SELECT folder FROM run");
  while (rows.step()) known.insert(fs::absolute(fs::path(home) / rows.text(0)).lexically_normal());
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(home) / "runs", error), end; !error && entry != end;
       entry.increment(error)) {
    fs::path path = entry->path();
    std::error_code failed;
    if (path.filename().string().starts_with('.') || !fs::is_directory(fs::symlink_status(path, failed)) ||
        known.contains(fs::absolute(path).lexically_normal()) || !find_spool(home, path).empty())
      continue;
    if (hide) {
      const fs::path hidden = purged_folder(path);
      fs::rename(path, hidden, failed);
      if (failed) {
        log::warning("cannot remove {}: {}", path.string(), failed.message());
        continue;
      }
      path = hidden;
    }
    found.push_back(path);
  }
  return found;
}

namespace {

std::vector<fs::path> starts_in(sqlite::Database& database) {
  std::vector<fs::path> starts;
  auto rows = database.query(
      "SELECT json_extract(annotations, '$.start') FROM run WHERE deleted IS NULL AND status <> 'finished' "
      "AND json_type(annotations, '$.start') = 'text'");
  while (rows.step()) starts.push_back(real_path(rows.text(0)));
  return starts;
}

}  // namespace

std::vector<fs::path> foreign_starts(const std::string& home) {
  const auto opened = open_ledger(home);
  auto& database = *opened;
  return starts_in(database);
}

std::map<std::string, std::string> live_uses(const std::string& home, const std::vector<std::string>& runs) {
  const auto opened = open_ledger(home);
  std::map<std::string, std::string> uses;
  for (const auto& id : runs) {
    auto row = opened->query("SELECT run FROM run WHERE id = ?", id);
    if (!row.step()) continue;
    if (auto use = live_use_of(*opened, home, row.integer(0)); !use.empty()) uses[id] = use;
  }
  return uses;
}

std::string remove_unused_checkpoint(const std::string& home, const std::string& run, const fs::path& path,
                                     const std::function<void()>& remove) {
  const auto opened = open_ledger(home);
  auto& database = *opened;
  sqlite::Transaction transaction(database);
  auto row = database.query("SELECT run FROM run WHERE id = ?", run);
  if (!row.step()) return "the run is gone";
  if (auto use = live_use_of(database, home, row.integer(0)); !use.empty()) return use;
  const auto starts = starts_in(database);
  if (std::ranges::find(starts, real_path(path)) != starts.end())
    return "another run starts from " + path.filename().string();
  remove();
  return "";
}

int64_t empty_page_bytes(const std::string& home) {
  const auto opened = open_ledger(home);
  auto& database = *opened;
  return database.integer("PRAGMA freelist_count") * database.integer("PRAGMA page_size");
}

}  // namespace runner
