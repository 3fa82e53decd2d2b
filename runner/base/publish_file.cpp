#include "runner/base/publish_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"

namespace runner {

Descriptor create_temporary(const fs::path& path, mode_t mode, fs::path& temporary) {
  const std::string end = "." + std::to_string(::getpid()) + ".tmp";
  for (int number = 1;; ++number) {
    temporary = path.string() + (number > 1 ? "." + std::to_string(number) : "") + end;
    Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (file.is_open()) return file;
    if (errno != EEXIST) throw environment_error("cannot write {}: {}", path.string(), std::strerror(errno));
  }
}

fs::path new_temporary_file(const fs::path& path) {
  fs::path temporary;
  (void)create_temporary(path, 0666, temporary);
  return temporary;
}

void publish_file(const fs::path& path, const std::function<void(const fs::path& temporary)>& fill) {
  const fs::path temporary = new_temporary_file(path);
  try {
    fill(temporary);
    sync_path(temporary);
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      throw environment_error("cannot write {}: {}", path.string(), std::strerror(errno));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_path(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

}  // namespace runner
