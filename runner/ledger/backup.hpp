// Copies of a ledger's file, made with SQLite's backup API while other processes may use the file.
#pragma once
#include <filesystem>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// Copies the committed content of the database at `from` to the file `to`, which exists completely afterwards or not at all (a
/// temporary file is left behind by a kill, and replaced by the next call). Waits for other processes as every reader does. Throws
/// Error(environment).
void back_up(const std::filesystem::path& from, const std::filesystem::path& to);

/// Copies all pages of one open database to another one.
void copy_pages(sqlite::Database& source, sqlite::Database& target);

}  // namespace runner
