#include "runner/train/hooks/artifacts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/lua/error.hpp"

namespace runner {

using lua::ScriptMistake;

bool Artifacts::create(const std::string& name) {
  if (rank_ != 0 || bytes_.contains(name)) return false;
  const auto file = path(name);
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error)
    throw ScriptMistake(fmt::format("artifact: cannot make {}: {}", file.parent_path().string(), error.message()));
  // Creates the empty file directly. After a kill, a temporary file could remain.
  int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) throw ScriptMistake(fmt::format("artifact: cannot make {}: {}", file.string(), std::strerror(errno)));
  ::close(fd);
  bytes_[name] = 0;
  fault_point("artifact");
  return true;
}

void Artifacts::append(const std::string& name, const std::string& text) {
  if (rank_ != 0) return;
  const auto file = path(name);
  int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  size_t done = 0;
  while (fd >= 0 && done < text.size()) {
    ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  int error = errno;
  if (fd >= 0) ::close(fd);
  bytes_[name] += static_cast<int64_t>(done);
  written_.insert(name);
  if (fd < 0 || done < text.size())
    throw ScriptMistake(fmt::format("write: cannot write to {}: {}", file.string(), std::strerror(error)));
}

std::vector<fs::path> Artifacts::take_written() {
  std::vector<fs::path> files;
  for (const auto& name : std::exchange(written_, {})) files.push_back(path(name));
  return files;
}

void Artifacts::restore(const nlohmann::json& sizes) {
  if (rank_ != 0) return;
  std::error_code ignored;
  if (sizes.is_null())
    for (fs::recursive_directory_iterator entry(folder_, ignored), end; entry != end; entry.increment(ignored))
      if (entry->is_regular_file(ignored))
        bytes_[entry->path().lexically_relative(folder_).string()] = static_cast<int64_t>(entry->file_size(ignored));
  for (const auto& [name, bytes] : sizes.items()) {
    auto size = static_cast<uintmax_t>(bytes.get<int64_t>());
    const auto file = path(name);
    if (!fs::is_regular_file(file, ignored)) continue;
    if (fs::file_size(file) > size) fs::resize_file(file, size);
    bytes_[name] = static_cast<int64_t>(fs::file_size(file));
  }
}

}  // namespace runner
