// Holds back the signals that would end this process, while it has files that nobody else removes.
#pragma once
#include <signal.h>

namespace runner {

/// From construction to destruction, SIGINT, SIGTERM and SIGHUP stay pending, as far as the calling thread would have received them. Then
/// they have their usual effect. Threads and programs that are started in between inherit this.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t ending;
    sigemptyset(&ending);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, signal);
    ::pthread_sigmask(SIG_BLOCK, &ending, &before_);
    sigemptyset(&held_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
      if (!sigismember(&before_, signal) && !is_ignored(signal)) sigaddset(&held_, signal);
  }
  ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// Whether one of them has arrived.
  bool any() const {
    sigset_t arrived;
    ::sigpending(&arrived);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
      if (sigismember(&held_, signal) && sigismember(&arrived, signal)) return true;
    return false;
  }

 private:
  static bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }

  sigset_t before_, held_;
};

}  // namespace runner
