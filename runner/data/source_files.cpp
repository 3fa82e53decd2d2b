#include "runner/data/source_files.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

struct stat status_of(const std::string& key, const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return status;
  int reason = errno;
  if (reason != ENOENT && reason != ENOTDIR)
    throw environment_error("{}: cannot open {}: {}", key, path.string(), std::strerror(reason));
  if (!fs::is_directory(folder_of(path)))
    throw usage_error("{}: there is no file {}: there is no folder {}", key, path.string(), folder_of(path).string());
  auto near = nearest_file(path);
  throw usage_error("{}: there is no file {}{}", key, path.string(), near ? "; did you mean " + *near + "?" : "");
}

}  // namespace

std::optional<std::string> nearest_file(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(path), ignored))
    if (entry.is_regular_file(ignored)) names.push_back(entry.path().filename().string());
  return nearest(path.filename().string(), names);
}

void check_source_files(const std::string& key, const std::vector<std::string>& files) {
  if (files.empty()) throw usage_error("{} names no file", key);
  for (const auto& file : files) {
    struct stat status = status_of(key, file);
    if (S_ISDIR(status.st_mode)) throw usage_error("{}: {} is a folder; name the files in it", key, file);
    if (!S_ISREG(status.st_mode)) throw usage_error("{}: {} is not a regular file, so it cannot be mapped", key, file);
    if (status.st_size == 0) throw usage_error("{}: {} is empty", key, file);
  }
}

std::string fingerprint(const std::vector<std::string>& files) {
  std::string text;
  for (const auto& file : files) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) throw environment_error("cannot open {}: {}", file, std::strerror(errno));
    text += fmt::format("{}\n{} {}.{:09}\n", fs::absolute(file).lexically_normal().string(), status.st_size,
                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return text;
}

}  // namespace runner
