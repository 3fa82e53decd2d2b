#include "runner/ledger/user_query.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/filter.hpp"
#include "runner/ledger/ledger_impl.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// The views are in the order in which they are listed.
const std::vector<std::pair<std::string, std::string>> view_texts = {
    {"runs", "one row for each run, with last and best values; times are Unix seconds"},
    {"metrics", "all points; value is NULL for NaN"},
    {"last_metrics", "last, smallest, largest and best value of each metric of each run"},
    {"params", "one row for each recipe key of each run"},
    {"events", "what happened in a run; fields is a JSON object"},
    {"artifacts", "checkpoints and other files of a run"},
    {"attempts", "starts of the processes of a run"},
    {"edges", "runs that started from other runs"},
    {"sweeps", "one row for each sweep"},
    {"trials", "the trials of sweeps; parameters is a JSON object"},
    {"changes", "the audit trail: edits of name, tags, notes, group, archived, deleted"},
    {"system_samples", "readings of the machine while a run trains: CPU, memory, disk, network, GPUs"},
};

auto text_of_view(const std::string& name) {
  return std::ranges::find(view_texts, name, &std::pair<std::string, std::string>::first);
}

/// Why SQLite's authorizer refused a statement, in the statement's words.
const char* action_word(int action) {
  static const std::map<int, const char*> words = {{SQLITE_INSERT, "INSERT"},
                                                   {SQLITE_UPDATE, "UPDATE"},
                                                   {SQLITE_DELETE, "DELETE"},
                                                   {SQLITE_ATTACH, "ATTACH"},
                                                   {SQLITE_DETACH, "DETACH"},
                                                   {SQLITE_PRAGMA, "PRAGMA"},
                                                   {SQLITE_TRANSACTION, "BEGIN, COMMIT and ROLLBACK"},
                                                   {SQLITE_SAVEPOINT, "SAVEPOINT"}};
  const auto found = words.find(action);
  return found == words.end() ? "a change of tables" : found->second;
}

/// `data`: the std::string that gets the word of a refused statement.
int authorize(void* data, int action, const char* first, const char*, const char*, const char*) {
  static constexpr std::array<std::string_view, 6> harmless = {"table_info", "table_xinfo",      "table_list",
                                                               "index_list", "foreign_key_list", "index_info"};
  // No function changes anything: this SQLite has no load_extension.
  const bool reads =
      action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_RECURSIVE || action == SQLITE_FUNCTION;
  const bool describes = action == SQLITE_PRAGMA && std::ranges::find(harmless, first ? first : "") != harmless.end();
  if (reads || describes) return SQLITE_OK;
  auto& refused = *static_cast<std::string*>(data);
  // The first refusal names the statement; further ones are its details.
  if (refused.empty()) refused = action_word(action);
  return SQLITE_DENY;
}

/// "no such table: x" as the plain name x; empty for other messages.
std::string name_after(const std::string& message, std::string_view start) {
  return message.starts_with(start) ? message.substr(start.size()) : "";
}

std::string with_nearest(sqlite::Database& database, const std::string& message) {
  std::string name = name_after(message, "no such table: ");
  std::vector<std::string> known;
  if (!name.empty())
    known = database.texts("SELECT name FROM sqlite_schema WHERE type = 'view'");
  else if (name = name_after(message, "no such column: "); !name.empty())
    known = database.texts(
        "SELECT DISTINCT c.name FROM sqlite_schema AS s, pragma_table_info(s.name) AS c WHERE s.type = 'view'");
  if (name.empty()) return message;
  if (const auto dot = name.rfind('.'); dot != std::string::npos) name.erase(0, dot + 1);
  const auto near = nearest(name, known);
  return near ? message + "; did you mean \"" + *near + "\"?" : message + "; `runner query` lists views and columns";
}

std::unique_ptr<sqlite::Database> open_for_user(const std::string& home) {
  { Ledger marks_lost_runs(home, Ledger::Mode::read); }
  auto database = open_to_read(fs::path(home) / "ledger.db");
  if (!database)
    throw usage_error("there is no ledger in {} yet; RUNNER_HOME=FOLDER names another one",
                      fs::absolute(home).string());
  database->execute("PRAGMA query_only = ON");
  return database;
}

/// Where the first word of a statement is that follows another one.
size_t after_spaces(const std::string& sql, size_t offset) {
  while (offset < sql.size() && (std::isspace(static_cast<unsigned char>(sql[offset])) || sql[offset] == ';')) ++offset;
  return offset;
}

size_t word_length(const std::string& sql, size_t offset) {
  size_t end = offset;
  while (end < sql.size() && (std::isalnum(static_cast<unsigned char>(sql[end])) || sql[end] == '_')) ++end;
  return std::max<size_t>(1, end - offset);
}

}  // namespace

