#include "runner/ledger/bundle_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "runner/base/fault_point.hpp"
#include "runner/base/log.hpp"
#include "runner/base/private_file.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/hidden_folders.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/spool.hpp"

namespace runner {

namespace {

/// Calls `use` with each line, and its section and key.
void for_each_line(const std::string& recipe,
                   const std::function<void(const std::string& line, const std::string& key)>& use) {
  std::istringstream lines(recipe);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line;
    use(line, section + "\n" + std::string(trim(line.substr(0, line.find('=')))));
  }
}

/// Whether `line` is `pattern` with other texts for each "***".
bool fits(const std::string& pattern, std::string_view line) {
  const std::string_view stars = redacted, all = pattern;
  size_t begin = 0, at = 0;
  for (size_t end = all.find(stars); end != std::string_view::npos; end = all.find(stars, begin)) {
    const auto part = all.substr(begin, end - begin);
    const size_t found = line.find(part, at);
    if (found == std::string_view::npos || (begin == 0 && found != 0)) return false;
    at = found + part.size();
    begin = end + stars.size();
  }
  return line.substr(at).ends_with(all.substr(begin));
}

/// The recipe, in which "***" stands for secrets, with the values of `here`, an earlier recipe of the same run. A line is replaced if the
/// one of the same key in `here` differs from it only where it has "***". Both are as print_recipe() writes them: a key on each line.
std::string with_local_secrets(const std::string& recipe, const std::string& here) {
  std::map<std::string, std::string> known;
  for_each_line(here, [&](const std::string& line, const std::string& key) {
    if (line.find(redacted) == std::string::npos) known[key] = line;
  });
  std::string text;
  for_each_line(recipe, [&](const std::string& line, const std::string& key) {
    const auto found = known.find(key);
    const bool secret = line.find(redacted) != std::string::npos;
    text += (secret && found != known.end() && fits(line, found->second) ? found->second : line) + "\n";
  });
  return text;
}

}  // namespace

const char* const bundle_file_tables =
    "CREATE TABLE bundled_file (file INTEGER PRIMARY KEY, run TEXT NOT NULL, path TEXT NOT NULL, bytes INTEGER NOT "
    "NULL, mode INTEGER NOT NULL, UNIQUE (run, path)) STRICT;"
    "CREATE TABLE bundled_part (file INTEGER NOT NULL REFERENCES bundled_file, part INTEGER NOT NULL, hash TEXT NOT "
    "NULL, content BLOB NOT NULL, PRIMARY KEY (file, part)) STRICT;";

namespace {

constexpr size_t part_bytes = 8U << 20;

int64_t add_stream(sqlite::Database& database, const std::string& run, const fs::path& path, int64_t mode,
                   std::istream& stream, const std::string& name) {
  database.run("INSERT INTO bundle.bundled_file (run, path, bytes, mode) VALUES (?, ?, 0, ?)", run, path.string(),
               mode & 0777);
  const int64_t number = database.last_insert_rowid();
  int64_t bytes = 0, part = 0;
  std::string content;
  do {
    content.resize(part_bytes);
    stream.read(content.data(), static_cast<std::streamsize>(part_bytes));
    content.resize(static_cast<size_t>(stream.gcount()));
    if (stream.bad()) throw environment_error("cannot read {}", name);
    if (content.empty()) break;
    database.run("INSERT INTO bundle.bundled_part (file, part, hash, content) VALUES (?, ?, ?, CAST(? AS BLOB))",
                 number, part++, xxh3_hex(content), content);
    bytes += std::ssize(content);
    fault_point("bundle");
  } while (stream);
  database.run("UPDATE bundle.bundled_file SET bytes = ? WHERE file = ?", bytes, number);
  return bytes;
}

/// The unit that is there or not as a whole: a checkpoint, or else a file.
fs::path unit_of(const fs::path& relative) {
  auto part = relative.begin();
  if (*part != "checkpoints" || std::next(part) == relative.end()) return relative;
  return *part / *std::next(part);
}

int64_t count_files(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path)) return 1;
  int64_t count = 0;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_regular_file()) ++count;
  return count;
}

/// The files and checkpoints of an extracted folder.
std::vector<fs::path> units_in(const fs::path& folder) {
  std::vector<fs::path> units;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path relative = entry->path().lexically_relative(folder);
    const bool is_checkpoint = relative.parent_path() == "checkpoints";
    if (is_checkpoint) entry.disable_recursion_pending();
    if (is_checkpoint || entry->is_regular_file()) units.push_back(relative);
  }
  return units;
}

void move(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::rename(from, to, failed);
  if (failed)
    throw environment_error("cannot move {} to {}: {}; import the bundle again", from.string(), to.string(),
                            failed.message());
}

