#include "runner/base/loopback.hpp"

#include <arpa/inet.h>

namespace runner {

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

}  // namespace runner
