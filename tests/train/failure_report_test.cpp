// Kinds of failures, and when their events are emitted.
#include "runner/train/failure_report.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "strategies/contract/failure.hpp"

using namespace runner;
using nlohmann::json;

namespace {

/// An event sink whose lines the test can read.
struct Told {
  int ends[2];
  EventSink sink;
  Told() : sink(1, open_pipe()) {}
  ~Told() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  int open_pipe() {
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    return ends[1];
  }
  std::vector<json> read() {
    sink.flush();
    char buffer[4096];
    ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    return EventReader(1).feed({buffer, static_cast<size_t>(n > 0 ? n : 0)});
  }
};

}  // namespace

TEST_CASE("each kind of failure has a name and an exit code") {
  struct Row {
    std::function<void()> fail;
    const char* kind;
    ExitCode code;
  };
  const std::vector<Row> rows = {
      {[] { throw usage_error("words"); }, "usage", ExitCode::usage},
      {[] { throw environment_error("words"); }, "environment", ExitCode::environment},
      {[] { throw run_error("words"); }, "error", ExitCode::run_failed},
      {[] { throw NonFiniteError("words"); }, "nonfinite", ExitCode::run_failed},
      {[] { throw std::logic_error("words"); }, "error", ExitCode::run_failed},
      {[] { TORCH_CHECK_WITH(OutOfMemoryError, false, "words"); }, "oom", ExitCode::run_failed},
      {[] { TORCH_CHECK_WITH(DistBackendError, false, "words"); }, "collective", ExitCode::run_failed},
      {[] { TORCH_CHECK(false, "words"); }, "error", ExitCode::run_failed},
  };
  for (const auto& row : rows) {
    Told told;
    World world;
    auto code = FailureReport(told.sink, world).during([&] {
      row.fail();
      return ExitCode::done;
    });
    INFO(row.kind);
    CHECK(code == row.code);
    auto events = told.read();
    REQUIRE(events.size() == 1);
    CHECK(events[0].at("event") == "failed");
    CHECK(events[0].at("kind") == row.kind);
    CHECK(events[0].at("message") == "words");
  }
}

TEST_CASE("work that does not fail returns its code, and no event is emitted") {
  Told told;
  World world;
  CHECK(FailureReport(told.sink, world).during([] { return ExitCode::preempted; }) == ExitCode::preempted);
  CHECK(told.read().empty());
}
