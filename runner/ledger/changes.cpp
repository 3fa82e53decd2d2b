#include "runner/ledger/changes.hpp"

#include <pwd.h>
#include <unistd.h>

#include "runner/base/clock.hpp"
#include "runner/ledger/process_identity.hpp"

namespace runner {

std::string this_user() {
  const auto* entry = ::getpwuid(::geteuid());
  return (entry ? std::string(entry->pw_name) : std::to_string(::geteuid())) + "@" + this_process().host;
}

void record_change(sqlite::Database& database, int64_t run, const std::string& what,
                   const std::optional<std::string>& before, const std::optional<std::string>& after) {
  database.run("INSERT INTO change (run, time, who, what, before, after) VALUES (?, ?, ?, ?, ?, ?)", run,
               wall_seconds(), this_user(), what, before, after);
}

}  // namespace runner
