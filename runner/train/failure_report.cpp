#include "runner/train/failure_report.hpp"

#include "strategies/collective/divergence_watch.hpp"
#include "strategies/collective/gloo.hpp"
#include "strategies/contract/nonfinite.hpp"

namespace runner {

namespace {

const char* kind_of(const Error& error) {
  if (dynamic_cast<const NonFiniteError*>(&error)) return "nonfinite";
  if (error.code() == ExitCode::usage) return "usage";
  return error.code() == ExitCode::environment ? "environment" : "error";
}

}  // namespace

ExitCode FailureReport::failed(const std::string& kind, const std::string& message, ExitCode code) const {
  events_.emit("failed", {{"kind", kind}, {"message", message}});
  events_.flush();
  return code;
}

ExitCode FailureReport::peer_gone(const std::string& message) const {
  if (world_.watch) world_.watch->ask();
  return failed("collective", message, ExitCode::run_failed);
}

ExitCode FailureReport::during(const std::function<ExitCode()>& work) const {
  try {
    return work();
  } catch (const Error& error) {
    return failed(kind_of(error), error.what(), error.code());
  } catch (const c10::OutOfMemoryError& error) {
    return failed("oom", error.what_without_backtrace(), ExitCode::run_failed);
  } catch (const c10::DistError& error) {
    return peer_gone(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return failed("error", error.what_without_backtrace(), ExitCode::run_failed);
  } catch (const std::exception& error) {
    return is_gloo_error(error) ? peer_gone(error.what()) : failed("error", error.what(), ExitCode::run_failed);
  }
}

}  // namespace runner
