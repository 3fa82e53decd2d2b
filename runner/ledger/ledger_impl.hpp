// What ledger.cpp (opening, writing) and query.cpp (reading) share of a Ledger.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
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
  Writer& to_write() const;

  std::filesystem::path home, path;
  std::unique_ptr<sqlite::Database> database;  ///< for reading; null while there is no file
  std::unique_ptr<Writer> writer;              ///< null in read mode
  std::map<int64_t, double> lost;              ///< runs that could not be marked in the file -> last activity
  std::map<std::string, Lease> leases;
  std::map<std::string, double> last_write;  ///< for heartbeat()
};

}  // namespace runner
