// The implementation of Ledger, and functions that the files of this room share.
#pragma once
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/base/json_text.hpp"
#include "runner/base/secrets.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"
#include "runner/ledger/writer.hpp"

namespace runner {

/// An id for a new row of `table` (run or sweep), "20261121-065403-k3f9": UTC time, then four random characters that no other row
/// has, without those that are easily confused.
std::string unused_id(sqlite::Database& database, const std::string& table, double now);
/// Stores a text under the hash of its content, once for all runs. Returns the hash.
std::string keep_text(sqlite::Database& database, const std::string& content);

/// Keeps what filters need of the run's config: checkpoint.monitor, and the names of its recipe keys.
void note_config(sqlite::Database& database, int64_t run);

/// A metric's value; NULL in the file means NaN.
inline double metric_value(const sqlite::Statement& row, int column) {
  return row.is_null(column) ? std::numeric_limits<double>::quiet_NaN() : row.real(column);
}

template <typename Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

/// Ledger::summaries().
std::map<std::string, MetricSummary> summaries_of(sqlite::Database& database, const std::string& run);

/// `path` relative to `folder` if it lies below it, otherwise empty. Relative paths stay valid if the folder is moved.
std::optional<std::string> relative_below(const std::filesystem::path& folder, const std::filesystem::path& path);

/// The error of a process whose run `id` another one has resumed.
[[noreturn]] void refuse_stale(sqlite::Database& database, const std::string& id, const Lease& lease);

/// Opens an existing ledger to read it, also in a write-protected folder, and migrates it. Null while there is none.
std::unique_ptr<sqlite::Database> open_to_read(const std::filesystem::path& file);

/// Opens an existing ledger to change it, also on a full disk, where this process has it alone then: files can be removed under its lock.
std::unique_ptr<sqlite::Database> open_to_change(const std::filesystem::path& file);

/// Creates or migrates the ledger in `home`, and opens it. With `adopts`, what runs have recorded beside a ledger that was lost is added
/// to a new one.
std::unique_ptr<sqlite::Database> open_to_write(const std::filesystem::path& home, bool adopts = true);

struct Ledger::Impl {
  Impl(const std::string& home, Mode mode);

  /// Marks runs whose supervisor is gone, and adds what they have recorded beside the ledger. If the file cannot take that now and
  /// `reads`, `database` becomes a copy in memory that has it.
  void mark_lost(bool reads);

  RunRow row(int64_t number) const;
  /// The row number of run `id`. Throws Error(usage).
  int64_t row_of(const std::string& id) const;
  /// The lease for writing to run `id`; its attempt is 0 unless this process began or reopened the run.
  Lease lease_of(const std::string& id) const;
  /// The lease of a run that this process began or reopened.
  Lease& own_lease(const std::string& id);
  /// Whether another process has begun a newer attempt.
  bool taken_up(const Lease& lease) const;
  Writer& to_write() const;

  /// The row without secret values, whose keys become the annotation "redacted". Later records leave them out, too.
  NewRun without_secrets(NewRun run);

  std::filesystem::path home, path;
  Secrets secrets;  ///< of the environment, and of the runs that this process began or reopened
  std::unique_ptr<sqlite::Database> database;  ///< for reading; null while there is no file
  std::unique_ptr<Writer> writer;              ///< null in read mode
  std::map<int64_t, double> lost;              ///< lost runs that could not be marked in the file -> last activity
  std::map<std::string, Lease> leases;
  std::map<std::string, NewRun> reopened;    ///< what the rows of reopened runs become when their next attempt begins
  std::map<std::string, double> last_write;  ///< for heartbeat()
  mutable int brief = 0;                     ///< number of BriefReads
  /// Reads what the writer writes: after a failure of the ledger, that is another file.
  void follow_writer();
  void set_wait() const;
  /// While it exists, reads wait only briefly for other processes, because the caller also handles signals.
  class BriefReads {
   public:
    explicit BriefReads(const Impl& impl) : impl_(impl) { change(1); }
    ~BriefReads() { change(-1); }
    BriefReads(const BriefReads&) = delete;

   private:
    void change(int by) const {
      impl_.brief += by;
      impl_.set_wait();
    }
    const Impl& impl_;
  };
};

}  // namespace runner
