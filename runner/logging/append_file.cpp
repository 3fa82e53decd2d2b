#include "runner/logging/append_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
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

void AppendFile::replace_last(size_t old_size, std::string_view bytes) {
  const off_t size = ::lseek(descriptor_.get(), 0, SEEK_END);
  if (size < 0 || ::ftruncate(descriptor_.get(), std::max<off_t>(0, size - static_cast<off_t>(old_size))) != 0)
    throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
  append(bytes);
}

}  // namespace runner
