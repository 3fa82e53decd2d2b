// The folder of a run, for verbs that need it.
#pragma once
#include <string>

#include "runner/base/files.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// The run's folder. Throws Error(usage) if it is missing: why, what is gone with it, and what still works. `verb`: "resumed".
fs::path needed_folder(const Ledger& ledger, const std::string& run, const std::string& verb);

}  // namespace runner
