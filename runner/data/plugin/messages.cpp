#include "runner/data/plugin/messages.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace runner {

bool send_all(int socket, const void* bytes, size_t count) {
  const auto* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t n = ::send(socket, next, count, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    next += n;
    count -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(int socket, void* bytes, size_t count) {
  auto* next = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t n = ::recv(socket, next, count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    next += n;
    count -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace runner
