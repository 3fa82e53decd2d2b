#include "runner/sweep/sweep_lock.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runner/base/error.hpp"

namespace runner::sweep {

// Byte 0 stands for the sweep: whoever trains one trial shares it. Byte N + 1 stands for trial N. The locks belong to the open file, not
// to the process, so closing other files of the process does not release them.

SweepLock::SweepLock(const std::string& folder)
    : file_((std::filesystem::path(folder) / "lock").string()),
      descriptor_(::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (!descriptor_.is_open()) throw environment_error("cannot open {}: {}", file_, std::strerror(errno));
}

bool SweepLock::lock(short kind, int64_t byte) const {
  struct flock range {};
  range.l_type = kind;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  if (::fcntl(descriptor_.get(), F_OFD_SETLK, &range) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  throw environment_error("cannot lock {}: {}; its filesystem must have locks of byte ranges", file_,
                          std::strerror(errno));
}

SweepLock SweepLock::whole(const std::string& folder) {
  SweepLock lock(folder);
  if (!lock.lock(F_WRLCK, 0))
    throw usage_error("other processes work on the sweep in {}: wait for them, or stop them first", folder);
  return lock;
}

SweepLock SweepLock::trial(const std::string& folder, int64_t number) {
  SweepLock lock(folder);
  if (!lock.lock(F_RDLCK, 0))
    throw usage_error("another process runs all trials of the sweep in {}, so trial {} cannot be trained now", folder,
                      number);
  if (!lock.lock(F_WRLCK, number + 1))
    throw usage_error("another process trains trial {} of the sweep in {}", number, folder);
  return lock;
}

bool SweepLock::is_held_whole(const std::string& folder) { return !SweepLock(folder).lock(F_RDLCK, 0); }

}  // namespace runner::sweep
