// A command with standard input.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/command.hpp"

namespace runner::testing {

/// Runs a command with this text as its standard input.
inline CommandResult piped(const Workplace& place, const std::vector<std::string>& arguments,
                           const std::string& input) {
  place.write("input.txt", input);
  const int before = ::dup(0), file = ::open((place.path() / "input.txt").c_str(), O_RDONLY);
  ::dup2(file, 0);
  auto result = place.run(arguments);
  ::dup2(before, 0);
  ::close(file);
  ::close(before);
  return result;
}

}  // namespace runner::testing
