#include "runner/logging/append_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"

namespace runner {

AppendFile::AppendFile(const fs::path& path) : path_(path) {
  std::error_code ignored;  // open() reports it
  fs::create_directories(path.parent_path(), ignored);
  descriptor_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!descriptor_.is_open()) throw environment_error("cannot write {}: {}", path.string(), std::strerror(errno));
}

void AppendFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace runner
