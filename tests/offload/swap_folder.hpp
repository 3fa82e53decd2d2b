// Folders for swap files, and access to the unnamed file in such a folder.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace runner {

struct SwapFolder {
  explicit SwapFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path(parent / ("runner-swap-test-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~SwapFolder() { std::filesystem::remove_all(path); }
  SwapFolder(const SwapFolder&) = delete;

  bool empty() const { return std::filesystem::is_empty(path); }

  /// Truncates the file through /proc, as another process could.
  void truncate_file(int64_t bytes) const {
    change_file([&](int fd) { return ::ftruncate(fd, bytes) == 0; });
  }
  /// Extends the file to `bytes` again, with all blocks allocated.
  void reserve_file(int64_t bytes) const {
    change_file([&](int fd) { return ::posix_fallocate(fd, 0, bytes) == 0; });
  }

  template <typename Change>
  void change_file(Change&& change) const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      auto target = std::filesystem::read_symlink(entry.path(), gone);
      if (gone || !target.string().starts_with(path.string() + "/")) continue;
      int fd = ::open(entry.path().c_str(), O_WRONLY | O_CLOEXEC);
      bool done = fd >= 0 && change(fd);
      ::close(fd);
      if (done) return;
    }
    throw std::logic_error("no file to change in " + path.string());
  }

  std::filesystem::path path;
};

}  // namespace runner
