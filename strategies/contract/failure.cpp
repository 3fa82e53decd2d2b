#include "strategies/contract/failure.hpp"

#include "runner/base/outside_fault.hpp"
#include "strategies/collective/gloo.hpp"

namespace runner {

namespace {

const char* kind_of(const Error& error) {
  if (dynamic_cast<const NonFiniteError*>(&error)) return "nonfinite";
  if (error.code() == ExitCode::usage) return "usage";
  return error.code() == ExitCode::environment ? "environment" : "error";
}

}  // namespace

WorkerFailure failure_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error))
    return {.kind = kind_of(*own), .message = own->what(), .code = own->code()};
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) {
    const char* kind = dynamic_cast<const c10::OutOfMemoryError*>(&error) ? "oom"
                       : dynamic_cast<const c10::DistError*>(&error)      ? "collective"
                                                                          : "error";
    return {.kind = kind, .message = torch->what_without_backtrace()};
  }
  if (const auto fault = outside_fault(error))
    return {.kind = kind_of(*fault), .message = fault->what(), .code = fault->code()};
  return {.kind = is_gloo_error(error) ? "collective" : "error", .message = error.what()};
}

}  // namespace runner