/// Whether a bundle may have a file of this name: a relative path in its normal form, without hidden parts. The system would take a NUL
/// for the end of the name, and a spool would be taken for this ledger's own record.
bool is_sound(const fs::path& relative) {
  if (relative.native().find('\0') != std::string::npos) return false;
  if (relative.filename().string().starts_with(spool_in("").string())) return false;
  if (relative.empty() || relative.is_absolute() || relative.string() != relative.lexically_normal().string())
    return false;
  return std::ranges::none_of(relative, [](const fs::path& part) { return part.string().starts_with('.'); }) &&
         relative.has_filename();
}

/// Moves a run's folder to a name that no run has, so that `runner gc` counts it.
void move_aside(const std::string& run, const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  fs::path aside = folder.string() + ".replaced";
  for (int next = 2; fs::exists(fs::symlink_status(aside)); ++next)
    aside = fmt::format("{}.replaced-{}", folder.string(), next);
  move(folder, aside);
  fs::remove(aside / import_marker, error);
  log::info("note: the files that run {} had here are in {}; `runner gc --orphans` removes them", run, aside.string());
}

/// Makes recipe.toml from resolved.toml if the bundle has none, because the recipe has secrets. The recipe in `folder` may belong to
/// another state, so only its secret values are taken.
void complete_recipe(const fs::path& extracted, const fs::path& folder) {
  const fs::path resolved = extracted / "resolved.toml", recipe = extracted / "recipe.toml",
                 here = folder / "recipe.toml";
  std::error_code error;
  if (!fs::exists(resolved, error) || fs::exists(recipe, error)) return;
  const bool has_one = !folder.empty() && fs::is_regular_file(here, error);
  const std::string text = read_file(resolved);
  write_private_file_atomic(recipe, has_one ? with_local_secrets(text, read_file(here)) : text);
}

}  // namespace

int64_t add_bundled_file(sqlite::Database& database, const std::string& run, const fs::path& path,
                         const fs::path& source) {
  std::ifstream file(source, std::ios::binary);
  struct stat info {};
  if (!file || ::stat(source.c_str(), &info) != 0)  // a run that goes on removes old checkpoints
    throw environment_error("cannot read {}: it was removed meanwhile? Export again", source.string());
  return add_stream(database, run, path, static_cast<int64_t>(info.st_mode), file, source.string());
}

int64_t add_bundled_text(sqlite::Database& database, const std::string& run, const fs::path& path,
                         const std::string& text) {
  std::istringstream stream(text);
  return add_stream(database, run, path, 0600, stream, path.string());
}

std::string files_digest(sqlite::Database& database, const std::string& run) {
  auto rows = database.query(
      "SELECT path, bytes, part, hash FROM bundle.bundled_file LEFT JOIN bundle.bundled_part USING (file) "
      "WHERE run = ? ORDER BY path, part",
      run);
  Xxh3 digest;  // and not one text, because a bundle may have any number of rows
  while (rows.step())
    for (int i = 0; i < 4; ++i) {
      const std::string line = rows.text(i) + "\n";
      digest.update(std::as_bytes(std::span(line)));
    }
  return digest.hex();
}

BundleFiles::BundleFiles(sqlite::Database& database, fs::path home, std::string bundle)
    : database_(database), home_(std::move(home)), bundle_(std::move(bundle)) {}

BundleFiles::~BundleFiles() { discard(); }

void BundleFiles::discard() {
  std::error_code ignored;
  for (const auto* folders : {&hidden_, &placed_})
    for (const auto& [run, folder] : *folders) fs::remove_all(folder, ignored);
  hidden_.clear();
  placed_.clear();
  for (const auto& folder : std::exchange(given_up_, {})) fs::remove_all(folder, ignored);
}

void BundleFiles::extract_new(const std::string& run) {
  extract(run, {}, /*all=*/true);
  // Whoever finds it in a folder without a run knows that an import was killed there.
  if (const auto found = hidden_.find(run); found != hidden_.end())
    write_file_atomic(found->second / import_marker, "new");
}

void BundleFiles::extract(const std::string& run, const fs::path& folder, bool all) {
  const fs::path into = import_folder(home_ / "runs", run, ::getpid());
  std::error_code ignored;
  fs::remove_all(into, ignored);  // of an earlier process with this number
  hidden_[run] = into;
  if (!write_files(run, into, folder, all)) hidden_.erase(run);
}

bool BundleFiles::write_files(const std::string& run, const fs::path& into, const fs::path& folder, bool all) {
  auto files = database_.query("SELECT file, path, bytes FROM bundle.bundled_file WHERE run = ? ORDER BY file", run);
  bool any = false;
  while (files.step()) {
    const fs::path relative = files.text(1), path = into / relative;
    if (!is_sound(relative)) refuse_file(relative);
    std::error_code ignored;
    if (!all && fs::exists(folder / unit_of(relative), ignored)) continue;
    any = true;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    // A damaged bundle may have the files "a" and "a/b", or one file twice.
    if (error == std::errc::not_a_directory || fs::exists(path, ignored)) refuse_file(relative);
    write_parts(files.integer(0), files.integer(2), path);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, ignored);
  }
  if (all) complete_recipe(into, folder);
  return any;
}

