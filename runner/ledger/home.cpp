// The folder of the ledger.
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

namespace {

std::optional<fs::path> ledger_above(const fs::path& folder) {
  struct stat here {
  }, above{};
  if (::stat(folder.c_str(), &here) != 0) return std::nullopt;
  for (fs::path parent = folder.parent_path();; parent = parent.parent_path()) {
    if (::stat(parent.c_str(), &above) != 0 || above.st_dev != here.st_dev) return std::nullopt;
    std::error_code ignored;
    const bool anybodys = (above.st_mode & S_IWOTH) != 0;
    if (!anybodys && fs::is_directory(parent / ".runner", ignored)) return parent / ".runner";
    if (parent == parent.parent_path()) return std::nullopt;
  }
}

}  // namespace

std::string ledger_home() {
  const char* home = std::getenv("RUNNER_HOME");
  std::error_code error;
  if (home && *home) {
    if (fs::exists(home, error) && !fs::is_directory(home, error))
      throw environment_error("RUNNER_HOME = {} is a file; it must name a folder", home);
    return home;
  }
  const fs::path folder = fs::current_path(error);
  if (error || fs::is_directory(".runner", error)) return ".runner";
  const auto above = ledger_above(folder);
  if (!above) return ".runner";
  static std::once_flag named;
  std::call_once(named, [&] {
    log::info("ledger: {} (mkdir .runner makes one here; RUNNER_HOME names any other)", above->string());
  });
  return above->string();
}

bool on_network_filesystem(const std::string& folder) {
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) return false;
  constexpr std::array<uint32_t, 11> types = {
      0x6969,      // NFS
      0x517b,      // SMB
      0xff534d42,  // CIFS
      0xfe534d42,  // SMB 2
      0x0bd00bd0,  // Lustre
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x00c36400,  // Ceph
      0x5346414f,  // AFS
      0x65735546,  // FUSE
      0x01021997,  // 9P
  };
  return std::find(types.begin(), types.end(), static_cast<uint32_t>(info.f_type)) != types.end();
}

}  // namespace runner
