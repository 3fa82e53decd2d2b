// Helpers of the ledger's tests: a temporary folder, the data of a new run, and direct access to the file.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "runner/base/error.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner {

struct LedgerFolder : TemporaryFolder {
  std::string home() const { return path / "home"; }
  std::filesystem::path file() const { return path / "home" / "ledger.db"; }
  /// The database file, opened without the Ledger class.
  sqlite::Database raw() const { return {file(), sqlite::Access::existing}; }
};

inline NewRun new_run(const LedgerFolder& folder, const std::string& name = "llm_fsdp") {
  NewRun run;
  run.name = name;
  run.tags = {"night", "a \"quoted\" one"};
  run.notes = "first light";
  run.run_dir_root = folder.home() + "/runs";
  run.recipe_source = "[run]\nname = \"" + name + "\"\n";
  run.resolved = run.recipe_source + "seed = 1234\n";
  run.config = {{"run", {{"name", name}, {"seed", 1234}}}};
  run.origins = {{"run.name", "llm.toml:2:1"}, {"run.seed", "default"}};
  run.plan = {{"strategy", "fsdp"}, {"reason", "asked for"}};
  run.strategy = "fsdp";
  run.world_size = 2;
  run.argv = {"runner", "run", "llm.toml"};
  run.build_id = "0.1.0+abc";
  run.git = {{"commit", "0123abcd"}, {"branch", "main"}, {"dirty", true}, {"diff_hash", "ff"}};
  run.host = {{"name", "box"}, {"cores", 2}};
  return run;
}

/// Runs `action` in a child process for which the ledger is write-protected, and returns whether it returned true.
template <typename Action>
bool holds_write_protected(const LedgerFolder& folder, Action action) {
  using std::filesystem::perms;
  std::filesystem::permissions(folder.path, perms(0755));
  std::filesystem::permissions(folder.file(), perms(0444));
  std::filesystem::permissions(folder.home(), perms(0555));
  const pid_t child = ::fork();
  if (child == 0) {  // root can write to every file, so the child changes its user
    bool holds = false;
    try {
      holds = (::geteuid() != 0 || ::setuid(65534) == 0) && action();
    } catch (...) {
    }
    ::_exit(holds ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::permissions(folder.home(), perms(0755));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// The Error that `action` throws, as "CODE: MESSAGE", such as "2: there is no run ..."; "" if it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return "";
}

}  // namespace runner
