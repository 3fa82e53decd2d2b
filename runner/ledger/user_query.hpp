// Runs a user's SQL on the ledger, read-only.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// A view that queries can rely on.
struct LedgerView {
  std::string name, about;
  std::vector<std::string> columns;
};

/// One SELECT statement. All other statements are refused by SQLite's authorizer, and so are ATTACH and PRAGMA, except those that
/// describe tables.
class UserQuery {
 public:
  /// `home`: the ledger's folder. Throws Error(usage) if there is no ledger, and FilterError (with the place in `sql` and the
  /// nearest name) if the statement is wrong or not allowed.
  UserQuery(const std::string& home, const std::string& sql);
  ~UserQuery();

  std::vector<std::string> columns() const;
  /// The next row: texts, numbers (infinities as in json_number()), null; nullopt at the end.
  std::optional<std::vector<nlohmann::json>> next();

  /// The views of the ledger in `home`.
  static std::vector<LedgerView> views(const std::string& home);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
