// Hostile scripts as data: tests/cases/lua/hostile/NAME.lua. Their first line says how each must end: "-- ends by:" and
// the kind of error, for `script` also the message.
#include <catch2/catch_test_macros.hpp>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/state.hpp"

using namespace runner;
using namespace runner::lua;

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr double slower = 10;
#else
constexpr double slower = 1;
#endif

/// For the sum of numbers up to 1000, by some of what hostile files try to break.
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

}  // namespace

TEST_CASE("every hostile script ends within its budget, and the state works on") {
  auto folder = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/lua/hostile";
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    StateOptions options;
    options.limits.instructions = 10'000'000;
    options.limits.seconds = 0.2 * slower;
    bool timed = expected_of(read_file(entry.path())).kind == "time";
    if (timed)
      options.limits.instructions = int64_t{1} << 60;
    else
      options.limits.seconds = 20 * slower;  // instructions decide, so that the ending is the same on every machine
    State state(options);
    auto helpers = state.load_text(good, "good.lua");
    auto sum = state.field(helpers.reference, "sum").reference;
    auto name = entry.path().filename().string();
    INFO(name);
    ++count;
    auto expected = expected_of(read_file(entry.path()));
    Ending got{"nothing", ""};
    double started = steady_seconds();
    try {
      state.load_file(entry.path(), name);
    } catch (const LuaError& error) {
      got = {lua::name(error.kind()), error.kind() == ErrorKind::script ? error.message() : ""};
      if (!error.file().empty()) CHECK((error.file() == name || error.file() == "good.lua"));
    }
    double took = steady_seconds() - started;
    INFO(got.message);
    CHECK(got.kind == expected.kind);
    if (expected.kind == "script") CHECK(got.message.find(expected.message) != std::string::npos);
    CHECK(took < (timed ? 0.6 : 3.0) * slower);
    CHECK(state.call(sum).plain == 500500);
  }
  CHECK(count >= 70);
}
