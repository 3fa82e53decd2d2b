// Hostile scripts as data: tests/cases/lua/hostile/NAME.lua. Their first line has the expected end: "-- ends by:" and
// the kind of error; for `script` also the message.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/state.hpp"

using namespace runner;
using namespace runner::lua;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double slower = 10;
#else
constexpr double slower = 1;
#endif

/// Sums the numbers up to 1000 with some of the features that hostile files try to break.
const char* const good = R"(
local M = {}
function M.sum()
  local list = {}
  for i = 1, 1000 do list[#list + 1] = ("%d"):format(i) end
  local sum = 0
  for number in table.concat(list, " "):gmatch("%d+") do sum = sum + tonumber(number) end
  return coroutine.wrap(function() coroutine.yield(sum) end)()
end
return M
)";

struct Ending {
  std::string kind, message;
};

Ending expected_of(const std::string& text) {
  auto line = text.substr(0, text.find('\n'));
  const std::string begin = "-- ends by: ";
  REQUIRE(line.starts_with(begin));
  line.erase(0, begin.size());
  auto space = line.find(' ');
  return {line.substr(0, space), space == std::string::npos ? "" : line.substr(space + 1)};
}

/// The result of loading the file in a state with these limits. The state must run a good function after it.
Ending ending_of(const fs::path& path, const Limits& limits, double& seconds) {
  StateOptions options;
  options.limits = limits;
  State state(options);
  auto sum = state.field(state.load_text(good, "good.lua").reference, "sum").reference;
  auto name = path.filename().string();
  Ending got{"nothing", ""};
  double started = steady_seconds();
  try {
    state.load_file(path, name);
  } catch (const LuaError& error) {
    got = {lua::name(error.kind()), error.kind() == ErrorKind::script ? error.message() : ""};
    if (!error.file().empty()) CHECK(error.file() == name);
  }
  seconds = steady_seconds() - started;
  CHECK(state.call(sum).plain == 500500);
  return got;
}

std::vector<fs::path> hostile_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(RUNNER_SOURCE_DIR) / "tests/cases/lua/hostile"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("every hostile script ends as expected, and the state still works") {
  auto files = hostile_files();
  CHECK(files.size() >= 70);
  for (const auto& path : files) {
    INFO(path.filename().string());
    auto expected = expected_of(read_file(path));
    Limits limits;
    limits.instructions = 10'000'000;
    limits.seconds = 60;  // the instruction limit decides, so the result is equal on every machine
    if (expected.kind == "time") {
      limits.instructions = int64_t{1} << 60;
      limits.seconds = 0.2;
    }
    double seconds = 0;
    auto got = ending_of(path, limits, seconds);
    INFO(got.message);
    CHECK(got.kind == expected.kind);
    if (expected.kind == "script") CHECK(got.message.find(expected.message) != std::string::npos);
  }
}

TEST_CASE("every endless script ends within the time limit if only the clock limits it") {
  for (const auto& path : hostile_files()) {
    auto expected = expected_of(read_file(path));
    if (expected.kind != "instructions" && expected.kind != "time") continue;
    INFO(path.filename().string());
    Limits limits;
    limits.instructions = int64_t{1} << 60;
    limits.seconds = 0.1;
    double seconds = 0;
    CHECK(ending_of(path, limits, seconds).kind == "time");
    CHECK(seconds < (0.1 + 0.9) * slower);  // also on a busy machine
  }
}