void BundleFiles::refuse_file(const fs::path& relative) const {
  throw usage_error("the bundle {} is damaged: it has a file \"{}\"", bundle_, one_line(relative.string()));
}

void BundleFiles::write_parts(int64_t file, int64_t bytes, const fs::path& path) {
  std::ofstream out(path, std::ios::binary);
  auto parts =
      database_.query("SELECT hash, content, part FROM bundle.bundled_part WHERE file = ? ORDER BY part", file);
  int64_t count = 0, written = 0;
  for (; parts.step(); ++count) {
    const std::string content = parts.text(1);
    if (xxh3_hex(content) != parts.text(0))
      throw usage_error("the bundle {} is damaged: the content of {} does not have its digest", bundle_,
                        path.filename().string());
    if (parts.integer(2) != count) break;
    out.write(content.data(), std::ssize(content));
    written += std::ssize(content);
    fault_point("import");
  }
  if (written != bytes)
    throw usage_error("the bundle {} is damaged: {} has {} bytes of {}", bundle_, path.filename().string(), written,
                      bytes);
  out.close();
  if (!out) throw environment_error("cannot write {}: is the disk full?", path.string());
  sync_path(path);
}

void BundleFiles::place_new(const std::string& run) {
  const auto found = hidden_.find(run);
  if (found == hidden_.end()) return;
  const fs::path folder = home_ / "runs" / run;
  std::error_code error;
  if (fs::exists(folder / import_marker, error)) {  // of an import that was killed here
    const fs::path aside = found->second.string() + ".0.import";
    fs::rename(folder, aside, error);
    given_up_.push_back(aside);
  }
  if (fs::exists(folder))
    throw environment_error("the folder {} exists, and no run of this ledger has it: move it away, and import again",
                            folder.string());
  fs::rename(found->second, folder, error);
  if (error) throw environment_error("cannot make the folder {}: {}", folder.string(), error.message());
  placed_[run] = folder;
  hidden_.erase(found);
}

void BundleFiles::announce(const std::string& run, const fs::path& folder, const std::string& digest,
                           bool replaces) const {
  if (hidden_.contains(run) || replaces) mark_import(folder, digest, replaces);
}

void BundleFiles::committed() { placed_.clear(); }

int64_t BundleFiles::finish(const std::string& run, const fs::path& folder, bool replaces) {
  if (replaces) move_aside(run, folder);
  int64_t added = 0;
  if (const auto found = hidden_.find(run); found != hidden_.end()) {
    added = move_into(found->second, folder);
    hidden_.erase(found);
  }
  std::error_code error;
  fs::remove(folder / import_marker, error);
  return added;
}

int64_t BundleFiles::move_into(const fs::path& from, const fs::path& folder) {
  std::error_code error;
  const int64_t added = count_files(from);
  if (!fs::exists(folder, error)) {
    fs::create_directories(folder.parent_path(), error);
    move(from, folder);
    return added;
  }
  const fs::path replaced = from / ".replaced";
  fs::create_directories(replaced, error);
  for (const auto& relative : units_in(from)) {
    fs::create_directories((folder / relative).parent_path(), error);
    // A checkpoint is complete or not there: its folder moves as a whole.
    if (fs::is_directory(folder / relative)) move(folder / relative, replaced / relative.filename());
    move(from / relative, folder / relative);
  }
  fs::remove_all(from, error);
  return added;
}

namespace {
constexpr const char* replaces_word = "replaces";
}  // namespace

void mark_import(const fs::path& folder, const std::string& digest, bool replaces) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw environment_error("cannot make the folder {}: {}", folder.string(), error.message());
  write_file_atomic(folder / import_marker, replaces ? digest + " " + replaces_word : digest);
}

std::optional<InterruptedImport> interrupted_import(sqlite::Database& database, const std::string& id,
                                                    const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / import_marker, error)) return std::nullopt;
  std::istringstream text(read_file(folder / import_marker));
  InterruptedImport found;
  std::string word;
  text >> found.digest >> word;
  found.replaces = word == replaces_word;
  auto row = database.query(
      "SELECT source FROM main.imported JOIN main.run USING (run) WHERE id = ? AND digest = ? ORDER BY imported DESC",
      id, found.digest);
  if (!row.step()) return std::nullopt;
  found.source = row.text(0);
  return found;
}

void refuse_interrupted_import(sqlite::Database& database, const std::string& id, const fs::path& folder) {
  if (const auto import = interrupted_import(database, id, folder))
    throw environment_error(
        "the folder {} does not have the files that belong to the record of run {}, because an import was killed: "
        "`runner import {}` completes it",
        folder.string(), id, shell_word(import->source));
}

void refuse_interrupted_import(const std::string& home, const std::string& id, const fs::path& folder) {
  if (const auto database = open_to_read(fs::path(home) / "ledger.db"))
    refuse_interrupted_import(*database, id, folder);
}

}  // namespace runner
