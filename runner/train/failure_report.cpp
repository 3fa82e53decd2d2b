#include "runner/train/failure_report.hpp"

#include "strategies/collective/divergence_watch.hpp"
#include "strategies/contract/failure.hpp"

namespace runner {

ExitCode FailureReport::failed(const std::string& kind, const std::string& message, ExitCode code) const {
  events_.emit("failed", {{"kind", kind}, {"message", message}});
  events_.flush();
  return code;
}

ExitCode FailureReport::during(const std::function<ExitCode()>& work) const {
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

}  // namespace runner
