// A ledger on a network filesystem: its rollback journal lets a writer lock out readers.
#include <dlfcn.h>
#include <sys/vfs.h>
#include <catch2/catch_test_macros.hpp>

#include "runner/base/clock.hpp"
#include "support.hpp"

using namespace runner;

namespace {
bool all_folders_are_nfs = false;
}

/// Replaces the C library's function in this program.
extern "C" int statfs(const char* path, struct statfs* info) noexcept {
  static const auto original = reinterpret_cast<int (*)(const char*, struct statfs*)>(::dlsym(RTLD_NEXT, "statfs"));
  const int result = original(path, info);
  if (all_folders_are_nfs) info->f_type = 0x6969;
  return result;
}

TEST_CASE("a locked ledger with a rollback journal does not disturb the training") {
  LedgerFolder folder;
  all_folders_are_nfs = true;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  all_folders_are_nfs = false;
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start");
  auto other = folder.raw();
  REQUIRE(other.text("PRAGMA journal_mode") != "wal");
  other.execute("BEGIN EXCLUSIVE");
  const double start = steady_seconds();
  ledger.metrics(id, {{"loss", 1, 1.0}});
  ledger.artifact(id, "checkpoint", folder.home() + "/runs/" + id + "/checkpoints/step-000001", {{"step", 1}});
  ledger.heartbeat(id);
  CHECK(steady_seconds() - start < 5);
  other.execute("COMMIT");
  ledger.flush();
  CHECK(ledger.show(id)["checkpoints"][0]["path"] == "checkpoints/step-000001");
}
