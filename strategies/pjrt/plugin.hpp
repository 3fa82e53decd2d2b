// A PJRT plug-in: a library with XLA's compiler and runtime for one kind of device. Its interface in C has versions, and a table of
// functions that grows (OpenXLA, pjrt_c_api.h).
#pragma once
#include <string>

#include "runner/base/error.hpp"

struct PJRT_Api;
struct PJRT_Error;
struct PJRT_Event;

namespace runner::pjrt {

/// The device has not enough memory for an array or a program.
struct OutOfMemory : Error {
  explicit OutOfMemory(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

/// An open plug-in. It stays loaded until the process ends, because its threads do.
class Plugin {
 public:
  /// Throws Error(environment) if the library cannot be loaded, is no PJRT plug-in, or lacks a function that is needed.
  explicit Plugin(const std::string& path);

  const std::string& path() const { return path_; }
  std::string version() const;  ///< of the interface, "0.81"
  std::string content() const;  ///< a digest of the library. Not thread-safe
  const PJRT_Api& api() const { return *api_; }

  /// Throws Error(run_failed) with what failed and XLA's message, unless `error` is null. Frees it. OutOfMemory is such an error.
  void check(PJRT_Error* error, const char* what) const;
  /// Whether the device has not enough memory. `error` may be null.
  bool out_of_memory(PJRT_Error* error) const;
  /// XLA's message, or an empty text if `error` is null. Frees it.
  std::string message_of(PJRT_Error* error) const;
  /// Waits until the event has happened, and frees it. Throws like check().
  void wait_for(PJRT_Event* event, const char* what) const;

 private:
  void require_functions() const;
  std::string path_;
  mutable std::string content_;  ///< empty: nobody has asked
  const PJRT_Api* api_ = nullptr;
};

/// The path of the plug-in for CPUs, which is in the folder of this program, or where scripts/setup installed it.
/// Throws Error(environment) if it is in neither.
std::string cpu_plugin();

}  // namespace runner::pjrt
