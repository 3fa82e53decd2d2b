// The logs of ranks, read line by line with the attempt that wrote them.
#include "runner/launch/rank_logs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "runner/base/child_process.hpp"
#include "runner/base/log_heading.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;

namespace {

/// How many lines of each attempt a reader gives.
std::map<int64_t, int> lines_of(RankLogReader& reader) {
  std::map<int64_t, int> lines;
  reader.read([&](const RankLogLine& line) { ++lines[line.attempt]; }, /*to_end=*/false);
  return lines;
}

}  // namespace

TEST_CASE("lines keep their attempt when the heading was in the removed middle of a log") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "rank-0.log";
  constexpr int64_t most = 8000;
  const auto write = [&](int lines) {
    std::ofstream log(file, std::ios::app);
    for (int i = 0; i < lines; ++i) log << "line\n";
  };
  ChildLog first(file.string(), log_heading("1", "now"));
  write(3000);
  RankLogReader follower(0, file);
  CHECK(lines_of(follower) == std::map<int64_t, int>{{1, 3000}});
  ChildLog second(file.string(), log_heading("2", "now"));
  write(3000);
  second.bound(most);
  CHECK(lines_of(follower).empty());  // the file is shorter: what it has was read or removed
  write(3);
  CHECK(lines_of(follower) == std::map<int64_t, int>{{2, 3}});

  RankLogReader reader(0, file);
  auto lines = lines_of(reader);
  CHECK(lines[2] > 150);
  CHECK(lines[1] > 150);  // with the note about the removed part
}
