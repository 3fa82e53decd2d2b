// The library of a data plug-in, in the process that serves it.
#pragma once
#include <array>
#include <string>

#include "runner/base/error.hpp"
#include "runner/data/plugin/data_plugin.h"

namespace runner {

class DataLibrary {
 public:
  /// Throws Error(usage) if the library cannot be loaded, exports no plug-in, has another version, or lacks functions.
  explicit DataLibrary(const std::string& path);
  const runner_data_plugin* operator->() const { return &plugin_; }

  /// Calls a function of the plug-in. Throws Error(usage) with its reason if it throws, or if `good` refuses its result.
  template <typename Call, typename Good>
  auto call(const char* name, Call&& function, Good&& good) const {
    std::array<char, 4096> error{};
    try {
      auto result = function(error.data(), error.size());
      if (good(result)) return result;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& thrown) {
      throw usage_error("{}: {}", name, thrown.what());
    } catch (...) {
      throw usage_error("{} raised an exception that is not a std::exception", name);
    }
    error.back() = '\0';
    throw usage_error("{}: {}", name, error.front() ? error.data() : "it failed, and gives no reason");
  }

 private:
  runner_data_plugin plugin_ = {};  ///< members that the library does not have are null
};

}  // namespace runner
