// Connections to the ledger for the threads of the server, and the lists of runs that are read with them.
#pragma once
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner::ui {

/// At most `most` threads read at the same time; others wait. A connection cannot write. If the ledger's file is deleted or replaced, the
/// next connection is one to the new file.
class Readers {
 public:
  explicit Readers(std::filesystem::path home, size_t most = 4);

  class Lease {
   public:
    Lease(Readers& readers, std::unique_ptr<sqlite::Database> database)
        : readers_(&readers), database_(std::move(database)) {}
    Lease(Lease&&) = default;
    ~Lease() {
      if (readers_ && database_) readers_->give_back(std::move(database_));
    }
    /// Null while there is no ledger.
    sqlite::Database* get() const { return database_.get(); }
    sqlite::Database& operator*() const { return *database_; }
    sqlite::Database* operator->() const { return database_.get(); }
    explicit operator bool() const { return database_ != nullptr; }

   private:
    Readers* readers_;
    std::unique_ptr<sqlite::Database> database_;
  };
  Lease take();
  /// A connection of its own, which cannot write, to the ledger as it is now, migrated if it is older than this program; null while there
  /// is none.
  std::unique_ptr<sqlite::Database> open() const;
  size_t most() const { return most_; }
  const std::filesystem::path& home() const { return home_; }

 private:
  void give_back(std::unique_ptr<sqlite::Database> database);
  void release();  ///< gives back what was taken without a connection

  std::filesystem::path home_;
  size_t most_, taken_ = 0;
  std::mutex mutex_;
  std::condition_variable free_;
  std::vector<std::unique_ptr<sqlite::Database>> idle_;
};

/// The row number of a run with this very id; 0 if there is none.
int64_t run_row(sqlite::Database& database, const std::string& id);

using RunList = std::shared_ptr<const std::vector<RunRow>>;

/// Lists of runs, kept until the ledger changes.
class RunLists {
 public:
  explicit RunLists(Readers& readers) : readers_(readers) {}
  /// The runs that match a filter, the newest first unless the filter sorts. The list may be up to a second old while a training writes,
  /// or if it depends on the time (since:7d). Throws FilterError. Empty while there is no ledger.
  RunList matching(const std::string& filter);

 private:
  struct Entry {
    std::string filter;
    bool timed;  ///< what matches depends on the time
    int64_t version;
    double read;
    RunList list;
  };
  Readers& readers_;
  std::mutex mutex_;
  std::unique_ptr<sqlite::Database> database_;
  std::deque<Entry> entries_;  ///< the last used one first
};

}  // namespace runner::ui
