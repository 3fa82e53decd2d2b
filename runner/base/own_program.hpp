// The file of the running program.
#pragma once
#include <filesystem>

#include "runner/base/error.hpp"

namespace runner {

/// Throws Error(environment) on a machine without /proc.
inline std::filesystem::path own_program() {
  std::error_code error;
  auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    throw environment_error("/proc/self/exe cannot be read ({}); runner finds its files with it: is /proc mounted?",
                            error.message());
  return program;
}
/// A file in the folder of the program.
inline std::filesystem::path beside_program(const char* name) { return own_program().parent_path() / name; }

}  // namespace runner
