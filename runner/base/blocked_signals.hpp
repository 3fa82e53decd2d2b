// Blocks signals while a thread or a child process is started, so that it starts with all of them blocked.
#pragma once
#include <signal.h>

namespace runner {

/// From construction to destruction, the calling thread blocks all signals except faults (SIGSEGV, SIGBUS, SIGFPE,
/// SIGILL), which a thread raises itself. A thread that is started in between inherits this, and so do the threads that
/// it starts: signal handlers run in the threads that expect them, and a write to a pipe without a reader returns
/// EPIPE.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
    ::pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace runner
