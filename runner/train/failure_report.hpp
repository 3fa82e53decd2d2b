// Reports a worker's failure: turns an exception into a `failed` event and an exit code.
#pragma once
#include <functional>
#include <string>

#include "runner/base/error.hpp"
#include "runner/launch/events.hpp"
#include "strategies/collective/divergence_watch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/failure.hpp"

namespace runner {

class FailureReport {
 public:
  /// `world` may be filled later, by the function given to during().
  FailureReport(EventSink& events, const World& world) : events_(events), world_(world) {}
  /// Returns what `work` returns. If `work` throws, emits the `failed` event immediately: destructors of objects
  /// outside `work` may take long, for example while a checkpoint is written.
  ExitCode during(const std::function<ExitCode()>& work) const {
    try {
      return work();
    } catch (const std::exception& error) {
      auto failure = failure_of(error);
      if (failure.kind == "collective" && world_.watch) {
        world_.watch->ask();
        if (const auto late = world_.watch->late(); !late.empty()) failure.message += "\n" + late;
      }
      return failed(failure.kind, failure.message, failure.code);
    }
  }

  /// Emits and flushes a `failed` event. Returns `code`.
  ExitCode failed(const std::string& kind, const std::string& message, ExitCode code) const {
    events_.emit("failed", {{"kind", kind}, {"message", message}});
    events_.flush();
    return code;
  }

 private:
  EventSink& events_;
  const World& world_;
};

}  // namespace runner
