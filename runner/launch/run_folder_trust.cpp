#include "runner/launch/run_folder_trust.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/launch/line_seal.hpp"
#include "runner/launch/lines.hpp"

namespace runner {

namespace {

/// "anna (user 1001)"; a user that this host does not know: "user 1001".
std::string name_of(uid_t user) {
  std::array<char, 4096> buffer{};
  passwd entry{}, *found = nullptr;
  const bool known = ::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found;
  return known ? fmt::format("{} (user {})", entry.pw_name, user) : fmt::format("user {}", user);
}

}  // namespace

fs::path run_folder_of(const WorkerGroup& group) {
  const fs::path run_dir = fs::path(group.log_dir).lexically_normal().parent_path();
  for (size_t i = 0; i < group.arguments.size(); ++i) {
    if (group.arguments[i] != "--run-dir") continue;
    const bool same = i + 1 < group.arguments.size() && fs::path(group.arguments[i + 1]).lexically_normal() == run_dir;
    if (!same) throw BadMessage("arguments: --run-dir");
  }
  return run_dir;
}

std::string why_untrusted(const fs::path& path, uid_t me) {
  bool has_child = false;  // whether the next path is a folder with a trusted one in it
  for (fs::path at = path;; at = at.parent_path()) {
    struct stat found {};
    if (::lstat(at.c_str(), &found) == 0) {
      if (found.st_uid != me && found.st_uid != 0)
        return fmt::format("{} belongs to {}, and this node runs as {}", at.string(), name_of(found.st_uid),
                           name_of(me));
      // In a sticky folder, others can make new entries, but replace none.
      const bool sticky = (found.st_mode & S_ISVTX) != 0;
      if ((found.st_mode & S_IWOTH) != 0 && !(sticky && has_child))
        return fmt::format("every user can write to {}", at.string());
      has_child = true;
    } else if (errno != ENOENT) {
      return fmt::format("{} cannot be read ({})", at.string(), std::strerror(errno));
    }
    if (at == at.parent_path()) return "";
  }
}

namespace {

/// The path without links, if both it and `inner` in it are trusted. Throws Error(environment).
fs::path trusted_path(const fs::path& path, const char* inner) {
  std::error_code error;
  const auto real = fs::weakly_canonical(fs::absolute(path), error);
  const auto real_inner = error ? fs::path() : fs::weakly_canonical(real / inner, error);
  if (error) throw environment_error("{} cannot be read: {}", path.string(), error.message());
  for (const auto& checked : {real, real_inner})
    if (const auto why = why_untrusted(checked, ::geteuid()); !why.empty())
      throw environment_error(
          "{}: without a secret, a node runs only what its own user or root has written; start all nodes as the same "
          "user, with folders that others may not write, or give all of them the same {}",
          why, nodes_secret_variable);
  return real;
}

}  // namespace

void require_trusted_folders(WorkerGroup& group, const RunFolderCheck& check) {
  const fs::path run_dir = trusted_path(run_folder_of(group), "resolved.toml");
  group.log_dir = (run_dir / fs::path(group.log_dir).lexically_normal().filename()).string();
  for (size_t i = 0; i + 1 < group.arguments.size(); ++i) {
    auto& value = group.arguments[i + 1];
    if (group.arguments[i] == "--run-dir") value = run_dir.string();
    if (group.arguments[i] == "--cache-dir") value = trusted_path(value, "programs").string();
  }
  if (check) check(run_dir);
}

}  // namespace runner
