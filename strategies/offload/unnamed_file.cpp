#include "strategies/offload/unnamed_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

std::string why_not(const std::filesystem::path& folder, int reason) {
  using std::filesystem::file_type;
  std::error_code ignored;
  switch (std::filesystem::status(folder, ignored).type()) {
    case file_type::not_found:
      return "there is no such folder";
    case file_type::regular:
      return "that is a file, not a folder";
    default:
      return std::strerror(reason);
  }
}

int open_in(const std::filesystem::path& folder, const std::string& name) {
  int fd = open_nameless(folder);
  // Kernels without O_TMPFILE return EISDIR.
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) fd = open_unlinked(folder);
  if (fd < 0) throw environment_error("cannot open {}: {}", name, why_not(folder, errno));
  return fd;
}

/// Checks the free space before it reserves, because a request that cannot succeed must not fill the disk meanwhile.
void reserve(int fd, int64_t bytes, const std::string& name) {
  if (bytes == 0) return;
  struct statvfs disk {};
  bool known = ::fstatvfs(fd, &disk) == 0;
  auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  int reason = known && bytes > free ? ENOSPC : EINTR;
  while (reason == EINTR) reason = ::posix_fallocate(fd, 0, bytes);
  if (reason == 0) return;
  throw environment_error("cannot reserve {} ({} bytes) for {}: {}; {} are free there", format_bytes(bytes), bytes,
                          name, std::strerror(reason), known ? format_bytes(free) : "an unknown number of bytes");
}

}  // namespace

int open_nameless(const std::filesystem::path& folder) {
  return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

int open_unlinked(const std::filesystem::path& folder) {
  auto path = (folder / ".runner-swap-XXXXXX").string();
  int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

UnnamedFile::UnnamedFile(std::filesystem::path folder, int64_t bytes, std::string label, bool direct)
    : folder_(std::move(folder)),
      size_(bytes),
      name_(fmt::format("the swap file of {} in {}", label, folder_.string())),
      fd_(open_in(folder_, name_)) {
  try {
    reserve(fd_, size_, name_);
  } catch (...) {
    ::close(fd_);
    throw;
  }
  reserved_blocks_ = state().blocks;
  // Set only now: if the file system cannot reserve, the C library uses small writes, which O_DIRECT refuses.
  direct_ = direct && ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_DIRECT) == 0;
}

UnnamedFile::~UnnamedFile() { ::close(fd_); }

UnnamedFile::State UnnamedFile::state() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return {};
  return {static_cast<int64_t>(info.st_size), static_cast<int64_t>(info.st_blocks)};
}

void UnnamedFile::refuse_cut(const char* what, int64_t offset, int64_t size) const {
  State now = state();
  if (now.bytes != size_)
    throw run_error("{} {} bytes at offset {} of {}: the file has {} bytes and should have {}", what, size, offset,
                    name_, now.bytes, size_);
  // A write in progress while the file was truncated may have restored its length, but not its contents.
  if (now.blocks < reserved_blocks_)
    throw run_error("{} {} bytes at offset {} of {}: the file has holes, of {} bytes {} are there", what, size, offset,
                    name_, size_, now.blocks * 512);
}

void UnnamedFile::read(int64_t offset, std::byte* into, int64_t size) const {
  int64_t done = 0;
  while (done < size) {
    auto n = ::pread(fd_, into + done, static_cast<size_t>(size - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw run_error("cannot read {} bytes at offset {} of {}: {}", size, offset, name_, std::strerror(errno));
    done += n;
    // Direct I/O cannot continue at an unaligned offset. It stopped at the end of a file that has become shorter.
    if (n == 0 || n % 4096 != 0) break;
  }
  if (done != size)
    throw run_error("read {} of {} bytes at offset {} of {}: the file has {} bytes and should have {}", done, size,
                    offset, name_, state().bytes, size_);
}

void UnnamedFile::write(int64_t offset, const std::byte* from, int64_t size) const {
  // A write past the end of a file that has become shorter would succeed and leave zeros in place of data.
  refuse_cut("did not write", offset, size);
  int64_t done = 0;
  while (done < size) {
    auto n = ::pwrite(fd_, from + done, static_cast<size_t>(size - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw run_error("cannot write {} bytes at offset {} of {}: {}", size, offset, name_, std::strerror(errno));
    done += n;
    if (n == 0 || n % 4096 != 0) break;
  }
  if (done != size) throw run_error("wrote {} of {} bytes at offset {} of {}", done, size, offset, name_);
  refuse_cut("wrote", offset, size);
}

}  // namespace runner
