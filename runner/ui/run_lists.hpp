// Lists of runs, kept until the ledger changes.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"
#include "runner/ui/readers.hpp"

namespace runner::ui {

using RunList = std::shared_ptr<const std::vector<RunRow>>;

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
