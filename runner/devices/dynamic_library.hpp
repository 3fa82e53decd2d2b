// A library of the NVIDIA driver, opened at run time.
#pragma once
#include <dlfcn.h>

#include <string>

namespace runner {

/// It stays open until the process ends, because the driver cannot be unloaded safely.
class DynamicLibrary {
 public:
  explicit DynamicLibrary(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  explicit operator bool() const { return handle_ != nullptr; }
  /// False if the library lacks the function.
  template <typename Function>
  bool find(const char* name, Function*& function) const {
    function = handle_ ? reinterpret_cast<Function*>(dlsym(handle_, name)) : nullptr;
    return function != nullptr;
  }

 private:
  void* handle_;
};

}  // namespace runner
