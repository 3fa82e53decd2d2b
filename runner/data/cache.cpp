#include "runner/data/cache.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"

namespace runner {

namespace {

/// A file that is open for writing, and locked against other processes that use this class.
class LockedFile {
 public:
  LockedFile(const fs::path& path, bool quiet) : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) throw environment_error("cannot write {}: {}", path.string(), std::strerror(errno));
    try {
      lock(path, quiet);
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
  }
  ~LockedFile() { ::close(descriptor_); }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  int descriptor() const { return descriptor_; }

  /// Whether `path` still names this file: while we waited for the lock, another process may have renamed or removed it.
  bool is_still(const fs::path& path) const {
    struct stat ours {
    }, theirs{};
    return ::fstat(descriptor_, &ours) == 0 && ::stat(path.c_str(), &theirs) == 0 && ours.st_ino == theirs.st_ino &&
           ours.st_dev == theirs.st_dev;
  }

 private:
  void lock(const fs::path& path, bool quiet) {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    if (errno == EWOULDBLOCK && !quiet)
      log::info("waiting for another process that is preparing {}", path.stem().string());
    while (::flock(descriptor_, LOCK_EX) != 0)
      if (errno != EINTR) throw environment_error("cannot lock {}: {}", path.string(), std::strerror(errno));
  }
  int descriptor_;
};

/// Attempts once to make the file. False if the locked file was renamed or removed before it was locked.
bool try_make(const fs::path& final_path, const fs::path& temporary, const std::function<void(CacheWriter&)>& fill,
              bool quiet) {
  LockedFile file(temporary, quiet);
  bool ours = file.is_still(temporary);
  if (fs::exists(final_path)) {
    if (ours) ::unlink(temporary.c_str());
    return true;
  }
  if (!ours) return false;
  try {
    if (::ftruncate(file.descriptor(), 0) != 0)
      throw environment_error("cannot write {}: {}", temporary.string(), std::strerror(errno));
    CacheWriter writer(file.descriptor(), temporary);
    fill(writer);
    writer.flush();
    if (::rename(temporary.c_str(), final_path.c_str()) != 0)
      throw environment_error("cannot rename {} to {}: {}", temporary.string(), final_path.string(),
                              std::strerror(errno));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_path(final_path.parent_path());
  return true;
}

}  // namespace

void CacheWriter::append(std::span<const std::byte> bytes) {
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (buffer_.size() >= size_t{1} << 20) write_buffer();
}

void CacheWriter::write_buffer() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    ssize_t n = ::write(descriptor_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
    rest.remove_prefix(static_cast<size_t>(n));
  }
  buffer_.clear();
}

void CacheWriter::flush() {
  write_buffer();
  if (::fsync(descriptor_) != 0) throw environment_error("cannot sync {}: {}", path_.string(), std::strerror(errno));
}

fs::path make_once(const fs::path& cache_dir, const std::string& name, const std::function<void(CacheWriter&)>& fill,
                   bool quiet) {
  fs::path final_path = cache_dir / name;
  if (fs::exists(final_path)) return final_path;
  std::error_code error;
  fs::create_directories(cache_dir, error);
  if (error) throw environment_error("cannot create the folder {}: {}", cache_dir.string(), error.message());
  fs::path temporary = final_path;
  temporary += ".tmp";
  while (!try_make(final_path, temporary, fill, quiet)) {
  }
  return final_path;
}

}  // namespace runner
