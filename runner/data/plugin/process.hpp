// A process in which a data plug-in runs, seen from the program that asks it.
#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>

#include "runner/base/descriptor.hpp"
#include "runner/data/plugin/messages.hpp"

namespace runner {

/// Used by one thread at a time. A thread may end while a process that it has started goes on.
class PluginProcess {
 public:
  /// `start`: see PluginQuestion::Kind::start. Throws Error(environment) if the process cannot be started.
  explicit PluginProcess(const nlohmann::json& start);
  ~PluginProcess();  ///< the plug-in has two seconds to close its data
  PluginProcess(const PluginProcess&) = delete;
  PluginProcess& operator=(const PluginProcess&) = delete;

  /// Sends a question and waits for its answer. Throws Error(usage) with the plug-in's mistake, or how the process ended.
  std::string ask(PluginQuestion question, const std::string& more = "");

 private:
  [[noreturn]] void fail();
  std::string doing(const PluginQuestion& question) const;

  nlohmann::json start_;
  Descriptor socket_;
  volatile int64_t* progress_ = nullptr;
  pid_t pid_ = -1;
  PluginQuestion asked_ = {};
};

}  // namespace runner
