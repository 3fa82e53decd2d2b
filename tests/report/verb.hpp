// Runs a verb of the command line inside the test.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "capture.hpp"
#include "runner/commands/command.hpp"

namespace runner {

struct Printed {
  std::string out, err;
};

/// Runs a verb as the command line does.
inline Printed run_verb(Action (*setup)(CLI::App&), const std::string& arguments, ExitCode expected = ExitCode::done) {
  CLI::App app;
  Action action = setup(app);
  app.parse(arguments);
  Capture err(STDERR_FILENO), out(STDOUT_FILENO);
  const ExitCode code = action();
  Printed printed{out.text(), err.text()};
  CHECK(code == expected);
  return printed;
}

}  // namespace runner
