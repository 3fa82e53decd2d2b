// A TCP proxy that changes, delays or cuts connections, for tests of peers on a bad network.
#pragma once
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "strategies/hivemind/socket.hpp"

namespace runner::testing {

/// Forwards connections from its port to another one.
class FlakyProxy {
 public:
  /// For each connection, by its number from 0 on.
  struct Fault {
    int64_t cut_after = -1;        ///< bytes in both directions, after which the connection is closed; -1: never
    int64_t flip_at = -1;          ///< one bit of this byte from the client is changed
    int64_t repeat_from = -1;      ///< what the client sends from this byte on is sent twice
    swarm::Milliseconds delay{0};  ///< before each piece of data
  };
  FlakyProxy(uint16_t to, std::function<Fault(int)> fault_of)
      : to_(to), fault_of_(std::move(fault_of)), listener_("127.0.0.1", 0, stop_) {
    thread_ = std::thread([this] { accept(); });
  }
  ~FlakyProxy() {
    stop_ = true;
    thread_.join();
    for (auto& one : links_) one.join();
  }
  uint16_t port() const { return listener_.port(); }
  int connections() const { return count_; }
  /// What the client of the last connection has sent.
  std::vector<uint8_t> recorded() {
    std::lock_guard lock(mutex_);
    return recorded_;
  }

 private:
  void accept() {
    try {
      while (!stop_) {
        auto socket = listener_.accept(swarm::Milliseconds(50));
        if (!socket) continue;
        links_.emplace_back([this, number = count_++, own = std::make_shared<swarm::Socket>(std::move(*socket))] {
          try {
            forward(*own, fault_of_(number));
          } catch (const swarm::ConnectionError&) {
          }
        });
      }
    } catch (const swarm::ConnectionError&) {
    }
  }

  void forward(swarm::Socket& client, const Fault& fault) {
    auto server = swarm::connect_to({"127.0.0.1", to_}, swarm::Clock::now() + swarm::Milliseconds(2000), stop_);
    {
      std::lock_guard lock(mutex_);
      recorded_.clear();
    }
    int64_t passed = 0, from_client = 0;
    std::vector<uint8_t> buffer(4096);
    while (!stop_) {
      for (const bool upwards : {true, false}) {
        auto& from = upwards ? client : server;
        auto& to = upwards ? server : client;
        const auto got = from.read_some(buffer);
        if (got == 0) continue;
        std::this_thread::sleep_for(fault.delay);
        std::span piece(buffer.data(), got);
        if (upwards) {
          const auto at = fault.flip_at - from_client, again = fault.repeat_from - from_client;
          if (at >= 0 && at < static_cast<int64_t>(got)) piece[static_cast<size_t>(at)] ^= 1;
          from_client += static_cast<int64_t>(got);
          if (fault.repeat_from >= 0 && again < static_cast<int64_t>(got)) {
            to.write(piece, swarm::Clock::now() + swarm::Milliseconds(2000));
            piece = piece.subspan(static_cast<size_t>(std::max<int64_t>(0, again)));
          }
          std::lock_guard lock(mutex_);
          recorded_.insert(recorded_.end(), piece.begin(), piece.end());
        }
        to.write(piece, swarm::Clock::now() + swarm::Milliseconds(2000));
        passed += static_cast<int64_t>(got);
        if (fault.cut_after >= 0 && passed >= fault.cut_after) return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  uint16_t to_;
  std::function<Fault(int)> fault_of_;
  swarm::Stop stop_ = false;
  swarm::Listener listener_;
  std::thread thread_;
  std::list<std::thread> links_;
  std::atomic<int> count_ = 0;
  std::mutex mutex_;
  std::vector<uint8_t> recorded_;
};

}  // namespace runner::testing
