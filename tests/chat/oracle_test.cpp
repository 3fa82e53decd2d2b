// Templates and random expressions against jinja2 and transformers. Needs a Python with them: RUNNER_TEST_PYTHON, or the system's
// with the packages of scripts/setup --tests.
#include <cstdlib>

#include "support.hpp"
#include "tests/support/every_nth.hpp"

using runner::testing::all_combinations;

namespace {
std::string python_with_jinja() {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  std::string python = chosen ? chosen : "PYTHONPATH=" RUNNER_SOURCE_DIR "/.deps/transformers /usr/bin/python3";
  std::string probe =
      python +
      R"sh( -c "import sys, importlib.util as u; sys.exit(any(u.find_spec(m) is None for m in ('jinja2', 'transformers')))" 2>/dev/null)sh";
  return std::system(probe.c_str()) == 0 ? python : "";
}

void check_script(const std::string& script, const std::string& arguments) {
  auto python = python_with_jinja();
  if (python.empty()) SKIP("no Python with jinja2 and transformers");
  auto command = python + " " RUNNER_SOURCE_DIR "/tests/chat/" + script + " " RENDER_LINES " " + arguments;
  INFO(command);
  CHECK(std::system(command.c_str()) == 0);
}
}  // namespace

TEST_CASE("TRL's and the built-in templates render as in transformers, with the same spans", "[chat][jinja2]") {
  std::string trl = RUNNER_SOURCE_DIR "/.deps/trl/trl/chat_templates";
  bool found = std::filesystem::exists(trl);
  const std::string count = all_combinations() ? "500 " : "100 ", own = RUNNER_SOURCE_DIR "/runner/chat/templates";
  check_script("check_templates.py", count + own + (found ? " " + trl : ""));
  if (!found) WARN("no " << trl << ": scripts/setup --tests brings it");
}

TEST_CASE("random expressions and blocks render as in jinja2", "[chat][jinja2]") {
  check_script("check_expressions.py", all_combinations() ? "1500" : "500");
}