struct UserQuery::Impl {
  std::unique_ptr<sqlite::Database> database;
  std::string refused;  ///< the word of a statement that is not allowed; empty: none was refused
  std::string sql;
  std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> statement{nullptr, &sqlite3_finalize};

  [[noreturn]] void fail() {
    sqlite3* handle = database->handle();
    const std::string message = sqlite3_errmsg(handle);
    const int offset = sqlite3_error_offset(handle);
    sqlite3_set_authorizer(handle, nullptr, nullptr);
    const FilterPlace place{.offset = static_cast<size_t>(std::max(offset, 0)),
                            .length = offset < 0 ? 0 : word_length(sql, static_cast<size_t>(offset))};
    if (refused == "ATTACH" && statement) refused = "VACUUM";  // which attaches its file when it runs
    if (!refused.empty()) throw usage_error("{} is not allowed: runner query only reads", refused);
    const std::string text = with_nearest(*database, message);
    if (offset < 0) throw usage_error("{}", text);
    throw FilterError(sql, place, text);
  }
};

UserQuery::UserQuery(const std::string& home, const std::string& sql) : impl_(std::make_unique<Impl>()) {
  impl_->sql = sql;
  impl_->database = open_for_user(home);
  sqlite3* handle = impl_->database->handle();
  sqlite3_set_authorizer(handle, authorize, &impl_->refused);
  sqlite3_stmt* statement = nullptr;
  const char* rest = nullptr;
  const int result = sqlite3_prepare_v2(handle, sql.c_str(), static_cast<int>(sql.size()), &statement, &rest);
  impl_->statement.reset(statement);
  if (result != SQLITE_OK) impl_->fail();
  if (!statement) throw usage_error("the query is empty; `runner query` lists views and columns");
  const size_t next = after_spaces(sql, static_cast<size_t>(rest - sql.c_str()));
  sqlite3_stmt* second = nullptr;  // a comment after the statement is none
  if (next < sql.size() &&
      (sqlite3_prepare_v2(handle, sql.c_str() + next, -1, &second, nullptr) != SQLITE_OK || second)) {
    sqlite3_finalize(second);
    throw FilterError(sql, {.offset = next, .length = sql.size() - next},
                      "a query is one statement; this is a second one");
  }
}

UserQuery::~UserQuery() = default;

std::vector<std::string> UserQuery::columns() const {
  std::vector<std::string> list;
  for (int i = 0; i < sqlite3_column_count(impl_->statement.get()); ++i)
    list.emplace_back(sqlite3_column_name(impl_->statement.get(), i));
  return list;
}

std::optional<std::vector<json>> UserQuery::next() {
  sqlite3_stmt* statement = impl_->statement.get();
  const int result = sqlite3_step(statement);
  if (result == SQLITE_DONE) return std::nullopt;
  if (result != SQLITE_ROW) impl_->fail();
  std::vector<json> row;
  for (int i = 0; i < sqlite3_column_count(statement); ++i) {
    const auto bytes = [&] {
      const auto* data = static_cast<const char*>(sqlite3_column_blob(statement, i));
      return std::string(data ? data : "", static_cast<size_t>(sqlite3_column_bytes(statement, i)));
    };
    switch (sqlite3_column_type(statement, i)) {
      case SQLITE_NULL:
        row.emplace_back(nullptr);
        break;
      case SQLITE_INTEGER:
        row.emplace_back(sqlite3_column_int64(statement, i));
        break;
      case SQLITE_FLOAT:
        row.push_back(json_number(sqlite3_column_double(statement, i)));
        break;
      case SQLITE_BLOB:
        row.emplace_back(to_hex(bytes()));
        break;
      default:
        row.emplace_back(escape_invalid_utf8(bytes()));
        break;
    }
  }
  return row;
}

std::vector<LedgerView> UserQuery::views(const std::string& home) {
  const auto database = open_for_user(home);
  std::vector<LedgerView> list;
  auto rows = database->query(
      "SELECT s.name, c.name FROM sqlite_schema AS s, pragma_table_info(s.name) AS c WHERE s.type = 'view' "
      "ORDER BY s.rowid, c.cid");
  while (rows.step()) {
    if (list.empty() || list.back().name != rows.text(0)) {
      const auto text = text_of_view(rows.text(0));
      list.push_back({.name = rows.text(0), .about = text == view_texts.end() ? "" : text->second, .columns = {}});
    }
    list.back().columns.push_back(rows.text(1));
  }
  std::ranges::stable_sort(list, {}, [](const LedgerView& view) { return text_of_view(view.name); });
  return list;
}

}  // namespace runner
