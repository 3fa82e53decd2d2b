// A command with standard input.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/command.hpp"

namespace runner::testing {

/// Starts a command with this text as its standard input.
inline pid_t start_piped(const Workplace& place, const std::vector<std::string>& arguments, const std::string& input,
                         const std::map<std::string, std::string>& environment = {}) {
  place.write("input.txt", input);
  const int before = ::dup(0), file = ::open((place.path() / "input.txt").c_str(), O_RDONLY);
  ::dup2(file, 0);
  const pid_t pid = place.start(arguments, "command", environment);
  ::dup2(before, 0);
  ::close(file);
  ::close(before);
  return pid;
}

/// Runs such a command.
inline CommandResult piped(const Workplace& place, const std::vector<std::string>& arguments,
                           const std::string& input) {
  return place.finish(start_piped(place, arguments, input));
}

}  // namespace runner::testing
