#include "runner/base/files.hpp"

#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "runner/base/descriptor.hpp"
#include "runner/base/error.hpp"
#include "runner/base/private_file.hpp"

namespace runner {

namespace {

Descriptor open_file(const fs::path& path, int flags, const char* verb) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC));
  if (!file.is_open()) throw environment_error("cannot {} {}: {}", verb, path.string(), std::strerror(errno));
  return file;
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// The file is made with `mode`, less the umask.
void write_atomic(const fs::path& path, std::string_view content, mode_t mode) {
  fs::path temporary;
  Descriptor file = create_temporary(path, mode, temporary);
  try {
    while (!content.empty()) {
      ssize_t n = ::write(file.get(), content.data(), content.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw environment_error("cannot write {}: {}", path.string(), std::strerror(errno));
      content.remove_prefix(static_cast<size_t>(n));
    }
    if (::fsync(file.get()) != 0) throw environment_error("cannot sync {}: {}", path.string(), std::strerror(errno));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    int reason = errno;
    ::unlink(temporary.c_str());
    throw environment_error("cannot rename {} to {}: {}", temporary.string(), path.string(), std::strerror(reason));
  }
  sync_path(parent_of(path));
}

}  // namespace

std::string read_file(const fs::path& path) {
  Descriptor file = open_file(path, O_RDONLY, "read");
  struct stat info {};
  if (::fstat(file.get(), &info) == 0 && S_ISDIR(info.st_mode))
    throw environment_error("cannot read {}: it is a folder", path.string());
  // Reading one byte more than the file's size detects its end without another buffer. Files in /proc do not report a
  // size.
  std::string content(info.st_size > 0 ? static_cast<size_t>(info.st_size) + 1 : 4096, '\0');
  size_t done = 0;
  while (true) {
    if (done == content.size()) content.resize(content.size() * 2);
    ssize_t n = ::read(file.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw environment_error("cannot read {}: {}", path.string(), std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  content.resize(done);
  return content;
}

void sync_path(const fs::path& path) {
  Descriptor file = open_file(path, O_RDONLY, "sync");
  if (::fsync(file.get()) != 0) throw environment_error("cannot sync {}: {}", path.string(), std::strerror(errno));
}

void write_file_atomic(const fs::path& path, std::string_view content) { write_atomic(path, content, 0666); }

void write_private_file_atomic(const fs::path& path, std::string_view content) { write_atomic(path, content, 0600); }

void publish_directory(const fs::path& temporary, const fs::path& final_name) {
  sync_path(temporary);
  if (::rename(temporary.c_str(), final_name.c_str()) != 0)
    throw environment_error("cannot rename {} to {}: {}", temporary.string(), final_name.string(),
                            std::strerror(errno));
  sync_path(parent_of(final_name));
}

namespace {

/// A path in two parts: the longest beginning that exists as it is written, and the rest.
std::pair<fs::path, fs::path> existing_and_rest(const fs::path& path) {
  fs::path existing, rest;
  std::error_code ignored;
  for (const auto& part : path) {
    const bool goes_on = rest.empty() && fs::exists(existing / part, ignored);
    (goes_on ? existing : rest) /= part;
  }
  return {existing, rest};
}

/// A pattern that matches only `path`.
std::string literal_pattern(const fs::path& path) {
  std::string pattern;
  for (char byte : path.string()) {
    if (std::string_view("*?[\\").find(byte) != std::string_view::npos) pattern += '\\';
    pattern += byte;
  }
  return pattern;
}

/// The paths that a pattern without ** matches.
std::vector<std::string> glob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  int outcome = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  if (outcome == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (outcome != 0 && outcome != GLOB_NOMATCH) throw environment_error("cannot look for files like {}", pattern);
  return paths;
}

/// Whether ** leaves out the folder: a hidden one, or lost+found, which file systems create and only root can read.
bool is_skipped(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.starts_with('.') || name == "lost+found";
}

/// The folder and those below it, without skipped ones and without symbolic links. Throws Error(environment) with the
/// folder that cannot be listed.
std::vector<fs::path> folders_below(const fs::path& folder) {
  std::vector<fs::path> folders{folder};
  std::error_code failed;
  const auto fail = [](const fs::path& path, const std::string& why) {
    throw environment_error("cannot list the folder {}: {}", path.string(), why);
  };
  for (fs::recursive_directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    std::error_code unknown;  // of a symbolic link without a target, which is not a folder
    if (entry->is_symlink(unknown) || !entry->is_directory(unknown)) continue;
    if (is_skipped(entry->path())) {
      entry.disable_recursion_pending();
      continue;
    }
    if (::access(entry->path().c_str(), R_OK | X_OK) != 0) fail(entry->path(), std::strerror(errno));
    folders.push_back(entry->path());
  }
  if (failed) fail(folder, failed.message());
  return folders;
}

/// Adds what `rest` matches below the folders that the pattern `begin` matches. ** at the end stands for all files.
void add_paths(fs::path begin, const fs::path& rest, std::set<std::string>& found) {
  auto part = rest.begin();
  while (part != rest.end() && *part != "**") begin /= *part++;
  if (part == rest.end()) {
    for (auto& path : glob(begin.string())) found.insert(std::move(path));
    return;
  }
  fs::path below;
  for (++part; part != rest.end(); ++part) below /= *part;
  for (const auto& top : glob(begin.empty() ? "." : begin.string())) {
    if (!fs::is_directory(top)) continue;
    for (const auto& folder : folders_below(top)) {
      if (!below.empty()) {
        add_paths(literal_pattern(folder), below, found);
        continue;
      }
      for (auto& path : glob(literal_pattern(folder) + "/*"))
        if (!fs::is_directory(path)) found.insert(std::move(path));
    }
  }
}

}  // namespace

bool is_pattern(const fs::path& path) {
  return existing_and_rest(path).second.string().find_first_of("*?[") != std::string::npos;
}

std::vector<std::string> paths_like(const std::string& pattern) {
  if (!is_pattern(pattern)) return {pattern};
  const auto [existing, rest] = existing_and_rest(pattern);
  std::set<std::string> found;
  add_paths(literal_pattern(existing), rest, found);
  return {found.begin(), found.end()};
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  Descriptor file = open_file(path, O_RDONLY, "open");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    throw environment_error("cannot stat {}: {}", path.string(), std::strerror(errno));
  if (S_ISDIR(info.st_mode)) throw environment_error("cannot open {}: it is a folder", path.string());
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) throw environment_error("cannot map {}: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path real = fs::weakly_canonical(path, error);
  return error ? fs::absolute(path).lexically_normal() : real;
}

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
