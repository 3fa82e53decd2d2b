// Linked into the test programs with LibTorch: ctest starts them once for each test case.
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

#include "strategies/collective/quick_end.hpp"

namespace {

class QuickEnd : public Catch::EventListenerBase {
 public:
  explicit QuickEnd(const Catch::IConfig* config) : EventListenerBase(config) { runner::end_quickly(); }
};

}  // namespace

CATCH_REGISTER_LISTENER(QuickEnd)
