#include "runner/base/publish_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runner/base/descriptor.hpp"
#include "runner/base/error.hpp"

namespace runner {

fs::path new_temporary_file(const fs::path& path) {
  const std::string end = "." + std::to_string(::getpid()) + ".tmp";
  for (int number = 1;; ++number) {
    const fs::path temporary = path.string() + (number > 1 ? "." + std::to_string(number) : "") + end;
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.is_open()) return temporary;
    if (errno != EEXIST) throw environment_error("cannot write {}: {}", path.string(), std::strerror(errno));
  }
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
