// Creates the rendezvous socket and the shared memory.
#include "runner/launch/shared_resources.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"

namespace runner {

namespace {

/// Binds and listens on one address family. Returns false and sets errno on failure.
template <typename Address>
bool listen_as(Descriptor& listener, const Address& address, int family) {
  listener = Descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.is_open()) return false;
  int yes = 1, no = 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // a restarted group uses the same port
  if (family == AF_INET6) ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  return ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
         ::listen(listener.get(), SOMAXCONN) == 0;
}

int port_of(const Descriptor& listener) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

}  // namespace

Descriptor listen_on(const std::string& address, int& port) {
  bool loopback = address == "127.0.0.1" || address == "localhost";
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<uint16_t>(port));
  v4.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<uint16_t>(port));
  v6.sin6_addr = in6addr_any;

  Descriptor listener;
  bool listening =
      !loopback && listen_as(listener, v6, AF_INET6);  // accepts both families; fails on hosts without IPv6
  if (!listening) listening = listen_as(listener, v4, AF_INET);
  if (!listening)
    throw environment_error(
        "cannot listen on port {} of this host for the rendezvous of the ranks: {}; set another port with MASTER_PORT "
        "(under a launcher) or --master-port",
        port, std::strerror(errno));
  port = port_of(listener);
  return listener;
}

Descriptor make_shared_memory(int64_t bytes) {
  Descriptor memory(::memfd_create("runner-collectives", MFD_CLOEXEC));
  if (!memory.is_open() || ::ftruncate(memory.get(), bytes) != 0)
    throw environment_error("cannot make {} bytes of memory shared by the ranks: {}", bytes, std::strerror(errno));
  return memory;
}

}  // namespace runner
