#include "runner/base/disk_usage.hpp"

#include <sys/stat.h>

#include <set>
#include <utility>

namespace runner {

int64_t bytes_below(const fs::path& path) {
  std::set<std::pair<dev_t, ino_t>> seen;
  int64_t bytes = 0;
  const auto add = [&](const fs::path& file) {
    struct stat info {};
    if (::lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    if (info.st_nlink > 1 && !seen.emplace(info.st_dev, info.st_ino).second) return;
    bytes += info.st_size;
  };
  add(path);
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) return bytes;
  constexpr auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(path, options, error), end; !error && entry != end;
       entry.increment(error))
    add(entry->path());
  return bytes;
}

}  // namespace runner
