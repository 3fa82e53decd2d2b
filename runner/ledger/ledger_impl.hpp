// What ledger.cpp (opening, writing), query.cpp and sweeps.cpp (reading) share of a Ledger.
#pragma once
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/ledger/facts.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"
#include "runner/ledger/writer.hpp"

namespace runner {

/// "20261121-065403-k3f9": UTC, then four characters that are hard to confuse.
std::string make_id(double now);
/// Keeps a text by its content; its hash.
std::string keep_text(sqlite::Database& database, const std::string& content);

/// A metric's value: NULL in the file is NaN.
inline double metric_value(const sqlite::Statement& row, int column) {
  return row.is_null(column) ? std::numeric_limits<double>::quiet_NaN() : row.real(column);
}

template <typename Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

struct Ledger::Impl {
  Impl(const std::string& home, Mode mode);

  void open_to_read();
  void open_to_write();
  void mark_lost();

  /// The row number of run `id`. Throws Error(usage).
  int64_t row_of(const std::string& id) const;
  /// What this process may write to run `id` as: attempt 0 unless it began or reopened it.
  Lease lease_of(const std::string& id) const;
  /// The lease of a run that this process began or reopened.
  Lease& own_lease(const std::string& id);
  /// Whether another process has begun a newer attempt.
  bool taken_up(const Lease& lease) const;
  Writer& to_write() const;

  std::filesystem::path home, path;
  std::unique_ptr<sqlite::Database> database;  ///< for reading; null while there is no file
  std::unique_ptr<Writer> writer;              ///< null in read mode
  std::map<int64_t, double> lost;              ///< runs that could not be marked in the file -> last activity
  std::map<std::string, Lease> leases;
  std::map<std::string, double> last_write;  ///< for heartbeat()
};

}  // namespace runner
