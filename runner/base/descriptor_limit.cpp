#include "runner/base/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"

namespace runner {

void raise_descriptor_limit(int64_t needed, const std::string& purpose) {
  constexpr rlim_t plenty =
      65536;  // not the hard limit, which may be a billion: some programs close all possible descriptors
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto wanted = static_cast<rlim_t>(needed);
  if (limit.rlim_cur >= wanted) return;
  if (limit.rlim_max < wanted)
    throw environment_error(
        "{} needs about {} open files, but a process of this user may open {}: raise the hard limit (ulimit -Hn, "
        "nofile "
        "in limits.conf, or LimitNOFILE of a systemd service), or use fewer ranks",
        purpose, needed, limit.rlim_max);
  limit.rlim_cur = std::min(limit.rlim_max, std::max(wanted, plenty));
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    throw environment_error("{} needs about {} open files, and the limit cannot be raised: {}", purpose, needed,
                            std::strerror(errno));
}

}  // namespace runner
