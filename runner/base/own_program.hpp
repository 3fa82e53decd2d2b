// The file of the running program, and the modules beside it.
#pragma once
#include <dlfcn.h>

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

/// A library that is built with this program and opened when it is needed.
struct ModuleFile {
  const char *file, *function;  ///< the function returns a table of the module, which has a version
  const char* lack;             ///< of a build without it: "has no CUDA module"
  const char* title;            ///< "the CUDA module"
  const char* setup;            ///< the command that installs what it needs
  int visibility = RTLD_LOCAL;
};
/// Throws Error(environment) that says how to install it.
template <class Module>
const Module& open_module(const ModuleFile& module) {
  const auto path = beside_program(module.file);
  if (!std::filesystem::exists(path))
    throw environment_error("this build {} ({} does not exist); run {} and build again", module.lack, path.string(),
                            module.setup);
  void* library = dlopen(path.c_str(), RTLD_NOW | module.visibility);
  if (!library) throw environment_error("cannot load {}: {}; run {}", module.title, dlerror(), module.setup);
  const auto table = reinterpret_cast<const Module* (*)()>(dlsym(library, module.function));
  if (!table || table()->version != Module::current_version)
    throw environment_error("{} belongs to another build than this program; build and install both again",
                            path.string());
  return *table();
}

}  // namespace runner
