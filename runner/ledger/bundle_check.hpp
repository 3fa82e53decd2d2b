// Checks of what strangers may have written into a bundle.
#pragma once
#include <string>

#include "runner/ledger/sqlite.hpp"

namespace runner {

/// Throws Error(environment) if a name of the ledger's or the bundle's tables is no table in the attached database `bundle`: a view could
/// answer differently each time it is read. `name`: of the file, for errors.
void check_bundle_tables(sqlite::Database& database, const std::string& name);

/// Throws Error(environment) if a text of the attached database `bundle` is no JSON of the shape that later readers take it for.
void check_bundle_json(sqlite::Database& database, const std::string& name);

}  // namespace runner
