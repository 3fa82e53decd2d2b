// The connection of one client with limits: bytes and seconds of a request, seconds of a write.
#pragma once
#include <httplib.h>

#include <atomic>

#include "runner/base/clock.hpp"
#include "runner/ui/http.hpp"

namespace runner::ui {

/// cpp-httplib reads a line byte by byte and limits only each line and each wait. Here the head of a request is limited as a whole, so a
/// client can neither fill memory with headers nor keep a thread with one byte a second.
class LimitedStream final : public httplib::Stream {
 public:
  LimitedStream(socket_t socket, const ServerLimits& limits) : socket_(socket), limits_(limits) {}

  /// The head of the current request has been read: what follows is its body.
  void begin_body() { in_body_ = true; }
  /// Waits for the first byte of the next request. False: the client is gone, idle for too long, or `stopping` has become true.
  bool wait_for_request(const std::atomic<bool>& stopping);

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* bytes, size_t size) override;
  ssize_t write(const char* bytes, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }
  /// Whether the client has closed the connection.
  bool closed() const;
  /// Why reading was ended by a limit: 408, 413 or 431; 0: it was not.
  int exceeded() const { return exceeded_; }

 private:
  bool wait(short events, double seconds) const;

  socket_t socket_;
  const ServerLimits& limits_;
  char buffer_[4096];
  size_t begin_ = 0, end_ = 0;
  size_t request_bytes_ = 0;  ///< of the head, or of all after begin_body()
  bool in_body_ = false;
  double deadline_ = 0;
  int exceeded_ = 0;
};

}  // namespace runner::ui
