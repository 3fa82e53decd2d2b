#include "runner/base/scratch_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "runner/base/error.hpp"

namespace runner {

namespace {

constexpr std::string_view prefix = ".runner-scratch-";  ///< no folder of a user has such a name
constexpr size_t random_letters = 6;
constexpr time_t may_be_new_s = 60;  ///< a folder is locked only after it was made

Descriptor lock_of(const fs::path& folder) {
  Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened.get() >= 0 && ::flock(opened.get(), LOCK_EX | LOCK_NB) != 0) opened.close();
  return opened;
}

bool is_left_over(const fs::path& folder) {
  const auto name = folder.filename().string();
  if (name.size() != prefix.size() + random_letters || !name.starts_with(prefix)) return false;
  struct stat status = {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         std::time(nullptr) - status.st_mtime > may_be_new_s;
}

void remove_left_overs(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_left_over(entry->path())) continue;
    const auto lock = lock_of(entry->path());
    std::error_code ignored;
    if (lock.get() >= 0) fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const fs::path& parent) {
  std::error_code error;
  fs::create_directories(parent, error);
  if (parent == fs::temp_directory_path(error))
    remove_left_overs(parent);  // locks of a shared folder may hold on one node only
  std::string pattern = (parent / prefix).string() + std::string(random_letters, 'X');
  if (!::mkdtemp(pattern.data())) throw environment_error("cannot make a folder in {}", parent.string());
  path_ = pattern;
  lock_ = lock_of(path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace runner
