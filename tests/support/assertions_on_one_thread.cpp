// Aborts a test program that runs a Catch2 assertion on a thread other than the test's thread. Such assertions are a
// data race and fail at random.
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

class AssertionsOnOneThread : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;

  void assertionStarting(const Catch::AssertionInfo& info) override {
    if (std::this_thread::get_id() == thread_) return;
    std::fprintf(stderr, "%s:%zu: an assertion on another thread than the test's; use RANK_CHECK\n", info.lineInfo.file,
                 info.lineInfo.line);
    std::abort();
  }

 private:
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace

CATCH_REGISTER_LISTENER(AssertionsOnOneThread)
