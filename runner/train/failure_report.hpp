// How a worker says that it failed: what was thrown becomes a `failed` event and an exit code.
#pragma once
#include <functional>
#include <string>

#include "runner/base/error.hpp"
#include "runner/launch/events.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

class FailureReport {
 public:
  /// `world` may be filled later, by what during() runs.
  FailureReport(EventSink& events, const World& world) : events_(events), world_(world) {}
  /// What `work` returns. Whatever it throws is emitted before this returns, so before anything outside `work` is torn
  /// down: that may take long, as a checkpoint on its way does.
  ExitCode during(const std::function<ExitCode()>& work) const;
  /// Emits and flushes a `failed` event; gives `code` back.
  ExitCode failed(const std::string& kind, const std::string& message, ExitCode code) const;

 private:
  ExitCode peer_gone(const std::string& message) const;

  EventSink& events_;
  const World& world_;
};

}  // namespace runner
