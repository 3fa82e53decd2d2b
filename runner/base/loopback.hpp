// Whether an address is this machine's own.
#pragma once
#include <arpa/inet.h>

#include <string>

namespace runner {

/// Whether `host` is 127.0.0.0/8, ::1 or localhost. Other names are not resolved.
inline bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

}  // namespace runner
