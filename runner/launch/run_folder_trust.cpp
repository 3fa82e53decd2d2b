#include "runner/launch/run_folder_trust.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

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

std::string why_untrusted(const fs::path& run_dir, uid_t me) {
  for (const auto& path : {run_dir, run_dir / "resolved.toml"}) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) continue;  // workers report what is missing
    if (found.st_uid != me && found.st_uid != 0)
      return fmt::format("{} belongs to {}, and this node runs as {}", path.string(), name_of(found.st_uid),
                         name_of(me));
  }
  return "";
}

void require_trusted_folder(const WorkerGroup& group, const RunFolderCheck& check) {
  const fs::path run_dir = run_folder_of(group);
  if (const auto why = why_untrusted(run_dir, ::geteuid()); !why.empty())
    throw environment_error(
        "{}: without a secret, a node runs only what its own user or root has written; start all nodes as the same "
        "user, or give all of them the same {}",
        why, nodes_secret_variable);
  if (check) check(run_dir);
}

}  // namespace runner
