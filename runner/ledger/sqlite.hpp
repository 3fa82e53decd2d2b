// A thin RAII layer over SQLite's C API: connection, statement, transaction, copies. Error messages contain the file and
// advice.
#pragma once
#include <sqlite3.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runner/base/error.hpp"

namespace runner::sqlite {

/// The text of every message about a full disk. Without --keep-last and --cache, gc removes little of an ordinary run.
inline constexpr const char* disk_full =
    "the disk is full; `runner gc --dry-run --keep-last 1 --cache` shows what can be removed";

/// An error from SQLite. `result` is its extended result code.
class Failure : public Error {
 public:
  Failure(int result, const std::string& message) : Error(ExitCode::environment, message), result_(result) {}
  int result() const { return result_; }
  int primary() const { return result_ & 0xff; }

 private:
  int result_;
};

class Statement;

enum class Access {
  create,    ///< read and write; creates the file if it is missing
  existing,  ///< read and write; SQLite opens the file read-only if it is write-protected
  alone,     ///< as existing, but no other process can open the file meanwhile; needs no room for further files to read
  immutable,  ///< read-only, for a file that no process can change: uses no locks and creates no further files
};

/// One connection to a database. Rejects SQLite versions before 3.51.3, whose write-ahead log can lose pages.
class Database {
 public:
  /// How long a statement waits while another process has locked the file. SQLite's waits are not fair: of 32 writers on a busy machine,
  /// one may wait for ten seconds.
  static constexpr int default_busy_timeout_ms = 30'000;

  Database(const std::filesystem::path& path, Access access);
  /// Another thread may call it while a statement waits.
  void set_busy_timeout(int milliseconds) { wait_->milliseconds = milliseconds; }

  /// Runs any number of statements and ignores their results.
  void execute(const std::string& sql);
  /// Runs one statement with bound parameters and ignores its results.
  template <typename... Values>
  void run(std::string_view sql, const Values&... values);
  /// A statement with its parameters bound, ready to be stepped.
  template <typename... Values>
  Statement query(std::string_view sql, const Values&... values);
  /// The first column of the first row, which there must be.
  template <typename... Values>
  int64_t integer(std::string_view sql, const Values&... values);
  template <typename... Values>
  std::string text(std::string_view sql, const Values&... values);
  /// The first column of all rows.
  template <typename... Values>
  std::vector<std::string> texts(std::string_view sql, const Values&... values);

  int64_t last_insert_rowid() const { return sqlite3_last_insert_rowid(handle_.get()); }
  int64_t changes() const { return sqlite3_changes64(handle_.get()); }
  bool read_only() const { return sqlite3_db_readonly(handle_.get(), "main") == 1; }
  const std::filesystem::path& path() const { return path_; }
  sqlite3* handle() const { return handle_.get(); }

  /// Throws Failure unless `result` is a success.
  void check(int result) const;
  /// Whether the file was deleted, or another one has its name now: SQLite would go on with a file that nobody finds.
  bool moved() const;
  /// Throws Failure (SQLITE_READONLY) if it has moved().
  void check_place() const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  /// The state of SQLite's busy handler.
  struct Wait {
    std::atomic<int> milliseconds = default_busy_timeout_ms;
    std::chrono::steady_clock::time_point begun = {};
  };
  static int wait_for_lock(void* wait, int tries);

  std::filesystem::path path_;
  std::unique_ptr<Wait> wait_ = std::make_unique<Wait>();
  std::unique_ptr<sqlite3, Close> handle_;
};

/// A prepared statement. bind() also resets it. Must not outlive its Database.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);

  template <typename... Values>
  Statement& bind(const Values&... values) {
    sqlite3_reset(handle_.get());
    int index = 0;
    (bind_one(++index, values), ...);
    return *this;
  }
  /// Binds one parameter; the first has index 1.
  template <typename Value>
  void bind_at(int index, const Value& value) {
    bind_one(index, value);
  }
  /// True if there is a row, false at the end.
  bool step();

  int64_t integer(int column) const { return sqlite3_column_int64(handle_.get(), column); }
  double real(int column) const { return sqlite3_column_double(handle_.get(), column); }
  int type(int column) const { return sqlite3_column_type(handle_.get(), column); }  ///< SQLITE_INTEGER, ...
  bool is_null(int column) const { return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL; }
  std::string text(int column) const;
  std::optional<double> optional_real(int column) const {
    return is_null(column) ? std::nullopt : std::optional(real(column));
  }

 private:
  template <typename Value>
  void bind_one(int index, const Value& value) {
    if constexpr (std::is_integral_v<Value>) {
      check(sqlite3_bind_int64(handle_.get(), index, static_cast<int64_t>(value)));
    } else if constexpr (std::is_floating_point_v<Value>) {
      check(sqlite3_bind_double(handle_.get(), index, value));  // NaN becomes NULL
    } else if constexpr (std::is_convertible_v<Value, std::string_view>) {
      std::string_view text = value;
      check(sqlite3_bind_text64(handle_.get(), index, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
    } else if constexpr (std::is_same_v<Value, std::nullopt_t>) {
      check(sqlite3_bind_null(handle_.get(), index));
    } else {
      value ? bind_one(index, *value) : bind_one(index, std::nullopt);
    }
  }
  void check(int result) const { database_->check(result); }

  struct Finalize {
    void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
  };
  Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

/// A write transaction. Rolls back unless committed. BEGIN IMMEDIATE takes the write lock at once: a read transaction
/// that becomes a write transaction can fail under contention without waiting for the busy timeout.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database) { database_.execute("BEGIN IMMEDIATE"); }
  ~Transaction() {
    // After some failures (disk full, out of memory), SQLite has already rolled back.
    if (!sqlite3_get_autocommit(database_.handle()))
      sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  void commit() { database_.execute("COMMIT"); }

 private:
  Database& database_;
};

template <typename... Values>
Statement Database::query(std::string_view sql, const Values&... values) {
  Statement statement(*this, sql);
  statement.bind(values...);
  return statement;
}

template <typename... Values>
int64_t Database::integer(std::string_view sql, const Values&... values) {
  Statement row = query(sql, values...);
  RUNNER_CHECK(row.step(), "{}", sql);
  return row.integer(0);
}

template <typename... Values>
std::string Database::text(std::string_view sql, const Values&... values) {
  Statement row = query(sql, values...);
  RUNNER_CHECK(row.step(), "{}", sql);
  return row.text(0);
}

template <typename... Values>
std::vector<std::string> Database::texts(std::string_view sql, const Values&... values) {
  std::vector<std::string> list;
  for (Statement rows = query(sql, values...); rows.step();) list.push_back(rows.text(0));
  return list;
}

template <typename... Values>
void Database::run(std::string_view sql, const Values&... values) {
  Statement statement = query(sql, values...);
  while (statement.step()) {
  }
}

// Copies of a file, made with SQLite's backup API while other processes may use the file.

/// Copies the committed content of the database at `from` to the file `to`, which exists completely afterwards or not at all (a
/// temporary file is left behind by a kill, and replaced by the next call). Waits for other processes as every reader does. Throws
/// Error(environment).
void back_up(const std::filesystem::path& from, const std::filesystem::path& to);
/// Copies all pages of one open database to another one.
void copy_pages(Database& source, Database& target);
/// Removes a file and the logs beside it. The main file goes first: without it, the others mean nothing.
void remove_database(const std::filesystem::path& file);

}  // namespace runner::sqlite
