// Signal handlers with a self-pipe.
#include "runner/launch/stop_signals.hpp"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"

namespace runner {

namespace {

std::atomic<int> signal_pipe{-1};
std::atomic<bool> page_has_asked = false;

void write_signal(int number, siginfo_t* info, void*) {
  int saved = errno;
  if (info->si_code == SI_QUEUE && info->si_value.sival_int == stopped_on_page) page_has_asked = true;
  unsigned char byte = static_cast<unsigned char>(number);
  // If the pipe is full, the signal can be dropped: enough signals are waiting.
  [[maybe_unused]] ssize_t n = ::write(signal_pipe.load(std::memory_order_relaxed), &byte, 1);
  errno = saved;
}

}  // namespace

StopSignals::StopSignals() {
  RUNNER_CHECK(signal_pipe.load() < 0, "two supervisors in one process");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw environment_error("cannot make a pipe: {}", std::strerror(errno));
  read_end_ = Descriptor(ends[0]);
  write_end_ = Descriptor(ends[1]);
  signal_pipe = ends[1];
  page_has_asked = false;
  for (size_t i = 0; i < handled_.size(); ++i) {
    ::sigaction(handled_[i], nullptr, &before_[i]);
    struct sigaction action {};
    action.sa_flags = SA_RESTART;
    if (handled_[i] == SIGCHLD) {
      action.sa_handler = SIG_DFL;
    } else {
      action.sa_sigaction = write_signal;
      action.sa_flags |= SA_SIGINFO;
    }
    bool ignored = !(before_[i].sa_flags & SA_SIGINFO) && before_[i].sa_handler == SIG_IGN;
    if (!ignored || handled_[i] == SIGCHLD) ::sigaction(handled_[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < handled_.size(); ++i) ::sigaction(handled_[i], &before_[i], nullptr);
  signal_pipe = -1;
}

std::vector<int> StopSignals::take() {
  std::vector<int> signals;
  unsigned char byte;
  while (::read(read_end_.get(), &byte, 1) == 1) signals.push_back(byte);
  return signals;
}

bool StopSignals::from_page() const { return page_has_asked; }

}  // namespace runner
