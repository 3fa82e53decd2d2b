// A ledger in a temporary file, for rows that are prepared before the real ledger is locked.
#pragma once
#include "runner/base/files.hpp"

namespace runner {

/// Empty, with the tables of today. In the folder of the ledger; the destructor removes it, and `runner gc` does so after a kill.
class ScratchLedger {
 public:
  /// `from`: the database that it is a copy of, whose tables are brought up to date. Throws Error(environment) if the file cannot be
  /// written, or `from` cannot be read.
  explicit ScratchLedger(const fs::path& home, const fs::path& from = {});
  ~ScratchLedger();
  ScratchLedger(const ScratchLedger&) = delete;
  const fs::path& file() const { return file_; }

 private:
  fs::path file_;
};

}  // namespace runner
